/* GPU performance metrics: a sample keeps every activity integrated so far; a metric is the difference of two. */
#include <stdlib.h>

#include "call.h"

static const struct Metric {
    unsigned id;
    const char *key;
    double scale;
    const char *short_name, *unit;
} metrics[] = {
    {1, "gpm.graphics", 1, "GRAPHICS_UTIL", "%"},
    {2, "gpm.sm", 1, "SM_UTIL", "%"},
    {3, "gpm.occupancy", 1, "SM_OCCUPANCY", "%"},
    {4, "gpm.integer", 1, "INTEGER_UTIL", "%"},
    {5, "gpm.tensor", 1, "ANY_TENSOR_UTIL", "%"},
    {6, "gpm.dfma", 1, "DFMA_TENSOR_UTIL", "%"},
    {7, "gpm.hmma", 1, "HMMA_TENSOR_UTIL", "%"},
    {9, "gpm.imma", 1, "IMMA_TENSOR_UTIL", "%"},
    {10, "gpm.dram", 1, "DRAM_BW_UTIL", "%"},
    {11, "gpm.fp64", 1, "FP64_UTIL", "%"},
    {12, "gpm.fp32", 1, "FP32_UTIL", "%"},
    {13, "gpm.fp16", 1, "FP16_UTIL", "%"},
    {20, "pcie_tx_bytes_per_s", 1.0 / 1048576, "PCIE_TX_PER_SEC", "MiB/s"},
    {21, "pcie_rx_bytes_per_s", 1.0 / 1048576, "PCIE_RX_PER_SEC", "MiB/s"},
    {60, "nvlink_rx_bytes_per_s", 1.0 / 1048576, "NVLINK_TOTAL_RX_PER_SEC", "MiB/s"},
    {61, "nvlink_tx_bytes_per_s", 1.0 / 1048576, "NVLINK_TOTAL_TX_PER_SEC", "MiB/s"},
};
enum { METRICS = sizeof metrics / sizeof *metrics };

struct GpmSample {
    bool is_taken;
    Device device;
    double time;
    bool has[METRICS];
    double integral[METRICS];
};

NVML_API nvmlReturn nvmlGpmQueryDeviceSupport(nvmlDevice handle, GpmSupport *support) {
    ENTER_DEVICE(handle);
    REQUIRE(support);
    if (support->version != 1) return ARGUMENT_VERSION_MISMATCH;
    support->is_supported = device_number_or((Device){device.gpu, NO_MIG}, 0, "has_gpm") != 0;
    return SUCCESS;
}

NVML_API nvmlReturn nvmlGpmSampleAlloc(nvmlGpmSample *sample) {
    ENTER();
    REQUIRE(sample);
    *sample = calloc(1, sizeof **sample);
    return *sample ? SUCCESS : MEMORY_ERROR;
}

NVML_API nvmlReturn nvmlGpmSampleFree(nvmlGpmSample sample) {
    ENTER();
    REQUIRE(sample);
    free(sample);
    return SUCCESS;
}

static nvmlReturn take(Device device, nvmlGpmSample sample) {
    REQUIRE(sample);
    if (!device_number_or((Device){device.gpu, NO_MIG}, 0, "has_gpm")) return NOT_SUPPORTED;
    *sample = (struct GpmSample){.is_taken = true, .device = device, .time = state_now()};
    for (unsigned i = 0; i < METRICS; i++) {
        sample->has[i] = device_has(device, metrics[i].key);
        sample->integral[i] = device_integral(device, metrics[i].key, 0, sample->time);
    }
    return SUCCESS;
}

/* A partitioned GPU has to be asked instance by instance. */
NVML_API nvmlReturn nvmlGpmSampleGet(nvmlDevice handle, nvmlGpmSample sample) {
    ENTER_DEVICE(handle);
    if (device.mig != NO_MIG || device_number_or(device, 0, "mig_mode")) return NOT_SUPPORTED;
    return take(device, sample);
}

NVML_API nvmlReturn nvmlGpmMigSampleGet(nvmlDevice handle, unsigned gpu_instance, nvmlGpmSample sample) {
    ENTER_DEVICE(handle);
    REQUIRE(device.mig == NO_MIG);
    for (int i = 0; i < MAX_MIGS; i++) {
        Device mig = {device.gpu, i};
        double id;
        if (!device_number(mig, &id, "gpu_instance") && id == gpu_instance) return take(mig, sample);
    }
    return INVALID_ARGUMENT;
}

static void compute(const struct GpmSample *first, const struct GpmSample *second, GpmMetric *into) {
    into->result = NOT_SUPPORTED;
    for (unsigned i = 0; i < METRICS; i++) {
        if (metrics[i].id != into->id || !first->has[i] || !second->has[i]) continue;
        double mean = (second->integral[i] - first->integral[i]) / (second->time - first->time);
        into->value = mean * metrics[i].scale;
        into->short_name = into->long_name = metrics[i].short_name;
        into->unit = metrics[i].unit;
        into->result = SUCCESS;
    }
}

NVML_API nvmlReturn nvmlGpmMetricsGet(GpmMetrics *get) {
    ENTER();
    REQUIRE(get);
    if (get->version != 1) return ARGUMENT_VERSION_MISMATCH;
    const struct GpmSample *first = get->first, *second = get->second;
    REQUIRE(first && second && first->is_taken && second->is_taken);
    REQUIRE(first->device.gpu == second->device.gpu && first->device.mig == second->device.mig);
    REQUIRE(first->time < second->time);
    for (unsigned i = 0; i < get->count; i++) compute(first, second, &get->metrics[i]);
    return SUCCESS;
}
