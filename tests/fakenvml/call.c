#define _GNU_SOURCE
#include "call.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* --- counting: one file per process, mapped, so that a test reads it while the process runs ------ */

enum { COUNTERS = 256, NAME_SIZE = 56 };
typedef struct { char name[NAME_SIZE]; _Atomic unsigned long long calls; } Counter;
static Counter private_counters[COUNTERS];
static Counter *_Atomic counters;
static int counters_used;
static pthread_mutex_t counters_lock = PTHREAD_MUTEX_INITIALIZER;

static Counter *map_counters(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", directory, getpid());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return private_counters;
    void *map = MAP_FAILED;
    if (!ftruncate(file, sizeof private_counters))
        map = mmap(NULL, sizeof private_counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return map == MAP_FAILED ? private_counters : map;
}

/* A function keeps its slot for the life of the process, whichever file is mapped. */
static void count_call(const char *function, int *slot) {
    static const char *names[COUNTERS];
    pthread_mutex_lock(&counters_lock);
    if (!counters) {
        const char *directory = getenv("FAKENVML_COUNTS");
        counters = directory && *directory ? map_counters(directory) : private_counters;
    }
    if (*slot < 0 && counters_used < COUNTERS) {
        *slot = counters_used++;
        names[*slot] = function;
    }
    if (*slot >= 0) {
        Counter *counter = &counters[*slot];
        if (!*counter->name) snprintf(counter->name, NAME_SIZE, "%s", names[*slot]);
        counter->calls++;
    }
    pthread_mutex_unlock(&counters_lock);
}

/* --- the session --------------------------------------------------------------------------------- */

static pthread_mutex_t session_lock = PTHREAD_MUTEX_INITIALIZER;
static int references;
static unsigned generation;   /* of handles; one per initialisation */
static nvmlReturn session_error; /* the driver went away under this session: nothing but a new one helps */

static nvmlReturn driver_gone(void) {
    const Entry *gone = state_find("driver.gone");
    return gone && gone->function ? (nvmlReturn)function_at(gone->function, state_now()) : SUCCESS;
}

nvmlReturn check_session(void) {
    nvmlReturn gone = driver_gone();
    pthread_mutex_lock(&session_lock);
    if (gone && references) session_error = gone;
    nvmlReturn result = references ? session_error : UNINITIALIZED;
    pthread_mutex_unlock(&session_lock);
    return result;
}

/* Points this process at another state file, as if freshly started: for tests that load the library themselves. */
NVML_API void fakenvml_use(const char *state, const char *counts);
NVML_API void fakenvml_use(const char *state, const char *counts) {
    state_use(state);
    pthread_mutex_lock(&session_lock);
    references = 0;
    session_error = SUCCESS;
    generation++;
    pthread_mutex_unlock(&session_lock);
    pthread_mutex_lock(&counters_lock);
    counters = counts && *counts ? map_counters(counts) : private_counters;
    pthread_mutex_unlock(&counters_lock);
}

/* --- injected faults ------------------------------------------------------------------------------ */

static double fault_of(const char *prefix, const char *function, const char *what) {
    char key[256];
    const char *names[] = {function, "*"};
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%scall.%s.%s", prefix, names[i], what);
        const Entry *entry = state_find(key);
        if (entry && entry->error) return entry->error;
        if (entry && entry->function) return function_at(entry->function, state_now());
    }
    return 0;
}

static void pause_for(double seconds) {
    struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&time, NULL);
}

/* Ends early when the state file no longer asks for it, so that a test need not wait it out. */
static void hang(const char *prefix, const char *function) {
    double start = monotonic();
    while (monotonic() - start < fault_of(prefix, function, "hang_s")) {
        pause_for(0.02);
        state_refresh();
    }
}

static nvmlReturn obey_faults(const char *prefix, const char *function) {
    if (!state_has_call_faults()) return SUCCESS;
    if (fault_of(prefix, function, "missing")) return FUNCTION_NOT_FOUND;
    double latency_ms = fault_of(prefix, function, "latency_ms");
    if (latency_ms > 0) pause_for(latency_ms / 1000);
    hang(prefix, function);
    return (nvmlReturn)fault_of(prefix, function, "error");
}

/* --- entering ------------------------------------------------------------------------------------- */

nvmlReturn enter_library(const char *function, int *slot) {
    count_call(function, slot);
    state_refresh();
    return obey_faults("", function);
}

nvmlReturn enter(const char *function, int *slot) {
    nvmlReturn error = enter_library(function, slot);
    return error ? error : check_session();
}

nvmlReturn enter_device(const char *function, int *slot, nvmlDevice handle, Device *device) {
    nvmlReturn error = enter(function, slot);
    if (error) return error;
    if (!device_of(handle, device)) return INVALID_ARGUMENT;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "gpu.%d.", device->gpu);
    error = obey_faults(prefix, function);
    if (error) return error;
    double lost = device_number_or((Device){device->gpu, NO_MIG}, 0, "lost");
    return lost == 1 ? GPU_IS_LOST : (nvmlReturn)lost;
}

nvmlReturn enter_init(const char *function, int *slot) {
    nvmlReturn error = enter_library(function, slot);
    if (error) return error;
    if (!state_is_loaded()) return DRIVER_NOT_LOADED;
    const Entry *init = state_find("init");
    error = init && init->function ? (nvmlReturn)function_at(init->function, state_now()) : driver_gone();
    if (error) return error;
    pthread_mutex_lock(&session_lock);
    if (!references++) {
        session_error = SUCCESS;
        generation++;
    }
    pthread_mutex_unlock(&session_lock);
    return SUCCESS;
}

/* Succeeds while the driver is away too: the library only drops what it holds. */
nvmlReturn leave_driver(void) {
    pthread_mutex_lock(&session_lock);
    nvmlReturn result = references > 0 ? SUCCESS : UNINITIALIZED;
    if (references > 0) references--;
    pthread_mutex_unlock(&session_lock);
    return result;
}

/* --- handles -------------------------------------------------------------------------------------- */

enum { MAGIC = 0xFA4E };

nvmlDevice handle_of(Device device) {
    uintptr_t number = ((uintptr_t)MAGIC << 40) | ((uintptr_t)(generation & 0xFFFF) << 16)
                       | ((uintptr_t)device.gpu << 8) | (uintptr_t)(device.mig + 1);
    return (nvmlDevice)number;
}

bool device_of(nvmlDevice handle, Device *device) {
    uintptr_t number = (uintptr_t)handle;
    *device = (Device){(int)(number >> 8 & 0xFF), (int)(number & 0xFF) - 1};
    return number >> 40 == MAGIC && (number >> 16 & 0xFFFF) == (generation & 0xFFFF);
}

/* --- values ---------------------------------------------------------------------------------------- */

enum { KEY_SIZE = 256 };

static void device_key(char *into, Device device, const char *format, va_list arguments) {
    int n = device.mig == NO_MIG ? snprintf(into, KEY_SIZE, "gpu.%d.", device.gpu)
                                 : snprintf(into, KEY_SIZE, "gpu.%d.mig.%d.", device.gpu, device.mig);
    vsnprintf(into + n, KEY_SIZE - (size_t)n, format, arguments);
}

static void __attribute__((format(printf, 3, 4))) key_for(char *into, Device device, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    device_key(into, device, format, arguments);
    va_end(arguments);
}

nvmlReturn device_text(Device device, const char **text, const char *format, ...) {
    char key[KEY_SIZE];
    va_list arguments;
    va_start(arguments, format);
    device_key(key, device, format, arguments);
    va_end(arguments);
    const Entry *entry = state_find(key);
    if (!entry) return NOT_SUPPORTED;
    *text = entry->text;
    return entry->error;
}

nvmlReturn device_number(Device device, double *number, const char *format, ...) {
    char key[KEY_SIZE];
    va_list arguments;
    va_start(arguments, format);
    device_key(key, device, format, arguments);
    va_end(arguments);
    const Entry *entry = state_find(key);
    if (!entry) return NOT_SUPPORTED;
    if (entry->error || !entry->function) return entry->error ? entry->error : UNKNOWN;
    *number = function_at(entry->function, state_now());
    return SUCCESS;
}

nvmlReturn device_uint(Device device, const char *key, double scale, unsigned *into) {
    REQUIRE(into);
    double number;
    nvmlReturn error = device_number(device, &number, "%s", key);
    if (!error) *into = (unsigned)lround(number * scale);
    return error;
}

double device_number_or(Device device, double otherwise, const char *key) {
    double number;
    return device_number(device, &number, "%s", key) ? otherwise : number;
}

double device_integral(Device device, const char *name, double from, double to) {
    char key[KEY_SIZE];
    key_for(key, device, "%s", name);
    return state_integral(key, from, to);
}

double device_mean(Device device, const char *name, double seconds) {
    double now = state_now(), number;
    char key[KEY_SIZE];
    key_for(key, device, "%s", name);
    if (seconds <= 0) return state_value_at(key, now, &number) ? number : 0;
    return state_integral(key, now - seconds, now) / seconds;
}

const Entry *device_first(Device device, const char *name) {
    char key[KEY_SIZE];
    key_for(key, device, "%s", name);
    return state_first(key);
}

bool device_has(Device device, const char *name) { return device_first(device, name) != NULL; }

nvmlReturn copy_text(const char *text, char *buffer, unsigned size) {
    if (!buffer) return INVALID_ARGUMENT;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}

/* The driver's own clock: microseconds, but not those of any clock a caller could know. */
static const double clock_offset_s = 86400.25;

unsigned long long driver_time_us(double t) { return (unsigned long long)llround((t + clock_offset_s) * 1e6); }

double driver_seconds(unsigned long long time_us) { return (double)time_us / 1e6 - clock_offset_s; }
