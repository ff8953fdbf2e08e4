/* What every API function does first: count itself, follow the state file, obey injected faults, know its device. */
#ifndef FAKENVML_CALL_H
#define FAKENVML_CALL_H

#include "abi.h"
#include "state.h"

enum { MAX_GPUS = 64, MAX_MIGS = 16, NO_MIG = -1, NO_INSTANCE = -1 };

/* Handles are numbers, never followed, and belong to one initialisation: those of an earlier one are refused. */
typedef struct { int gpu, mig; } Device;
nvmlDevice handle_of(Device device);
bool device_of(nvmlDevice handle, Device *device);

/* For the few calls that need no initialised driver. */
nvmlReturn enter_library(const char *function, int *slot);
nvmlReturn enter(const char *function, int *slot);
nvmlReturn enter_device(const char *function, int *slot, nvmlDevice handle, Device *device);
nvmlReturn enter_init(const char *function, int *slot);
nvmlReturn leave_driver(void);
/* What every call answers once the driver went away under this session, or before there is one; else SUCCESS. */
nvmlReturn check_session(void);

#define ENTER_LIBRARY()                                     \
    static int slot_ = -1;                                  \
    nvmlReturn entered_ = enter_library(__func__, &slot_);  \
    if (entered_) return entered_
#define ENTER()                                     \
    static int slot_ = -1;                          \
    nvmlReturn entered_ = enter(__func__, &slot_);  \
    if (entered_) return entered_
#define ENTER_DEVICE(handle)                                                        \
    static int slot_ = -1;                                                          \
    Device device;                                                                  \
    nvmlReturn entered_ = enter_device(__func__, &slot_, handle, &device);          \
    if (entered_) return entered_
#define REQUIRE(condition) \
    if (!(condition)) return INVALID_ARGUMENT

/* A device's values. Absent is NOT_SUPPORTED. Keys: gpu.N.KEY, gpu.N.mig.K.KEY; formatted as by printf. */
nvmlReturn device_text(Device device, const char **text, const char *key, ...) __attribute__((format(printf, 3, 4)));
nvmlReturn device_number(Device device, double *number, const char *key, ...) __attribute__((format(printf, 3, 4)));
nvmlReturn device_uint(Device device, const char *key, double scale, unsigned *into);
double device_number_or(Device device, double otherwise, const char *key);
double device_integral(Device device, const char *key, double from, double to);
double device_mean(Device device, const char *key, double seconds);
bool device_has(Device device, const char *key);
const Entry *device_first(Device device, const char *key);
nvmlReturn copy_text(const char *text, char *buffer, unsigned size);
unsigned long long driver_time_us(double t);
double driver_seconds(unsigned long long time_us);

#endif
