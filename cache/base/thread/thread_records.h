/* SPDX-License-Identifier: MIT */
/*
 * For thread.c only: which records have owners. Records are taken by threads that begin, and given
 * back by or for threads that have ended. Without a lock; the order of the loads and stores is said
 * in thread_records.c.
 */
#ifndef PDN_THREAD_RECORDS_H
#define PDN_THREAD_RECORDS_H

#include <stdint.h>

#include "cache/base/thread/thread.h"

/* Relaxed: pairs with pdn_thread_record_take(). */
static inline __attribute__((always_inline)) uint32_t
pdn_thread_record_place(const struct pdn_thread *record)
{
	return __atomic_load_n(&record->place, __ATOMIC_RELAXED);
}

/*
 * A record that no thread owns; the caller's thread owns it from here on. NULL: there is no memory
 * for one.
 */
struct pdn_thread *pdn_thread_record_take(void);

/* By its owner, or for an owner that is gone: another thread may take the record. */
void pdn_thread_record_disown(const struct pdn_thread *record);

/* The thread puts up no guard any more, unless it calls pdn_thread_frees() again. */
void pdn_thread_record_frees_no_more(const struct pdn_thread *self);

/* In a forked child: no record has an owner but this thread's, if it has one (or NULL). */
void pdn_thread_records_fork_child(struct pdn_thread *self);

#endif
