/* SPDX-License-Identifier: MIT */
/* What the fuzzer of fuzz.c calls, and what it offers. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

struct target {
	const char *name;
	/* An input to begin with, for targets that need no file. May be NULL. */
	const char *first;
	void (*run)(const unsigned char *data, size_t size);
};

extern const struct target target_environment, target_elf, target_doctor, target_trace;

#endif
