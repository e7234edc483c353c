/* SPDX-License-Identifier: MIT */
/*
 * Kept regions whose memory was freed in stream order, and on which objects are held that are to be
 * revoked: they wait until the driver hands the memory out again. Also those that were replaced
 * (growth.h) while objects on them are held and their memory lives: they wait for its end. Lock
 * held, but for the question whether there are any.
 */
#ifndef PDN_AWAITING_H
#define PDN_AWAITING_H

#include <stdbool.h>
#include <stdint.h>

bool pdn_awaits_reuse(void);
uint32_t pdn_first_awaiting(void); /* the others through ->newer */
void pdn_await_reuse(uint32_t number);
void pdn_stop_awaiting(uint32_t number); /* if it awaits it */
void pdn_awaiting_fork_child(void);

#endif
