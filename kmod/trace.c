// SPDX-License-Identifier: GPL-2.0 OR MIT
/* trace.c - defines the tracepoints that trace.h declares. */
#include <linux/device.h>
#include <linux/pci.h>

#include "internal.h"

#define CREATE_TRACE_POINTS
#include "trace.h"
