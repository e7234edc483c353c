/* SPDX-License-Identifier: MIT */
/* The part of a toolkit's header that docs/examples/attach.c uses. */
#include "middle.h"

#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree  cuMemFree_v2
