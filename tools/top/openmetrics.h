/* SPDX-License-Identifier: MIT */
/* The processes' counters in the text format of OpenMetrics 1.0. */
#ifndef OPENMETRICS_H
#define OPENMETRICS_H

#include "tools/system/processes.h"

void print_openmetrics(const struct processes *all);

#endif
