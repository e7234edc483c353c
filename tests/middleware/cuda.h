/* SPDX-License-Identifier: MIT */
/* Of a toolkit's header, what docs/attach.c uses. */
#include "middle.h"

#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree  cuMemFree_v2
