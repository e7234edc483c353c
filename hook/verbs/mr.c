/* SPDX-License-Identifier: MIT */
/*
 * Allocating the ibv_mr and umems that programs get from us. All lie in one range of addresses, so
 * that a comparison tells them from libibverbs' own, and the range is never unmapped, so that a
 * second ibv_dereg_mr of one is recognized. Free ones are in a few lists, of which each thread
 * mostly uses its own. The head of a list is a number and a count of its changes, which makes
 * taking the first element safe (no ABA).
 */
#define _GNU_SOURCE
#include <errno.h>

#include "hook/hook.h"
#include "cache/base/thread/lock.h"
#include "cache/base/memory/address_space.h"
#include "cache/base/thread/thread.h"
#include "hook/verbs/verbs.h"

#define MAX_RECORDS (1u << 20)
#define MIN_RECORDS (1u << 12)
#define STEP	    512u /* whole pages, of up to 64 KiB */
#define LISTS	    8

_Static_assert(sizeof(struct pdn_mr) == 128, "two cache lines, so that neighbours share none");

struct pdn_mr_place pdn_mr_place;

static struct {
	uint64_t head; /* number of the first | changes << 32 */
} __attribute__((aligned(64))) lists[LISTS];

/* Acquire pairs with the release in reserve(): a thread that sees the size sees the begin. */
static bool is_reserved(void)
{
	return __atomic_load_n(&pdn_mr_place.size, __ATOMIC_ACQUIRE) != 0;
}

static struct pdn_mr *mr_of_number(uint32_t number)
{
	return (struct pdn_mr *)pdn_mr_place.begin + number;
}

static uint32_t number_of(const struct pdn_mr *mr)
{
	return (uint32_t)(mr - (struct pdn_mr *)pdn_mr_place.begin);
}

struct pdn_mr *pdn_mr_at(uint32_t number)
{
	/* Acquire pairs with the release in take_fresh(): the table is mapped up to there. */
	return number < __atomic_load_n(&pdn_mr_place.fresh, __ATOMIC_ACQUIRE)
		       ? mr_of_number(number)
		       : NULL;
}

static uint64_t *my_list(void)
{
	const struct pdn_thread *self = pdn_self();

	return &lists[self ? (uint32_t)self->tid % LISTS : 0].head;
}

/*
 * Release pairs with the acquires in pop(): the thread that takes the record sees `next`, and all
 * that was written to the record before. Its link is atomic because pop() may read it from a record
 * that another thread has taken meanwhile; the exchange in pop() then fails by the count of
 * changes.
 */
static void push(uint64_t *head, struct pdn_mr *mr)
{
	uint64_t old = __atomic_load_n(head, __ATOMIC_RELAXED), next;

	do {
		__atomic_store_n(&mr->next_or_by, (uint32_t)old, __ATOMIC_RELAXED);
		next = ((old >> 32) + 1) << 32 | number_of(mr);
	} while (!__atomic_compare_exchange_n(head, &old, next, true, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
}

static struct pdn_mr *pop(uint64_t *head)
{
	uint64_t old = __atomic_load_n(head, __ATOMIC_ACQUIRE), next;
	struct pdn_mr *first;

	do {
		if (!(uint32_t)old)
			return NULL;
		first = mr_of_number((uint32_t)old);
		next = ((old >> 32) + 1) << 32 |
		       (uint32_t)__atomic_load_n(&first->next_or_by, __ATOMIC_RELAXED);
	} while (!__atomic_compare_exchange_n(head, &old, next, true, __ATOMIC_ACQUIRE,
					      __ATOMIC_ACQUIRE));
	return first;
}

/* Reserves address space only; less of it under `ulimit -v`. */
static bool reserve(void)
{
	uint64_t share = pdn_address_space_share();

	for (uint32_t n = MAX_RECORDS; n >= MIN_RECORDS; n /= 4) {
		size_t bytes = (size_t)n * sizeof(struct pdn_mr);
		void *p;

		if (bytes > share && n > MIN_RECORDS)
			continue;
		p = pdn_map(bytes, PROT_NONE);
		if (!p)
			continue;
		pdn_advise(p, bytes, MADV_DONTDUMP);
		pdn_mr_place.capacity = n;
		pdn_mr_place.usable = 0;
		__atomic_store_n(&pdn_mr_place.fresh, 1, __ATOMIC_RELAXED);
		/* Release pairs with the acquires in is_reserved() and pdn_mr_is_ours(). */
		__atomic_store_n(&pdn_mr_place.begin, (uintptr_t)p, __ATOMIC_RELAXED);
		__atomic_store_n(&pdn_mr_place.size, bytes, __ATOMIC_RELEASE);
		return true;
	}
	return false;
}

/* Lock held. */
static struct pdn_mr *take_fresh(void)
{
	struct pdn_mr *mr;

	/* A child that was forked in the middle of it reserves other addresses. */
	if (!is_reserved() && !reserve())
		return NULL;
	if (pdn_mr_place.fresh >= pdn_mr_place.usable) {
		if (pdn_mr_place.usable == pdn_mr_place.capacity ||
		    !pdn_make_usable(mr_of_number(pdn_mr_place.usable), STEP * sizeof(*mr)))
			return NULL;
		pdn_mr_place.usable += STEP;
	}
	mr = mr_of_number(pdn_mr_place.fresh);
	/* Release pairs with the acquire in pdn_mr_at(). */
	__atomic_store_n(&pdn_mr_place.fresh, pdn_mr_place.fresh + 1, __ATOMIC_RELEASE);
	return mr;
}

static struct pdn_mr *take_anywhere(void)
{
	struct pdn_mr *mr;

	pdn_lock_one(PDN_LOCK_MRS);
	mr = take_fresh();
	pdn_unlock_one(PDN_LOCK_MRS);
	for (unsigned i = 0; !mr && i < LISTS && is_reserved(); i++)
		mr = pop(&lists[i].head);
	return mr;
}

struct pdn_mr *pdn_mr_new(enum pdn_mr_state state)
{
	struct pdn_mr *mr = is_reserved() ? pop(my_list()) : NULL;

	if (PDN_UNLIKELY(!mr))
		mr = take_anywhere();
	if (PDN_UNLIKELY(!mr)) {
		errno = ENOMEM;
		return NULL;
	}
	pdn_mr_set_object(mr, NULL);
	mr->by_dmabuf = false;
	/*
	 * Release of the state pairs with the acquire in is_of(), which then sees `real` as NULL.
	 */
	__atomic_store_n(&mr->real, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->gone, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->state, (uint16_t)state, __ATOMIC_RELEASE);
	return mr;
}

bool pdn_mr_take(struct pdn_mr *mr, uint16_t state)
{
	/*
	 * Acquire pairs with the store in pdn_umem_stick(), or for PDN_MR_GIVEN with the releases
	 * in pdn_mr_new(), and in pdn_verbs_deregister() behind an error.
	 */
	return __atomic_compare_exchange_n(&mr->state, &state, PDN_MR_FREE, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_ACQUIRE);
}

/* Members that a provider reads are zero in the next use of the record. */
void pdn_mr_free(struct pdn_mr *mr)
{
	/*
	 * Relaxed: is_as_asked() may read them of a record that is used again; its caller then
	 * finds the object revoked.
	 */
	for (unsigned i = 0; i < sizeof(mr->words) / sizeof(mr->words[0]); i++)
		__atomic_store_n(&mr->words[i], 0, __ATOMIC_RELAXED);
	/* Relaxed: pairs with nothing; push() publishes the rest. */
	__atomic_store_n(&mr->state, PDN_MR_FREE, __ATOMIC_RELAXED);
	push(my_list(), mr);
}
