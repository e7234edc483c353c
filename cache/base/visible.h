/* SPDX-License-Identifier: MIT */
/* Which symbols of the library are seen from where. */
#ifndef PD_VISIBLE_H
#define PD_VISIBLE_H

/* A function of pindown.h. */
#define PD_EXPORT __attribute__((visibility("default")))

/* Data that a hit reads: with this in its declaration, its address need not be looked up. */
#define PD_HIDDEN __attribute__((visibility("hidden")))

#endif
