/* SPDX-License-Identifier: MIT */
/* The pin itself: the call of the backend, and the room that it needs. */
#ifndef PDN_PIN_MEMORY_H
#define PDN_PIN_MEMORY_H

#include "cache/pin/attempt.h"
#include "cache/backend/backend.h"

/*
 * Lock not held. Pin the memory that the attempt has announced, where it takes evictions, with
 * another backend, or as a window. A pin that fails leaves the flight as it is, and says in
 * ->narrows whether one that reaches less far may work.
 */
int pdn_pin_memory(struct pdn_attempt *a, const struct pdn_backend *backend);

#endif
