/* The state file: `key = value` lines, re-read when it changes; values are functions of the driver's time. */
#ifndef FAKENVML_STATE_H
#define FAKENVML_STATE_H

#include <stdbool.h>

#include "abi.h"

typedef struct Function Function;
typedef struct Entry {
    const char *key;
    const char *text;
    nvmlReturn error;         /* the value is a word such as not_supported, or error(CODE) */
    Function *function;       /* NULL where the value is text */
    struct Entry *next_same;  /* the next line with the same key */
} Entry;

/* Follows a state file from now on, forgetting everything read before. */
void state_use(const char *path);
/* Re-reads the file if it changed, and fixes `now` for the rest of this call on this thread. */
void state_refresh(void);
/* Seconds since the driver's start, as of the last state_refresh() on this thread; `now = T` in the file stops them. */
double state_now(void);
/* The system's clock, for real waiting. */
double monotonic(void);
bool state_is_loaded(void);
/* Some line asks for a delay or an error of a call. */
bool state_has_call_faults(void);

/* The newest state: the last line with this key, or the first of a chain of lines; NULL when there is none. */
const Entry *state_find(const char *key);
const Entry *state_first(const char *key);
/* Lines `xid = …` and `event = …` in file order; NULL past the last one. */
const Entry *state_event(unsigned ordinal);

double function_at(const Function *function, double t);
Function *function_parse(const char *text);

/* Values over time know the states that were in force: what a caller has seen is never rewritten by a later change. */
bool state_value_at(const char *key, double t, double *value);
double state_integral(const char *key, double from, double to);

#endif
