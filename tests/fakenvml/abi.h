/* NVML's binary interface as far as the fake driver implements it: codes, structures and their versions. */
#ifndef FAKENVML_ABI_H
#define FAKENVML_ABI_H

#include <stdint.h>

#define NVML_API __attribute__((visibility("default")))

typedef unsigned nvmlReturn;
typedef struct opaque_device *nvmlDevice;
typedef struct EventSet *nvmlEventSet;
typedef struct GpmSample *nvmlGpmSample;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    LIB_RM_VERSION_MISMATCH = 18,
    MEMORY_ERROR = 20,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* The size of the structure is part of its version, as in NVML's own NVML_STRUCT_VERSION. */
#define VERSION_OF(type, number) ((unsigned)(sizeof(type) | ((unsigned)(number) << 24)))

typedef union {
    double d;
    unsigned u;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    int i;
    unsigned short us;
} Value;
enum { TYPE_DOUBLE = 0, TYPE_UINT = 1, TYPE_ULONG = 2, TYPE_ULONGLONG = 3, TYPE_SLONGLONG = 4, TYPE_INT = 5 };

typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long time_us; Value value; } Sample;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory_v2;
typedef struct { unsigned long long total, free, used; } Bar1Memory;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;
typedef struct { unsigned version, sensor; int temperature; } Temperature_v1;
typedef struct { unsigned version; int margin; } MarginTemperature_v1;
typedef struct { unsigned version, fan, speed; } FanSpeedInfo_v1;
typedef struct { unsigned long long reference_us, violation_ns; } ViolationTime;
typedef struct {
    uint32_t field, scope;
    int64_t time_us, latency_us;
    unsigned value_type;
    nvmlReturn result;
    Value value;
} FieldValue;
typedef struct { unsigned pid; unsigned long long used; } ProcessInfo_v1;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo_v2;
typedef struct { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; } ProcessSample;
typedef struct {
    unsigned long long time_us;
    unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
} ProcessUtilization_v1;
typedef struct {
    unsigned version, count;
    unsigned long long last_seen_us;
    ProcessUtilization_v1 *samples;
} ProcessesUtilization_v1;
typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mb;
} Attributes;
typedef struct { nvmlDevice device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } EventData;
typedef struct { unsigned version, is_supported; } GpmSupport;
typedef struct {
    unsigned version;
    unsigned char cluster_uuid[16];
    nvmlReturn status;
    unsigned clique;
    unsigned char state;
    unsigned health_mask;
} FabricInfo_v2;
typedef struct {
    unsigned id;
    nvmlReturn result;
    double value;
    const char *short_name, *long_name, *unit;
} GpmMetric;
/* The real array is as long as the caller's header says; only the first `count` are touched here. */
typedef struct { unsigned version, count; nvmlGpmSample first, second; GpmMetric metrics[]; } GpmMetrics;

_Static_assert(sizeof(Memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(PciInfo) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(FieldValue) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(ProcessInfo_v1) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(ProcessInfo_v2) == 24, "nvmlProcessInfo_v2_t");
_Static_assert(sizeof(ProcessSample) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(ProcessUtilization_v1) == 40, "nvmlProcessUtilizationInfo_v1_t");
_Static_assert(sizeof(GpmMetric) == 40, "nvmlGpmMetric_t");
_Static_assert(sizeof(FabricInfo_v2) == 36, "nvmlGpuFabricInfo_v2_t");

#endif
