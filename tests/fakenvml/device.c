/* What a device says about itself when asked for one value at a time. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "process.h"

/* --- calls that give one text or one whole number -------------------------------------------------- */

static nvmlReturn give_text(Device device, const char *key, char *buffer, unsigned size) {
    const char *text;
    nvmlReturn error = device_text(device, &text, "%s", key);
    return error ? error : copy_text(text, buffer, size);
}

#define TEXT(function, key)                                                             \
    NVML_API nvmlReturn function(nvmlDevice handle, char *buffer, unsigned size) {      \
        ENTER_DEVICE(handle);                                                           \
        return give_text(device, key, buffer, size);                                    \
    }
#define UINT(function, key, scale)                                                      \
    NVML_API nvmlReturn function(nvmlDevice handle, unsigned *into) {                   \
        ENTER_DEVICE(handle);                                                           \
        return device_uint(device, key, scale, into);                                     \
    }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios_version")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")

UINT(nvmlDeviceGetMinorNumber, "minor", 1)
UINT(nvmlDeviceGetBrand, "brand", 1)
UINT(nvmlDeviceGetArchitecture, "architecture", 1)
UINT(nvmlDeviceGetNumGpuCores, "cores", 1)
UINT(nvmlDeviceGetNumaNodeId, "numa_node", 1)
UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit_w", 1000)
UINT(nvmlDeviceGetPowerManagementLimit, "power_limit_w", 1000)
UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_limit_w", 1000)
UINT(nvmlDeviceGetPowerSource, "power_source", 1)
UINT(nvmlDeviceGetFanSpeed, "fan_pct", 1)
UINT(nvmlDeviceGetNumFans, "fans", 1)
UINT(nvmlDeviceGetPerformanceState, "pstate", 1)
UINT(nvmlDeviceGetPowerState, "pstate", 1)
UINT(nvmlDeviceGetComputeMode, "compute_mode", 1)
UINT(nvmlDeviceGetPersistenceMode, "persistence", 1)
UINT(nvmlDeviceGetDisplayMode, "display_mode", 1)
UINT(nvmlDeviceGetDisplayActive, "display_active", 1)
UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 1)
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 1)
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 1)
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 1)
UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_gen_max_gpu", 1)
UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replays", 1)

NVML_API nvmlReturn nvmlDeviceGetIndex(nvmlDevice handle, unsigned *index) {
    ENTER_DEVICE(handle);
    REQUIRE(index);
    *index = (unsigned)(device.mig == NO_MIG ? device.gpu : device.mig);
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetCudaComputeCapability(nvmlDevice handle, int *major, int *minor) {
    ENTER_DEVICE(handle);
    REQUIRE(major && minor);
    const char *text;
    nvmlReturn error = device_text(device, &text, "compute_capability");
    if (error) return error;
    return sscanf(text, "%d.%d", major, minor) == 2 ? SUCCESS : UNKNOWN;
}

static nvmlReturn pci_info(Device device, PciInfo *info) {
    REQUIRE(info);
    const char *text;
    nvmlReturn error = device_text(device, &text, "pci_bus_id");
    if (error) return error;
    memset(info, 0, sizeof *info);
    if (sscanf(text, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3) return UNKNOWN;
    snprintf(info->bus_id, sizeof info->bus_id, "%s", text);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF,
             info->bus & 0xFF, info->device & 0xFF);
    info->pci_device_id = (unsigned)device_number_or(device, 0, "pci_device_id");
    info->pci_subsystem_id = (unsigned)device_number_or(device, 0, "pci_subsystem_id");
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice handle, PciInfo *info) {
    ENTER_DEVICE(handle);
    return pci_info(device, info);
}

NVML_API nvmlReturn nvmlDeviceGetPciInfo_v2(nvmlDevice handle, PciInfo *info) {
    ENTER_DEVICE(handle);
    return pci_info(device, info);
}

/* --- utilization ------------------------------------------------------------------------------------ */

/* The mean of the last whole window, as the driver publishes it; never under MIG. */
static nvmlReturn last_window(Device device, const char *key, double *mean) {
    double number, window = device_number_or(device, 1.0 / 6, "window_s");
    nvmlReturn error = device_number(device, &number, "%s", key);
    if (error) return error;
    double end = floor(state_now() / window) * window;
    *mean = device_integral(device, key, end - window, end) / window;
    return SUCCESS;
}

static bool is_partitioned(Device device) {
    return device.mig != NO_MIG || device_number_or(device, 0, "mig_mode") != 0;
}

NVML_API nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice handle, Utilization *into) {
    ENTER_DEVICE(handle);
    REQUIRE(into);
    if (is_partitioned(device)) return NOT_SUPPORTED;
    double gpu, memory = 0;
    nvmlReturn error = last_window(device, "utilization", &gpu);
    if (error) return error;
    (void)last_window(device, "memory_utilization", &memory);
    *into = (Utilization){(unsigned)lround(gpu), (unsigned)lround(memory)};
    return SUCCESS;
}

static nvmlReturn engine_utilization(Device device, const char *key, unsigned *share, unsigned *period_us) {
    REQUIRE(share && period_us);
    double mean;
    nvmlReturn error = is_partitioned(device) ? NOT_SUPPORTED : last_window(device, key, &mean);
    if (error) return error;
    *share = (unsigned)lround(mean);
    *period_us = (unsigned)(device_number_or(device, 1.0 / 6, "window_s") * 1e6);
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetEncoderUtilization(nvmlDevice handle, unsigned *share, unsigned *period_us) {
    ENTER_DEVICE(handle);
    return engine_utilization(device, "encoder", share, period_us);
}

NVML_API nvmlReturn nvmlDeviceGetDecoderUtilization(nvmlDevice handle, unsigned *share, unsigned *period_us) {
    ENTER_DEVICE(handle);
    return engine_utilization(device, "decoder", share, period_us);
}

static const struct { const char *key; double scale; } sampled[] = {
    [0] = {"power_w", 1000},     [1] = {"utilization", 1}, [2] = {"memory_utilization", 1}, [3] = {"encoder", 1},
    [4] = {"decoder", 1},        [5] = {"clock_sm", 1},    [6] = {"clock_mem", 1}};

/* The ring is filled while something ran lately; on an idle GPU it runs empty. */
static bool ring_has(Device device, double window_end) {
    double awake_s = device_number_or(device, 2, "ring_awake_s");
    return device_integral(device, "utilization", window_end - awake_s, window_end) > 0;
}

NVML_API nvmlReturn nvmlDeviceGetSamples(nvmlDevice handle, unsigned type, unsigned long long last_seen_us,
                                         unsigned *value_type, unsigned *count, Sample *into) {
    ENTER_DEVICE(handle);
    REQUIRE(value_type && count && type < sizeof sampled / sizeof *sampled);
    double number, window = device_number_or(device, 1.0 / 6, "window_s");
    if (is_partitioned(device) || !device_number_or(device, 1, "has_ring")) return NOT_SUPPORTED;
    nvmlReturn error = device_number(device, &number, "%s", sampled[type].key);
    if (error) return error;
    long long newest = (long long)floor(state_now() / window);
    long long depth = (long long)device_number_or(device, 100, "ring_depth");
    unsigned room = *count, found = 0;
    *value_type = TYPE_UINT;
    for (long long i = newest - depth + 1; i <= newest; i++) {
        double end = (double)i * window;
        if (driver_time_us(end) <= last_seen_us || !ring_has(device, end)) continue;
        if (into && found == room) break;
        double mean = device_integral(device, sampled[type].key, end - window, end) / window;
        if (into) into[found] = (Sample){driver_time_us(end), {.u = (unsigned)lround(mean * sampled[type].scale)}};
        found++;
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

/* --- memory ------------------------------------------------------------------------------------------- */

typedef struct { unsigned long long total, reserved, used; } Usage;

/* Where `memory_used` is absent it is what the processes hold. */
static nvmlReturn memory_usage(Device device, Usage *usage) {
    double total, used;
    nvmlReturn error = device_number(device, &total, "memory_total");
    if (error) return error;
    error = device_number(device, &used, "memory_used");
    if (error == NOT_SUPPORTED && !device_has(device, "memory_used")) used = process_memory(device), error = SUCCESS;
    *usage = (Usage){(unsigned long long)total, (unsigned long long)device_number_or(device, 0, "memory_reserved"),
                     (unsigned long long)used};
    return error;
}

NVML_API nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice handle, Memory *memory) {
    ENTER_DEVICE(handle);
    REQUIRE(memory);
    Usage usage;
    nvmlReturn error = memory_usage(device, &usage);
    if (error) return error;
    unsigned long long used = usage.used + usage.reserved; /* this version does not tell them apart */
    *memory = (Memory){usage.total, usage.total > used ? usage.total - used : 0, used};
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice handle, Memory_v2 *memory) {
    ENTER_DEVICE(handle);
    REQUIRE(memory);
    if (memory->version != VERSION_OF(Memory_v2, 2)) return ARGUMENT_VERSION_MISMATCH;
    Usage usage;
    nvmlReturn error = memory_usage(device, &usage);
    if (error) return error;
    unsigned long long taken = usage.used + usage.reserved;
    *memory = (Memory_v2){memory->version, usage.total, usage.reserved, usage.total > taken ? usage.total - taken : 0,
                          usage.used};
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetBAR1MemoryInfo(nvmlDevice handle, Bar1Memory *memory) {
    ENTER_DEVICE(handle);
    REQUIRE(memory);
    double total;
    nvmlReturn error = device_number(device, &total, "bar1_total");
    if (error) return error;
    double used = device_number_or(device, 0, "bar1_used");
    *memory = (Bar1Memory){(unsigned long long)total, (unsigned long long)(total - used), (unsigned long long)used};
    return SUCCESS;
}

/* --- power, heat, clocks ------------------------------------------------------------------------------ */

NVML_API nvmlReturn nvmlDeviceGetPowerUsage(nvmlDevice handle, unsigned *milliwatts) {
    ENTER_DEVICE(handle);
    REQUIRE(milliwatts);
    double now;
    nvmlReturn error = device_number(device, &now, "power_w");
    if (error) return error;
    double seconds = device_number_or(device, 0, "power_averaging_s");
    *milliwatts = (unsigned)lround(device_mean(device, "power_w", seconds) * 1000);
    return SUCCESS;
}

/* Counted where the state says so: `energy_base_j` is what the counter stood at when the driver started. */
NVML_API nvmlReturn nvmlDeviceGetTotalEnergyConsumption(nvmlDevice handle, unsigned long long *millijoules) {
    ENTER_DEVICE(handle);
    REQUIRE(millijoules);
    double base;
    nvmlReturn error = device_number(device, &base, "energy_base_j");
    if (error) return error;
    *millijoules = (unsigned long long)((base + device_integral(device, "power_w", 0, state_now())) * 1000);
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice handle, unsigned *lowest,
                                                                 unsigned *highest) {
    ENTER_DEVICE(handle);
    nvmlReturn error = device_uint(device, "power_limit_min_w", 1000, lowest);
    return error ? error : device_uint(device, "power_limit_max_w", 1000, highest);
}

NVML_API nvmlReturn nvmlDeviceGetTemperature(nvmlDevice handle, unsigned sensor, unsigned *celsius) {
    ENTER_DEVICE(handle);
    REQUIRE(sensor == 0);
    return device_uint(device, "temperature", 1, celsius);
}

NVML_API nvmlReturn nvmlDeviceGetTemperatureV(nvmlDevice handle, Temperature_v1 *into) {
    ENTER_DEVICE(handle);
    REQUIRE(into);
    if (into->version != VERSION_OF(Temperature_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    REQUIRE(into->sensor == 0);
    return device_uint(device, "temperature", 1, (unsigned *)&into->temperature);
}

NVML_API nvmlReturn nvmlDeviceGetTemperatureThreshold(nvmlDevice handle, unsigned which, unsigned *celsius) {
    ENTER_DEVICE(handle);
    static const char *const keys[] = {"temperature_shutdown", "temperature_slowdown", "temperature_memory_max",
                                       "temperature_gpu_max"};
    REQUIRE(which < 8);
    return which < 4 ? device_uint(device, keys[which], 1, celsius) : NOT_SUPPORTED;
}

/* May be zero or negative, as on some H100 drivers. */
NVML_API nvmlReturn nvmlDeviceGetMarginTemperature(nvmlDevice handle, MarginTemperature_v1 *into) {
    ENTER_DEVICE(handle);
    REQUIRE(into);
    if (into->version != VERSION_OF(MarginTemperature_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    double margin;
    nvmlReturn error = device_number(device, &margin, "temperature_margin");
    if (!error) into->margin = (int)lround(margin);
    return error;
}

NVML_API nvmlReturn nvmlDeviceGetFanSpeed_v2(nvmlDevice handle, unsigned fan, unsigned *percent) {
    ENTER_DEVICE(handle);
    REQUIRE(fan < device_number_or(device, 0, "fans") || !device_has(device, "fans"));
    char key[32];
    snprintf(key, sizeof key, "fan.%u.pct", fan);
    return device_uint(device, device_has(device, key) ? key : "fan_pct", 1, percent);
}

NVML_API nvmlReturn nvmlDeviceGetTargetFanSpeed(nvmlDevice handle, unsigned fan, unsigned *percent) {
    ENTER_DEVICE(handle);
    REQUIRE(fan < device_number_or(device, 0, "fans"));
    return device_uint(device, "fan_target_pct", 1, percent);
}

NVML_API nvmlReturn nvmlDeviceGetFanSpeedRPM(nvmlDevice handle, FanSpeedInfo_v1 *info) {
    ENTER_DEVICE(handle);
    REQUIRE(info);
    if (info->version != VERSION_OF(FanSpeedInfo_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    return device_uint(device, "fan_rpm", 1, &info->speed);
}

static const char *const clock_keys[] = {"clock_graphics", "clock_sm", "clock_mem", "clock_video"};
static const char *const max_clock_keys[] = {"max_clock_graphics", "max_clock_sm", "max_clock_mem", "max_clock_video"};

NVML_API nvmlReturn nvmlDeviceGetClockInfo(nvmlDevice handle, unsigned type, unsigned *mhz) {
    ENTER_DEVICE(handle);
    REQUIRE(type < 4);
    return device_uint(device, clock_keys[type], 1, mhz);
}

NVML_API nvmlReturn nvmlDeviceGetMaxClockInfo(nvmlDevice handle, unsigned type, unsigned *mhz) {
    ENTER_DEVICE(handle);
    REQUIRE(type < 4);
    return device_uint(device, max_clock_keys[type], 1, mhz);
}

static nvmlReturn reasons(Device device, unsigned long long *mask) {
    REQUIRE(mask);
    double number;
    nvmlReturn error = device_number(device, &number, "clocks_event_reasons");
    if (!error) *mask = (unsigned long long)number;
    return error;
}

NVML_API nvmlReturn nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice handle, unsigned long long *mask) {
    ENTER_DEVICE(handle);
    return reasons(device, mask);
}

NVML_API nvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice handle, unsigned long long *mask) {
    ENTER_DEVICE(handle);
    return reasons(device, mask);
}

NVML_API nvmlReturn nvmlDeviceGetViolationStatus(nvmlDevice handle, unsigned policy, ViolationTime *into) {
    ENTER_DEVICE(handle);
    static const char *const keys[] = {"throttle.sw_power_cap", "throttle.thermal",         "throttle.sync_boost",
                                       "throttle.board_limit",  "throttle.low_utilization", "throttle.reliability"};
    REQUIRE(into && policy < 12);
    if (policy >= 6 || !device_has(device, keys[policy])) return NOT_SUPPORTED;
    double seconds = device_integral(device, keys[policy], 0, state_now()) / 100;
    *into = (ViolationTime){driver_time_us(state_now()), (unsigned long long)(seconds * 1e9)};
    return SUCCESS;
}
