/* SPDX-License-Identifier: MIT */
/*
 * Libraries that patch code: they write a jump over the first instructions of a function, and keep
 * those instructions to call the function itself.
 *
 * Such a library must reach the driver's own code, behind us: then a call goes from the program to
 * us, to the driver's patched function, to that library and to the driver, and both see every call.
 * It is known by how it asks (lookup.c), and gets the driver's own function on trust: if it has not
 * written there when its thread makes a call next, it may call past us, and every hit is checked
 * from then on.
 *
 * One that asks as everybody does finds our wrappers, whose first instructions can be moved like
 * the driver's (cuda/entries.S). It sees each call that comes through us; but since we don't know
 * what it does with those, every hit is checked then too.
 */
#ifndef PD_PATCHES_H
#define PD_PATCHES_H

#include <stdbool.h>

#include "hook/hook.h"

#pragma GCC visibility push(hidden)

/*
 * The driver's own function is about to be handed out to the library in this file. false: this is a
 * call by which others are looked up, or not the driver's, and is not to be had.
 */
bool pd_patches_allow(enum pd_call call, const void *function, const char *file);

/*
 * Has what was handed out been written to by now, and has nobody written to our own code? At a
 * look-up, and at a watched call while something is expected.
 */
void pd_patches_look(void);
void pd_patches_look_at_call(void);

/* Is there a function of which that is to be found out at the next call? */
bool pd_patches_expected(void);

#pragma GCC visibility pop

#endif
