/* nvmlDeviceGetFieldValues: which field id is which value of the state, as a gauge or integrated as a counter. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "call.h"

/* A gauge is the value now; a total is its integral since the driver's start. */
typedef enum { GAUGE, TOTAL, MEAN_1S } Kind;
static const struct Field {
    unsigned id;
    const char *key;
    Kind kind;
    unsigned type;
    double scale;
    const char *needs; /* the key that says whether this GPU has the field; NULL: its own */
} fields[] = {
    {1, "ecc_mode", GAUGE, TYPE_UINT, 1, NULL},
    {3, "ecc_volatile_corrected", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {4, "ecc_volatile_uncorrected", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {5, "ecc_aggregate_corrected", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {6, "ecc_aggregate_uncorrected", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {38, "nvlink_crc_flit_errors", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {45, "nvlink_crc_data_errors", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {52, "nvlink_replay_errors", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {59, "nvlink_recovery_errors", GAUGE, TYPE_ULONGLONG, 1, NULL},
    {74, "throttle.sw_power_cap", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {75, "throttle.thermal", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {76, "throttle.sync_boost", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {77, "throttle.board_limit", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {78, "throttle.low_utilization", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {79, "throttle.reliability", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {82, "memory_temperature", GAUGE, TYPE_UINT, 1, NULL},
    {83, "power_w", TOTAL, TYPE_ULONGLONG, 1000, "energy_base_j"},
    {91, "nvlinks", GAUGE, TYPE_UINT, 1, NULL},
    {94, "pcie_replays", GAUGE, TYPE_UINT, 1, NULL},
    {138, "nvlink_tx_bytes_per_s", TOTAL, TYPE_ULONGLONG, 1.0 / 1024, "nvlinks"},
    {139, "nvlink_rx_bytes_per_s", TOTAL, TYPE_ULONGLONG, 1.0 / 1024, "nvlinks"},
    {140, "nvlink_tx_bytes_per_s", TOTAL, TYPE_ULONGLONG, 1.0 / 1024, "nvlinks"},
    {141, "nvlink_rx_bytes_per_s", TOTAL, TYPE_ULONGLONG, 1.0 / 1024, "nvlinks"},
    {142, "remapped_rows_corrected", GAUGE, TYPE_UINT, 1, NULL},
    {143, "remapped_rows_uncorrected", GAUGE, TYPE_UINT, 1, NULL},
    {144, "remap_pending", GAUGE, TYPE_UINT, 1, NULL},
    {145, "remap_failed", GAUGE, TYPE_UINT, 1, NULL},
    {173, "pcie_correctable_errors", GAUGE, TYPE_UINT, 1, NULL},
    {183, "pcie_lane_errors", GAUGE, TYPE_UINT, 1, NULL},
    {185, "power_w", MEAN_1S, TYPE_UINT, 1000, "has_power_fields"},
    {186, "power_w", GAUGE, TYPE_UINT, 1000, "has_power_fields"},
    {187, "power_limit_min_w", GAUGE, TYPE_UINT, 1000, NULL},
    {188, "power_limit_max_w", GAUGE, TYPE_UINT, 1000, NULL},
    {189, "power_default_limit_w", GAUGE, TYPE_UINT, 1000, NULL},
    {190, "power_limit_w", GAUGE, TYPE_UINT, 1000, NULL},
    {193, "tlimit_shutdown", GAUGE, TYPE_INT, 1, NULL},
    {194, "tlimit_slowdown", GAUGE, TYPE_INT, 1, NULL},
    {195, "tlimit_memory_max", GAUGE, TYPE_INT, 1, NULL},
    {196, "tlimit_gpu_max", GAUGE, TYPE_INT, 1, NULL},
    {197, "pcie_tx_bytes_per_s", TOTAL, TYPE_ULONGLONG, 1, "pcie_counter_bits"},
    {198, "pcie_rx_bytes_per_s", TOTAL, TYPE_ULONGLONG, 1, "pcie_counter_bits"},
    {230, "recovery_action", GAUGE, TYPE_UINT, 1, NULL},
    {269, "throttle.sw_thermal", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {270, "throttle.hw_thermal", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
    {271, "throttle.hw_power_brake", TOTAL, TYPE_ULONGLONG, 1e7, NULL},
};

enum { FIELD_NVLINK_STATE = 165, FIELD_ENERGY = 83, FIELD_PCIE_TX = 197, FIELD_PCIE_RX = 198 };

static void put(FieldValue *into, unsigned type, double number) {
    into->value_type = type;
    into->value = (Value){.ull = 0};
    if (type == TYPE_UINT) into->value.u = (unsigned)lround(number);
    else if (type == TYPE_INT) into->value.i = (int)lround(number);
    else if (type == TYPE_DOUBLE) into->value.d = number;
    else into->value.ull = (unsigned long long)number;
}

static double wrapped(Device device, double number) {
    double bits = device_number_or(device, 64, "pcie_counter_bits");
    return bits < 64 ? fmod(number, ldexp(1, (int)bits)) : number;
}

static nvmlReturn measure(Device device, const struct Field *field, double *number) {
    nvmlReturn error = field->needs ? device_number(device, number, "%s", field->needs) : SUCCESS;
    double base = field->id == FIELD_ENERGY ? *number : 0;
    if (!error) error = device_number(device, number, "%s", field->key);
    if (error) return error;
    if (field->kind == TOTAL) *number = base + device_integral(device, field->key, 0, state_now());
    if (field->kind == MEAN_1S) *number = device_mean(device, field->key, 1);
    *number *= field->scale;
    if (field->id == FIELD_PCIE_TX || field->id == FIELD_PCIE_RX) *number = wrapped(device, *number);
    return SUCCESS;
}

static nvmlReturn nvlink_state(Device device, FieldValue *into) {
    double links = device_number_or(device, 0, "nvlinks"), state;
    if (!links || !device_number_or(device, 1, "has_nvlink_state_field")) return NOT_SUPPORTED;
    if (into->scope >= links) return INVALID_ARGUMENT;
    if (device_number(device, &state, "nvlink.%u.state", into->scope)) state = 1;
    put(into, TYPE_UINT, state);
    return SUCCESS;
}

/* `field.ID` in the state overrides or adds any field; ids above `field_max` are unknown to an older driver. */
static nvmlReturn read_field(Device device, FieldValue *into) {
    double number = 0;
    if (into->field > device_number_or(device, 1e9, "field_max")) return INVALID_ARGUMENT;
    char key[32];
    snprintf(key, sizeof key, "field.%u", into->field);
    if (device_has(device, key)) {
        nvmlReturn error = device_number(device, &number, "%s", key);
        if (!error) put(into, TYPE_ULONGLONG, number);
        return error;
    }
    if (into->field == FIELD_NVLINK_STATE) return nvlink_state(device, into);
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].id != into->field) continue;
        nvmlReturn error = measure(device, &fields[i], &number);
        if (!error) put(into, fields[i].type, number);
        return error;
    }
    return NOT_SUPPORTED;
}

NVML_API nvmlReturn nvmlDeviceGetFieldValues(nvmlDevice handle, int count, FieldValue *values) {
    ENTER_DEVICE(handle);
    REQUIRE(values && count >= 0);
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    for (int i = 0; i < count; i++) {
        values[i].time_us = (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
        values[i].latency_us = 10;
        values[i].result = read_field(device, &values[i]);
    }
    return SUCCESS;
}
