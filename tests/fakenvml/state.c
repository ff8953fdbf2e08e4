#define _GNU_SOURCE
#include "state.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* --- functions of time ------------------------------------------------------------------------- */

typedef struct { double t, value; } Step;
struct Function {
    enum { CONSTANT, WAVE, RAMP, STEPS } kind;
    double origin;
    double a, b, c, d; /* CONSTANT a; WAVE period, duty 0..1, low, high; RAMP from, to, over */
    unsigned count;
    Step *steps;
};

static double steps_at(const Function *f, double t) {
    double value = f->steps[0].value;
    for (unsigned i = 1; i < f->count && f->steps[i].t <= t; i++) value = f->steps[i].value;
    return value;
}

double function_at(const Function *f, double t) {
    t -= f->origin;
    switch (f->kind) {
    case WAVE: return t - floor(t / f->a) * f->a < f->a * f->b ? f->d : f->c;
    case RAMP: return t <= 0 ? f->a : t >= f->c ? f->b : f->a + (f->b - f->a) * t / f->c;
    case STEPS: return steps_at(f, t);
    default: return f->a;
    }
}

/* An antiderivative: only differences of it mean anything. */
static double integral_to(const Function *f, double t) {
    t -= f->origin;
    switch (f->kind) {
    case WAVE: {
        double on = f->a * f->b, cycles = floor(t / f->a), rest = t - cycles * f->a;
        double whole = cycles * (on * f->d + (f->a - on) * f->c);
        return whole + (rest < on ? rest * f->d : on * f->d + (rest - on) * f->c);
    }
    case RAMP: {
        if (t <= 0) return f->a * t;
        double x = fmin(t, f->c), sloped = f->a * x + (f->c > 0 ? (f->b - f->a) * x * x / (2 * f->c) : 0);
        return sloped + (t > f->c ? f->b * (t - f->c) : 0);
    }
    case STEPS: {
        double sum = fmin(t, f->steps[0].t) * f->steps[0].value;
        for (unsigned i = 0; i < f->count && f->steps[i].t < t; i++) {
            double end = i + 1 < f->count ? fmin(f->steps[i + 1].t, t) : t;
            sum += (end - f->steps[i].t) * f->steps[i].value;
        }
        return sum;
    }
    default: return f->a * t;
    }
}

static bool parse_number(const char **text, double *number) {
    char *end;
    double value = strtod(*text, &end);
    if (end == *text) return false;
    static const struct { const char *name; double factor; } units[] = {
        {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}};
    const char *unit = end + strspn(end, " ");
    for (unsigned i = 0; i < 3; i++)
        if (!strncmp(unit, units[i].name, 3)) {
            value *= units[i].factor;
            end = (char *)unit + 3;
        }
    *text = end;
    *number = value;
    return true;
}

static const char *skip(const char *text, const char *separators) { return text + strspn(text, separators); }

static bool parse_steps(Function *f, const char **text) {
    for (*text = skip(*text, " "); **text && **text != ')'; *text = skip(*text, " ,")) {
        Step step;
        if (!parse_number(text, &step.t)) return false;
        *text = skip(*text, " ");
        if (**text != ':') return false;
        ++*text;
        if (!parse_number(text, &step.value)) return false;
        f->steps = realloc(f->steps, (f->count + 1) * sizeof(Step));
        f->steps[f->count++] = step;
    }
    return f->count > 0;
}

static bool parse_arguments(const char **text, unsigned count, double *into) {
    for (unsigned i = 0; i < count; i++) {
        *text = skip(*text, " ,");
        if (!parse_number(text, &into[i])) return false;
    }
    *text = skip(*text, " ");
    return true;
}

static bool parse_body(Function *f, const char **text) {
    double arguments[4] = {0};
    bool ok;
    if (!strncmp(*text, "wave(", 5)) {
        *text += 5;
        f->kind = WAVE;
        ok = parse_arguments(text, 4, arguments) && arguments[0] > 0;
        arguments[1] /= 100;
    } else if (!strncmp(*text, "ramp(", 5)) {
        *text += 5;
        f->kind = RAMP;
        ok = parse_arguments(text, 3, arguments);
    } else if (!strncmp(*text, "steps(", 6)) {
        *text += 6;
        f->kind = STEPS;
        ok = parse_steps(f, text);
    } else {
        return parse_number(text, &f->a);
    }
    f->a = arguments[0], f->b = arguments[1], f->c = arguments[2], f->d = arguments[3];
    return ok && *(*text)++ == ')';
}

/* NULL when the text is not a number or function: then it is a plain string. */
Function *function_parse(const char *text) {
    Function *f = calloc(1, sizeof *f);
    bool ok = parse_body(f, &text);
    text = skip(text, " ");
    if (ok && *text == '@') {
        ++text;
        ok = parse_number(&text, &f->origin);
    }
    if (ok && !*skip(text, " ")) return f;
    free(f->steps);
    free(f);
    return NULL;
}

/* --- one version of the file ------------------------------------------------------------------- */

enum { BUCKETS = 4096 }; /* well above the lines of 16 GPUs; a full table would loop for ever, see add() */
typedef struct State {
    struct State *older;
    double since; /* in force from here on */
    unsigned count;
    bool has_call_faults;
    double epoch, changed_at; /* on CLOCK_MONOTONIC; < 0 when the file does not say */
    double stopped_at;        /* the driver's time where its clock stands still; else < 0 */
    unsigned events;
    Entry **event;
    Entry *table[BUCKETS];
} State;

static const struct { const char *word; nvmlReturn code; } error_words[] = {
    {"not_supported", NOT_SUPPORTED}, {"no_permission", NO_PERMISSION}, {"not_found", NOT_FOUND},
    {"gpu_is_lost", GPU_IS_LOST}, {"invalid_argument", INVALID_ARGUMENT}, {"unknown", UNKNOWN}};

static nvmlReturn parse_error(const char *text) {
    unsigned code;
    if (sscanf(text, "error(%u)", &code) == 1) return code;
    for (unsigned i = 0; i < sizeof error_words / sizeof *error_words; i++)
        if (!strcmp(text, error_words[i].word)) return error_words[i].code;
    return SUCCESS;
}

static unsigned slot_of(const State *state, const char *key) {
    unsigned hash = 2166136261u;
    for (const char *c = key; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (hash %= BUCKETS; state->table[hash] && strcmp(state->table[hash]->key, key); hash = (hash + 1) % BUCKETS) {}
    return hash;
}

static void add(State *state, const char *key, const char *text) {
    if (state->count >= BUCKETS / 2) return;
    Entry *entry = calloc(1, sizeof *entry);
    entry->key = strdup(key);
    entry->text = strdup(text);
    entry->error = parse_error(text);
    entry->function = entry->error ? NULL : function_parse(text);
    Entry **slot = &state->table[slot_of(state, key)];
    if (!*slot) state->count++;
    while (*slot) slot = &(*slot)->next_same;
    *slot = entry;
    if (strstr(key, "call.")) state->has_call_faults = true;
    if (!strcmp(key, "epoch")) state->epoch = atof(text);
    if (!strcmp(key, "changed_at")) state->changed_at = atof(text);
    if (!strcmp(key, "now")) state->stopped_at = atof(text);
    if (!strcmp(key, "xid") || !strcmp(key, "event")) {
        state->event = realloc(state->event, (state->events + 1) * sizeof(Entry *));
        state->event[state->events++] = entry;
    }
}

static char *trim(char *text) {
    text += strspn(text, " \t");
    for (char *end = text + strlen(text); end > text && strchr(" \t\r\n", end[-1]);) *--end = 0;
    return text;
}

static State *read_state(FILE *file) {
    State *state = calloc(1, sizeof *state);
    state->epoch = state->changed_at = state->stopped_at = -1;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        char *equals = strchr(line, '=');
        if (*skip(line, " \t") == '#' || !equals) continue;
        *equals = 0;
        add(state, trim(line), trim(equals + 1));
    }
    free(line);
    return state;
}

/* --- the versions seen by this process --------------------------------------------------------- */

/* Versions are never freed: other threads may be reading one, and tests change the state a few times only. */
static State *_Atomic newest;
static pthread_mutex_t reload_lock = PTHREAD_MUTEX_INITIALIZER;
static char state_path[4096];
static struct stat seen;
static double epoch;
static _Atomic double last_now;
static _Thread_local double call_now;

double monotonic(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void state_use(const char *path) {
    pthread_mutex_lock(&reload_lock);
    snprintf(state_path, sizeof state_path, "%s", path ? path : "");
    memset(&seen, 0, sizeof seen);
    newest = NULL;
    last_now = 0;
    pthread_mutex_unlock(&reload_lock);
}

static void publish(State *state) {
    State *older = newest;
    if (!older) {
        epoch = state->epoch >= 0 ? state->epoch : monotonic();
        state->since = -1e18;
    } else {
        state->older = older;
        double changed = (state->changed_at >= 0 ? state->changed_at : monotonic()) - epoch;
        state->since = fmax(state->stopped_at >= 0 ? state->stopped_at : changed, last_now);
    }
    newest = state;
}

static void reload(void) {
    struct stat now;
    if (!*state_path || stat(state_path, &now)) return;
    bool same = now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_mtim.tv_sec == seen.st_mtim.tv_sec
                && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
    if (same) return;
    FILE *file = fopen(state_path, "re");
    if (!file) return;
    seen = now;
    publish(read_state(file));
    fclose(file);
}

void state_refresh(void) {
    pthread_mutex_lock(&reload_lock);
    const char *path = getenv("FAKENVML_STATE");
    if (!*state_path && path) snprintf(state_path, sizeof state_path, "%s", path);
    reload();
    const State *state = newest;
    call_now = state && state->stopped_at >= 0 ? state->stopped_at : monotonic() - epoch;
    last_now = call_now;
    pthread_mutex_unlock(&reload_lock);
}

double state_now(void) { return call_now; }

bool state_is_loaded(void) { return newest != NULL; }

bool state_has_call_faults(void) { return newest && newest->has_call_faults; }

static const Entry *first_in(const State *state, const char *key) { return state->table[slot_of(state, key)]; }

static const Entry *last_in(const State *state, const char *key) {
    const Entry *entry = first_in(state, key);
    while (entry && entry->next_same) entry = entry->next_same;
    return entry;
}

const Entry *state_first(const char *key) {
    const State *state = newest;
    return state ? first_in(state, key) : NULL;
}

const Entry *state_find(const char *key) {
    const State *state = newest;
    return state ? last_in(state, key) : NULL;
}

const Entry *state_event(unsigned ordinal) {
    const State *state = newest;
    return state && ordinal < state->events ? state->event[ordinal] : NULL;
}

bool state_value_at(const char *key, double t, double *value) {
    const State *state = newest;
    while (state && state->since > t && state->older) state = state->older;
    const Entry *entry = state ? last_in(state, key) : NULL;
    if (!entry || !entry->function) return false;
    *value = function_at(entry->function, t);
    return true;
}

double state_integral(const char *key, double from, double to) {
    double sum = 0;
    for (const State *state = newest; state && from < to; to = fmin(to, state->since), state = state->older) {
        double start = fmax(from, state->since);
        const Entry *entry = start < to ? last_in(state, key) : NULL;
        if (entry && entry->function) sum += integral_to(entry->function, to) - integral_to(entry->function, start);
    }
    return sum;
}
