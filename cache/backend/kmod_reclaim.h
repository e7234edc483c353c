/* SPDX-License-Identifier: MIT */
/* Answering pindown.ko when it asks this process to give BAR space back. */
#ifndef PD_KMOD_RECLAIM_H
#define PD_KMOD_RECLAIM_H

#include <stdint.h>

struct pindown_state;

/*
 * Begin to answer, if nobody does yet: a thread of ours sleeps in poll() until the kernel asks. Called
 * at each pin; without a thread to be had, the process keeps what it has.
 */
void pd_kmod_answer_wishes(int fd, uint64_t identity, const struct pindown_state *state);

/* In a forked child there is no such thread. */
void pd_kmod_reclaim_fork_child(void);

#endif
