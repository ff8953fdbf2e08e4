/* process = PID BYTES SM_PCT [C|G|M|C+G] [gi=N] [ci=N] [mem=PCT] [enc=PCT] [dec=PCT]
 * BYTES and SM_PCT may be functions. */
#include "process.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROCESSES = 256, MAX_WORDS = 12 };
typedef struct {
    unsigned pid;
    Function *bytes, *sm; /* NULL bytes: the driver does not know */
    char type[8];
    int gpu_instance, compute_instance;
    unsigned memory_pct, encoder_pct, decoder_pct;
} Process;

/* Splits at blanks outside parentheses. */
static unsigned split(char *text, char **words) {
    unsigned count = 0;
    int depth = 0;
    bool in_word = false;
    for (char *c = text; *c; c++) {
        if (*c == '(') depth++;
        if (*c == ')') depth--;
        if ((*c == ' ' || *c == '\t') && !depth) {
            *c = 0;
            in_word = false;
        } else if (!in_word && count < MAX_WORDS) {
            words[count++] = c;
            in_word = true;
        }
    }
    return count;
}

static void parse_option(Process *process, const char *word) {
    static const char *const names[] = {"gi=", "ci=", "mem=", "enc=", "dec="};
    int *const instances[] = {&process->gpu_instance, &process->compute_instance};
    unsigned *const shares[] = {&process->memory_pct, &process->encoder_pct, &process->decoder_pct};
    for (int i = 0; i < 5; i++) {
        if (strncmp(word, names[i], strlen(names[i]))) continue;
        int value = atoi(word + strlen(names[i]));
        if (i < 2) *instances[i] = value;
        else *shares[i - 2] = (unsigned)value;
        return;
    }
    strncpy(process->type, word, sizeof process->type - 1);
}

static Process *parse(const char *line) {
    char *text = strdup(line), *words[MAX_WORDS];
    unsigned count = split(text, words);
    Process *process = calloc(1, sizeof *process);
    *process = (Process){.type = "C", .gpu_instance = NO_INSTANCE, .compute_instance = NO_INSTANCE};
    if (count > 0) process->pid = (unsigned)strtoul(words[0], NULL, 10);
    if (count > 1) process->bytes = function_parse(words[1]);
    if (count > 2) process->sm = function_parse(words[2]);
    for (unsigned i = 3; i < count; i++) parse_option(process, words[i]);
    free(text);
    return process;
}

/* Parsed once per line: lines are never freed, so their address is a key. */
static const Process *parsed(const Entry *entry) {
    static struct { const Entry *entry; Process *process; } cache[4096];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    unsigned slot = (unsigned)((uintptr_t)entry / sizeof *entry % 4096);
    if (cache[slot].entry != entry) {
        cache[slot].process = parse(entry->text);
        cache[slot].entry = entry;
    }
    const Process *process = cache[slot].process;
    pthread_mutex_unlock(&lock);
    return process;
}

static bool is_gone(unsigned pid) {
    const Entry *drop = state_find("drop_dead_processes");
    return drop && strcmp(drop->text, "0") && kill((int)pid, 0) && errno == ESRCH;
}

/* A MIG device has those of its parent's processes that run in its instance. */
static unsigned processes_of(Device device, const Process **into) {
    Device gpu = {device.gpu, NO_MIG};
    unsigned instance = (unsigned)device_number_or(device, 0, "gpu_instance"), count = 0;
    for (const Entry *line = device_first(gpu, "process"); line; line = line->next_same) {
        const Process *process = parsed(line);
        bool here = device.mig == NO_MIG || process->gpu_instance == (int)instance;
        if (here && !is_gone(process->pid) && count < MAX_PROCESSES) into[count++] = process;
    }
    return count;
}

static unsigned long long bytes_of(const Process *process) {
    return process->bytes ? (unsigned long long)llround(function_at(process->bytes, state_now())) : ~0ULL;
}

double process_memory(Device device) {
    const Process *all[MAX_PROCESSES];
    unsigned count = processes_of(device, all);
    double sum = 0;
    for (unsigned i = 0; i < count; i++)
        if (all[i]->bytes) sum += function_at(all[i]->bytes, state_now());
    return sum;
}

/* --- running processes: three generations of the structure, two kinds of process ------------------ */

static unsigned running(Device device, char type, const Process **into) {
    const Process *all[MAX_PROCESSES];
    unsigned count = processes_of(device, all), kept = 0;
    for (unsigned i = 0; i < count; i++)
        if (strchr(all[i]->type, type)) into[kept++] = all[i];
    return kept;
}

/* `short_process_layout`: a driver that fills the newer lists with the first version's structures. */
static nvmlReturn list(Device device, char type, unsigned *count, void *into, bool is_first_version) {
    REQUIRE(count);
    is_first_version = is_first_version || device_number_or(device, 0, "short_process_layout");
    const Process *found[MAX_PROCESSES];
    unsigned room = *count;
    *count = running(device, type, found);
    if (!*count) return SUCCESS;
    if (!into || room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        if (is_first_version)
            ((ProcessInfo_v1 *)into)[i] = (ProcessInfo_v1){found[i]->pid, bytes_of(found[i])};
        else
            ((ProcessInfo_v2 *)into)[i] =
                (ProcessInfo_v2){found[i]->pid, bytes_of(found[i]), (unsigned)found[i]->gpu_instance,
                                 (unsigned)found[i]->compute_instance};
    }
    return SUCCESS;
}

#define PROCESS_LIST(name, type, is_first_version)                                     \
    NVML_API nvmlReturn name(nvmlDevice handle, unsigned *count, void *into) {         \
        ENTER_DEVICE(handle);                                                          \
        return list(device, type, count, into, is_first_version);                      \
    }
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, 'C', true)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, 'C', false)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'C', false)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, 'G', true)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G', false)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G', false)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, 'M', true)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'M', false)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M', false)

/* --- what each process used ------------------------------------------------------------------------ */

/* One sample a second and process, each with a timestamp of its own, and none for a process that did nothing. */
static unsigned used_since(Device device, unsigned long long last_seen_us, ProcessUtilization_v1 *into) {
    const Process *all[MAX_PROCESSES];
    unsigned count = processes_of(device, all), kept = 0;
    for (unsigned i = 0; i < count; i++) {
        double phase = (double)(all[i]->pid % 10) / 10, at = floor(state_now() - phase) + phase;
        double sm = all[i]->sm ? function_at(all[i]->sm, at) : 0;
        unsigned long long time_us = driver_time_us(at);
        if (time_us <= last_seen_us || sm <= 0) continue;
        into[kept++] = (ProcessUtilization_v1){time_us, all[i]->pid, (unsigned)lround(sm), all[i]->memory_pct,
                                               all[i]->encoder_pct, all[i]->decoder_pct, 0, 0};
    }
    return kept;
}

/* On Blackwell the old call never has anything (`process_utilization = not_found`) or only zeros (`= 0`). */
NVML_API nvmlReturn nvmlDeviceGetProcessUtilization(nvmlDevice handle, ProcessSample *into, unsigned *count,
                                                    unsigned long long last_seen_us) {
    ENTER_DEVICE(handle);
    REQUIRE(count);
    double factor;
    nvmlReturn error = device_number(device, &factor, "process_utilization");
    if (error) return error;
    ProcessUtilization_v1 used[MAX_PROCESSES];
    unsigned found = used_since(device, last_seen_us, used), room = *count;
    *count = found;
    if (!found) return NOT_FOUND;
    if (!into || room < found) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++)
        into[i] = (ProcessSample){used[i].pid,    used[i].time_us, (unsigned)(used[i].sm * factor),
                                  used[i].memory, used[i].encoder, used[i].decoder};
    return SUCCESS;
}

NVML_API nvmlReturn nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice handle, ProcessesUtilization_v1 *info) {
    ENTER_DEVICE(handle);
    REQUIRE(info);
    if (info->version != VERSION_OF(ProcessesUtilization_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    double supported;
    nvmlReturn error = device_number(device, &supported, "processes_utilization_info");
    if (error) return error;
    ProcessUtilization_v1 used[MAX_PROCESSES];
    unsigned found = used_since(device, info->last_seen_us, used), room = info->count;
    info->count = found;
    if (!found) return NOT_FOUND;
    if (!info->samples || room < found) return INSUFFICIENT_SIZE;
    memcpy(info->samples, used, found * sizeof *used);
    return SUCCESS;
}
