/* SPDX-License-Identifier: MIT */
/* Turns the functions of ownlibc.c on, wherever they are defined. */
#ifndef OWNLIBC_H
#define OWNLIBC_H

#include <stdbool.h>

#include "cache/pindown.h"

struct own_libc_pindown {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_flush) flush;
};
extern struct own_libc_pindown own_libc_pindown;

/*
 * From here on they use CUDA, and say so where pindown has called one. An alarm ends the program,
 * with the name of the function that hangs.
 */
bool own_libc_begin(const struct own_libc_pindown *functions);

void own_libc_end(void);

#endif
