/* The processes of a device, from its `process` lines. */
#ifndef FAKENVML_PROCESS_H
#define FAKENVML_PROCESS_H

#include "call.h"

/* Sum over the processes of the bytes they hold; an unknown amount counts as nothing. */
double process_memory(Device device);

#endif
