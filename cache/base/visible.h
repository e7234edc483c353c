/* SPDX-License-Identifier: MIT */
/* Which symbols of the library are seen from where. */
#ifndef PDN_VISIBLE_H
#define PDN_VISIBLE_H

/* A function of pindown.h. */
#define PDN_EXPORT __attribute__((visibility("default")))

/* Data that a hit reads: with this in its declaration, its address need not be looked up. */
#define PDN_HIDDEN __attribute__((visibility("hidden")))

/* A function that few calls need: out of the way of the others. */
#define PDN_RARE __attribute__((noinline, cold))

/*
 * Data that is stored or read when the library is loaded, or when a process ends that never used
 * it: beside the data that the loader fills in, so that it takes no other page.
 */
#define PDN_AT_LOAD __attribute__((section(".data")))

/* Functions that run then: side by side. */
#define PDN_STARTS __attribute__((section(".text.startup")))

#endif
