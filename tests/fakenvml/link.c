/* Links, and the errors of memory. */
#include <time.h>

#include "call.h"

/* Blocks for its 20 ms, as the real one does. NVML says KB; like its other link rates that is taken as 1024 bytes. */
NVML_API nvmlReturn nvmlDeviceGetPcieThroughput(nvmlDevice handle, unsigned counter, unsigned *kb_per_s) {
    ENTER_DEVICE(handle);
    REQUIRE(counter < 2);
    const char *key = counter ? "pcie_rx_bytes_per_s" : "pcie_tx_bytes_per_s";
    nvmlReturn error = device_uint(device, key, 1.0 / 1024, kb_per_s);
    if (!error) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return error;
}

/* Only active or not: a sleeping link (state 2) reads as inactive here and as sleeping from field 165. */
NVML_API nvmlReturn nvmlDeviceGetNvLinkState(nvmlDevice handle, unsigned link, unsigned *is_active) {
    ENTER_DEVICE(handle);
    REQUIRE(is_active);
    double links = device_number_or(device, 0, "nvlinks"), state;
    if (!links) return NOT_SUPPORTED;
    REQUIRE(link < links);
    *is_active = device_number(device, &state, "nvlink.%u.state", link) || state == 1;
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetGpuFabricInfoV(nvmlDevice handle, FabricInfo_v2 *info) {
    ENTER_DEVICE(handle);
    REQUIRE(info);
    if (info->version != VERSION_OF(FabricInfo_v2, 2)) return ARGUMENT_VERSION_MISMATCH;
    unsigned state;
    nvmlReturn error = device_uint(device, "fabric_state", 1, &state);
    if (!error) info->state = (unsigned char)state;
    return error;
}

NVML_API nvmlReturn nvmlDeviceGetEccMode(nvmlDevice handle, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(handle);
    nvmlReturn error = device_uint(device, "ecc_mode", 1, current);
    if (error) return error;
    return device_uint(device, device_has(device, "ecc_mode_pending") ? "ecc_mode_pending" : "ecc_mode", 1, pending);
}

static nvmlReturn ecc_errors(Device device, unsigned type, unsigned counter, int location, unsigned long long *count) {
    static const char *const keys[2][2] = {{"ecc_volatile_corrected", "ecc_aggregate_corrected"},
                                           {"ecc_volatile_uncorrected", "ecc_aggregate_uncorrected"}};
    REQUIRE(count && type < 2 && counter < 2);
    if (!device_number_or(device, 0, "ecc_mode")) return NOT_SUPPORTED;
    double errors = 0;
    if (location >= 0) (void)device_number(device, &errors, "%s.%d", keys[type][counter], location);
    else errors = device_number_or(device, 0, keys[type][counter]);
    *count = (unsigned long long)errors;
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetTotalEccErrors(nvmlDevice handle, unsigned type, unsigned counter,
                                                unsigned long long *count) {
    ENTER_DEVICE(handle);
    return ecc_errors(device, type, counter, -1, count);
}

NVML_API nvmlReturn nvmlDeviceGetMemoryErrorCounter(nvmlDevice handle, unsigned type, unsigned counter,
                                                    unsigned location, unsigned long long *count) {
    ENTER_DEVICE(handle);
    REQUIRE(location < 8);
    return ecc_errors(device, type, counter, (int)location, count);
}

NVML_API nvmlReturn nvmlDeviceGetRemappedRows(nvmlDevice handle, unsigned *corrected, unsigned *uncorrected,
                                              unsigned *is_pending, unsigned *has_failed) {
    ENTER_DEVICE(handle);
    nvmlReturn error = device_uint(device, "remapped_rows_corrected", 1, corrected);
    if (!error) error = device_uint(device, "remapped_rows_uncorrected", 1, uncorrected);
    if (!error) error = device_uint(device, "remap_pending", 1, is_pending);
    return error ? error : device_uint(device, "remap_failed", 1, has_failed);
}
