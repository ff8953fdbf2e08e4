/* The library itself: starting, stopping, versions, and which devices there are. */
#include <stdio.h>
#include <string.h>

#include "call.h"

NVML_API nvmlReturn nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    static int slot = -1;
    return enter_init(__func__, &slot);
}

NVML_API nvmlReturn nvmlInit_v2(void) {
    static int slot = -1;
    return enter_init(__func__, &slot);
}

NVML_API nvmlReturn nvmlInit(void) {
    static int slot = -1;
    return enter_init(__func__, &slot);
}

NVML_API nvmlReturn nvmlShutdown(void) {
    ENTER_LIBRARY();
    return leave_driver();
}

NVML_API const char *nvmlErrorString(nvmlReturn code) {
    static const struct { nvmlReturn code; const char *text; } texts[] = {
        {SUCCESS, "Success"},
        {UNINITIALIZED, "Uninitialized"},
        {INVALID_ARGUMENT, "Invalid Argument"},
        {NOT_SUPPORTED, "Not Supported"},
        {NO_PERMISSION, "Insufficient Permissions"},
        {NOT_FOUND, "Not Found"},
        {INSUFFICIENT_SIZE, "Insufficient Size"},
        {DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {TIMEOUT, "Timeout"},
        {FUNCTION_NOT_FOUND, "Function Not Found"},
        {GPU_IS_LOST, "GPU is lost"},
        {RESET_REQUIRED, "GPU requires reset"},
        {LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
        {MEMORY_ERROR, "Insufficient Memory"},
        {ARGUMENT_VERSION_MISMATCH, "API Argument Version Mismatch"},
    };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code) return texts[i].text;
    return "Unknown Error";
}

static nvmlReturn system_text(const char *key, char *buffer, unsigned size) {
    const Entry *entry = state_find(key);
    if (!entry) return NOT_SUPPORTED;
    return entry->error ? entry->error : copy_text(entry->text, buffer, size);
}

NVML_API nvmlReturn nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
    ENTER();
    return system_text("driver_version", buffer, size);
}

NVML_API nvmlReturn nvmlSystemGetNVMLVersion(char *buffer, unsigned size) {
    ENTER_LIBRARY();
    return system_text("nvml_version", buffer, size);
}

static nvmlReturn cuda_version(int *version) {
    char text[16];
    int major, minor = 0;
    nvmlReturn error = system_text("cuda_version", text, sizeof text);
    if (error) return error;
    REQUIRE(version && sscanf(text, "%d.%d", &major, &minor) >= 1);
    *version = major * 1000 + minor * 10;
    return SUCCESS;
}

NVML_API nvmlReturn nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER_LIBRARY();
    return cuda_version(version);
}

NVML_API nvmlReturn nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER_LIBRARY();
    return cuda_version(version);
}

/* GPUs are numbered without gaps; the first index without a `uuid` ends them. */
static unsigned gpu_count(void) {
    unsigned count = 0;
    while (count < MAX_GPUS && device_has((Device){(int)count, NO_MIG}, "uuid")) count++;
    return count;
}

NVML_API nvmlReturn nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER();
    REQUIRE(count);
    *count = gpu_count();
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetCount(unsigned *count) {
    ENTER();
    REQUIRE(count);
    *count = gpu_count();
    return SUCCESS;
}

/* A lost GPU keeps its index but gives no handle. */
static nvmlReturn give_handle(Device device, nvmlDevice *handle) {
    REQUIRE(handle);
    double lost = device_number_or((Device){device.gpu, NO_MIG}, 0, "lost");
    if (lost) return lost == 1 ? GPU_IS_LOST : (nvmlReturn)lost;
    *handle = handle_of(device);
    return SUCCESS;
}

static nvmlReturn handle_by_index(unsigned index, nvmlDevice *handle) {
    REQUIRE(index < gpu_count());
    return give_handle((Device){(int)index, NO_MIG}, handle);
}

NVML_API nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *handle) {
    ENTER();
    return handle_by_index(index, handle);
}

NVML_API nvmlReturn nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice *handle) {
    ENTER();
    return handle_by_index(index, handle);
}

static bool text_is(Device device, const char *key, const char *wanted) {
    const char *text;
    return device_text(device, &text, "%s", key) == SUCCESS && !strcmp(text, wanted);
}

NVML_API nvmlReturn nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *handle) {
    ENTER();
    REQUIRE(uuid);
    unsigned count = gpu_count();
    for (Device device = {0, NO_MIG}; device.gpu < (int)count; device.gpu++)
        for (device.mig = NO_MIG; device.mig < MAX_MIGS; device.mig++)
            if (text_is(device, "uuid", uuid)) return give_handle(device, handle);
    return NOT_FOUND;
}

static nvmlReturn handle_by_bus_id(const char *bus_id, nvmlDevice *handle) {
    REQUIRE(bus_id);
    unsigned count = gpu_count();
    for (Device device = {0, NO_MIG}; device.gpu < (int)count; device.gpu++) {
        const char *text;
        if (device_text(device, &text, "pci_bus_id")) continue;
        size_t extra = strlen(text) > strlen(bus_id) ? strlen(text) - strlen(bus_id) : 0; /* 4-digit domains */
        if (!strcmp(text, bus_id) || (extra == 4 && !strcmp(text + extra, bus_id))) return give_handle(device, handle);
    }
    return NOT_FOUND;
}

NVML_API nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice *handle) {
    ENTER();
    return handle_by_bus_id(bus_id, handle);
}

NVML_API nvmlReturn nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice *handle) {
    ENTER();
    return handle_by_bus_id(bus_id, handle);
}

/* --- MIG ------------------------------------------------------------------------------------------- */

NVML_API nvmlReturn nvmlDeviceGetMigMode(nvmlDevice handle, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(handle);
    REQUIRE(current && pending);
    double mode;
    nvmlReturn error = device_number(device, &mode, "mig_mode");
    if (error) return error;
    *current = (unsigned)mode;
    *pending = (unsigned)device_number_or(device, mode, "mig_mode_pending");
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetMaxMigDeviceCount(nvmlDevice handle, unsigned *count) {
    ENTER_DEVICE(handle);
    REQUIRE(count);
    *count = device_has(device, "mig_mode") ? (unsigned)device_number_or(device, 7, "mig_max") : 0;
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice handle, unsigned index, nvmlDevice *mig) {
    ENTER_DEVICE(handle);
    REQUIRE(mig && device.mig == NO_MIG);
    if (!device_has(device, "mig_mode")) return NOT_SUPPORTED;
    Device instance = {device.gpu, (int)index};
    bool exists = index < MAX_MIGS && device_number_or(device, 0, "mig_mode") && device_has(instance, "uuid");
    if (!exists) return NOT_FOUND;
    *mig = handle_of(instance);
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceIsMigDeviceHandle(nvmlDevice handle, unsigned *is_mig) {
    ENTER_DEVICE(handle);
    REQUIRE(is_mig);
    *is_mig = device.mig != NO_MIG;
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice handle, nvmlDevice *parent) {
    ENTER_DEVICE(handle);
    REQUIRE(parent && device.mig != NO_MIG);
    *parent = handle_of((Device){device.gpu, NO_MIG});
    return SUCCESS;
}

static nvmlReturn instance_id(Device device, const char *key, unsigned *id) {
    REQUIRE(id);
    if (device.mig == NO_MIG) return NOT_SUPPORTED;
    *id = (unsigned)device_number_or(device, 0, key);
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetGpuInstanceId(nvmlDevice handle, unsigned *id) {
    ENTER_DEVICE(handle);
    return instance_id(device, "gpu_instance", id);
}

NVML_API nvmlReturn nvmlDeviceGetComputeInstanceId(nvmlDevice handle, unsigned *id) {
    ENTER_DEVICE(handle);
    return instance_id(device, "compute_instance", id);
}

static nvmlReturn attributes(Device device, Attributes *into) {
    REQUIRE(into);
    if (device.mig == NO_MIG) return NOT_SUPPORTED;
    *into = (Attributes){
        .multiprocessors = (unsigned)device_number_or(device, 14, "multiprocessors"),
        .copy_engines = (unsigned)device_number_or(device, 1, "copy_engines"),
        .gpu_slices = (unsigned)device_number_or(device, 1, "gpu_slices"),
        .compute_slices = (unsigned)device_number_or(device, 1, "compute_slices"),
        .memory_mb = (unsigned long long)(device_number_or(device, 0, "memory_total") / 1048576),
    };
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetAttributes_v2(nvmlDevice handle, Attributes *into) {
    ENTER_DEVICE(handle);
    return attributes(device, into);
}

NVML_API nvmlReturn nvmlDeviceGetAttributes(nvmlDevice handle, Attributes *into) {
    ENTER_DEVICE(handle);
    return attributes(device, into);
}
