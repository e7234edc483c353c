/* SPDX-License-Identifier: MIT */
/* Noticing libraries that have patched the driver's code, or ours. */
#define _GNU_SOURCE
#include "hook/loader/patches.h"

#include <string.h>

#include "hook/cuda/entries.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"

#define LENGTH	     16 /* bytes of a function that are compared: the longest jump has 14 */
#define MAX_EXPECTED 64u
#define PATIENCE_NS  1000000000u /* for a thread that makes no call */

/*
 * A function of the driver that was handed out, with its code before the patch. Written by the
 * thread that asked; afterwards only `state` changes.
 */
struct expected {
	const void *function;
	uint64_t since;
	uint32_t call, thread;
	uint8_t code[LENGTH];
	uint32_t state;
};
enum { EMPTY, WAITING, DECIDED };

static struct expected expected[MAX_EXPECTED];
static uint32_t used;	 /* slots taken; above MAX_EXPECTED for a moment if too many ask */
static uint32_t waiting; /* in state WAITING */

static uint32_t this_thread(void)
{
	return (uint32_t)pdn_sys(SYS_gettid);
}

static uint64_t now(void)
{
	return pdn_sys_clock(CLOCK_MONOTONIC_COARSE);
}

bool pdn_patches_expected(void)
{
	/* Relaxed: the thread whose call is checked has stored it itself. */
	return __atomic_load_n(&waiting, __ATOMIC_RELAXED) != 0;
}

static bool finds_others(enum pdn_call call)
{
	return call == PDN_CALL_cuGetProcAddress || call == PDN_CALL_cuGetProcAddress_v2 ||
	       call == PDN_CALL_cuGetExportTable;
}

bool pdn_patches_allow(enum pdn_call call, const void *function, const char *file)
{
	struct expected *e;
	uint32_t place;

	if (finds_others(call) || !pdn_in_libcuda(function))
		return false;
	place = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
	if (place >= MAX_EXPECTED) {
		__atomic_store_n(&used, MAX_EXPECTED, __ATOMIC_RELAXED);
		return false; /* it gets a wrapper, which it can patch too */
	}
	e = &expected[place];
	e->function = function;
	e->since = now();
	e->call = call;
	e->thread = this_thread();
	memcpy(e->code, function, LENGTH);
	__atomic_fetch_add(&waiting, 1, __ATOMIC_RELAXED);
	/* Release pairs with the acquire in look_at(): the members above are written. */
	__atomic_store_n(&e->state, WAITING, __ATOMIC_RELEASE);
	pdn_straight_ask_again();
	pdn_log(PDN_LOG_DEBUG, "%s is given the driver's own %s", file, pdn_call_symbol(call));
	return true;
}

static void decide(struct expected *e)
{
	uint32_t state = WAITING;

	if (__atomic_compare_exchange_n(&e->state, &state, DECIDED, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		__atomic_fetch_sub(&waiting, 1, __ATOMIC_RELAXED);
}

/* A thread that makes calls has finished its patches; one that makes none gets PATIENCE_NS. */
static bool is_due(const struct expected *e, uint32_t calling_thread)
{
	return e->thread == calling_thread || now() - e->since > PATIENCE_NS;
}

static void look_at(struct expected *e, uint32_t calling_thread)
{
	if (__atomic_load_n(&e->state, __ATOMIC_ACQUIRE) != WAITING)
		return;
	if (memcmp(e->code, e->function, LENGTH) != 0) {
		decide(e);
	} else if (is_due(e, calling_thread)) {
		decide(e);
		pdn_distrust(
			"a library that seemed to patch code was given the driver's own %s; it has "
			"not patched it and may call it unseen",
			pdn_call_symbol(e->call));
	}
}

static void look_at_all(uint32_t calling_thread)
{
	for (uint32_t i = 0; pdn_patches_expected() && i < MAX_EXPECTED; i++)
		look_at(&expected[i], calling_thread);
}

/* ---- our own code ---------------------------------------------------------------------------- */

static const char *patched_entry(void)
{
	const char *whole = pdn_entries_begin;

	for (const char *e = whole; e < pdn_entries_end; e += PDN_ENTRY_SIZE)
		if (memcmp(e, whole, PDN_ENTRY_SAME) != 0)
			return e;
	return NULL;
}

static const char *symbol_at(const void *entry)
{
	unsigned index = (unsigned)((const char *)entry - pdn_entries_begin) / PDN_ENTRY_SIZE - 1;

	return pdn_call_symbol(index % PDN_CALLS);
}

static void look_at_ourselves(void)
{
	static bool told;
	const char *patched;

	/* Relaxed: a second message does no harm. */
	if (__atomic_load_n(&told, __ATOMIC_RELAXED))
		return;
	patched = patched_entry();
	if (!patched)
		return;
	__atomic_store_n(&told, true, __ATOMIC_RELAXED);
	pdn_distrust("another library has patched pindown's %s", symbol_at(patched));
}

void pdn_patches_look(void)
{
	look_at_all(0);
	look_at_ourselves();
}

void pdn_patches_look_at_call(void)
{
	look_at_all(this_thread());
}
