/* SPDX-License-Identifier: MIT */
/*
 * Libraries that patch code: they write a jump over the first instructions of a function, and keep
 * those instructions to call the function itself.
 *
 * Such a library must reach the driver's own code, behind us: then a call goes from the program to
 * us, to the driver's patched function, to that library and to the driver, and both see every call.
 * It is recognized by how it asks (lookup.c), and gets the driver's own function on trust: if it
 * has not patched that function when its thread next makes a call, it may call past us, and every
 * hit is checked from then on.
 *
 * A patching library that asks as others do finds our wrappers, whose first instructions can be
 * moved like the driver's (cuda/entries.S). It sees each call that comes through us; but since we
 * don't know what it does with the calls, every hit is checked then too.
 */
#ifndef PDN_PATCHES_H
#define PDN_PATCHES_H

#include <stdbool.h>

#include "hook/hook.h"

#pragma GCC visibility push(hidden)

/*
 * May the driver's own function be handed out to the library in this file? Then it is watched for
 * the patch. False: it is a call by which other functions are looked up, or not the driver's.
 */
bool pdn_patches_allow(enum pdn_call call, const void *function, const char *file);

/*
 * Check that the functions handed out have been patched, and that our own code has not. Called at a
 * look-up, and at a watched call while a patch is expected.
 */
void pdn_patches_look(void);
void pdn_patches_look_at_call(void);

/* Is a patch still expected, so that the next call must check? */
bool pdn_patches_expected(void);

#pragma GCC visibility pop

#endif
