/* SPDX-License-Identifier: MIT */
/*
 * The types of the C API alone: a pointer to each function, so that a description of this object
 * has what a program was built with, and nothing of the library's inside (check-releases).
 */
#include <pindown_dl.h>

#define POINTER(name) __typeof__(pindown_##name) *abi_##name;
PINDOWN_DL_FUNCTIONS(POINTER)
