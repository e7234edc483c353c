/* SPDX-License-Identifier: MIT */
/* Answering pindown.ko when it asks this process to give BAR space back. */
#ifndef PDN_KMOD_RECLAIM_H
#define PDN_KMOD_RECLAIM_H

#include <stdint.h>

#include "cache/base/visible.h"

struct pindown_state;

/*
 * Called after each pin: the first call starts a thread, which sleeps in poll() until the kernel
 * asks. If it can't be started, idle regions stay pinned.
 */
void pdn_kmod_answer_wishes(int fd, uint64_t identity, const struct pindown_state *state);

/* A device's GPU, as the kernel names it in what it asks for. */
void pdn_kmod_note_gpu(int device, const uint8_t uuid[16]);

/* How long it sleeps at most. Tests have other values. */
extern PDN_HIDDEN uint64_t pdn_wish_look_ns;

#endif
