/* Event sets: each is given once what the state file has queued since its devices were registered. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

enum { EVENT_XID = 0x8, EVENTS_SUPPORTED = 0x2 | 0x8 | 0x4000 | 0x8000 };
struct EventSet {
    nvmlDevice session; /* any handle of the initialisation it belongs to */
    unsigned next;      /* ordinal in the state file */
    unsigned long long types[MAX_GPUS];
};

NVML_API nvmlReturn nvmlEventSetCreate(nvmlEventSet *set) {
    ENTER();
    REQUIRE(set);
    *set = calloc(1, sizeof **set);
    (*set)->session = handle_of((Device){0, NO_MIG});
    while (state_event((*set)->next)) (*set)->next++;
    return SUCCESS;
}

/* Leaks the set on purpose: a thread may still be waiting on it. */
NVML_API nvmlReturn nvmlEventSetFree(nvmlEventSet set) {
    ENTER();
    REQUIRE(set);
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetSupportedEventTypes(nvmlDevice handle, unsigned long long *types) {
    ENTER_DEVICE(handle);
    REQUIRE(types);
    *types = (unsigned long long)device_number_or(device, EVENTS_SUPPORTED, "event_types");
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceRegisterEvents(nvmlDevice handle, unsigned long long types, nvmlEventSet set) {
    ENTER_DEVICE(handle);
    REQUIRE(set && device.mig == NO_MIG);
    unsigned long long supported = (unsigned long long)device_number_or(device, EVENTS_SUPPORTED, "event_types");
    if (types & ~supported || !types) return NOT_SUPPORTED;
    set->types[device.gpu] |= types;
    return SUCCESS;
}

/* `xid = CODE gpu N` or `event = TYPE DATA gpu N` */
static bool parse_event(const Entry *entry, EventData *data, unsigned *gpu) {
    *data = (EventData){.type = EVENT_XID, .gpu_instance = ~0u, .compute_instance = ~0u};
    bool ok = !strcmp(entry->key, "xid") ? sscanf(entry->text, "%lli gpu %u", (long long *)&data->data, gpu) == 2
                                         : sscanf(entry->text, "%lli %lli gpu %u", (long long *)&data->type,
                                                  (long long *)&data->data, gpu) == 3;
    if (ok && *gpu < MAX_GPUS) data->device = handle_of((Device){(int)*gpu, NO_MIG});
    return ok && *gpu < MAX_GPUS;
}

static bool take_event(nvmlEventSet set, EventData *data) {
    const Entry *entry;
    while ((entry = state_event(set->next))) {
        unsigned gpu;
        set->next++;
        if (parse_event(entry, data, &gpu) && set->types[gpu] & data->type) return true;
    }
    return false;
}

/* A real driver sleeps until something happens; here somebody looks, more rarely where the looking would be measured. */
static double poll_s(void) {
    const Entry *period = state_find("event_poll_s");
    return period && period->function ? function_at(period->function, state_now()) : 0.02;
}

static nvmlReturn wait_for_event(nvmlEventSet set, EventData *data, unsigned timeout_ms) {
    REQUIRE(set && data);
    double start = monotonic();
    Device any;
    REQUIRE(device_of(set->session, &any));
    while (!take_event(set, data)) {
        nvmlReturn error = check_session();
        if (error) return error;
        double left = timeout_ms / 1e3 - (monotonic() - start);
        if (left <= 0) return TIMEOUT;
        double pause = fmin(left, poll_s());
        nanosleep(&(struct timespec){.tv_sec = (time_t)pause, .tv_nsec = (long)(fmod(pause, 1) * 1e9)}, NULL);
        state_refresh();
    }
    return SUCCESS;
}

NVML_API nvmlReturn nvmlEventSetWait_v2(nvmlEventSet set, EventData *data, unsigned timeout_ms) {
    ENTER();
    return wait_for_event(set, data, timeout_ms);
}

NVML_API nvmlReturn nvmlEventSetWait(nvmlEventSet set, EventData *data, unsigned timeout_ms) {
    ENTER();
    return wait_for_event(set, data, timeout_ms);
}
