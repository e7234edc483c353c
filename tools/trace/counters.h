/* SPDX-License-Identifier: MIT */
/* The counters of a trace that is being written, without its events. */
#ifndef TRACE_COUNTERS_H
#define TRACE_COUNTERS_H

#include <stdbool.h>

#include "tools/trace/file.h" /* struct counters */

/* False when the file can't be read or is no trace. */
bool trace_counters(const char *path, struct counters *counters);

#endif
