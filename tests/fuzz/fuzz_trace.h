/* SPDX-License-Identifier: MIT */
/* The fuzzer's entry, for replay.c. */
#ifndef FUZZ_TRACE_H
#define FUZZ_TRACE_H

#include <stddef.h>

/* libFuzzer calls this for each input; returns 0. */
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#endif
