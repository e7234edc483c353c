/* SPDX-License-Identifier: MIT */
/*
 * The actions of calls that allocate addresses: they take turns with frees that retire an address,
 * and get none that is retired. Only actions.h includes this file.
 */
#ifndef HOOK_CUDA_ADDRESSES_H
#define HOOK_CUDA_ADDRESSES_H

#include "cache/retire/handed_out.h"
#include "cache/retire/retired.h"
#include "cache/retire/turns.h"
#include "hook/hook.h"

/* A real function, called with the words of its registers. */
typedef CUresult by_words(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

/* See pdn_allocation_begins(). */
static inline void begin_allocation(struct call *call)
{
	call->gated = pdn_allocation_begins();
}

/* A call that has returned, with all that it takes to make it once more. */
struct allocating {
	by_words *real;
	CUresult result;
	bool of_addresses;
	const CUdeviceptr *at;
	uint64_t length, words[5];
};

/*
 * A retired address is not let through (cache/retire/handed_out.h): the driver is asked for another
 * one, with the same arguments.
 */
static CUresult __attribute__((noinline, cold)) end_allocating_slow(struct allocating a, bool gated)
{
	struct pdn_aside aside = {.are_reservations = a.of_addresses};
	const uint64_t *w = a.words;

	while (pdn_retired_again(&aside, a.result == CUDA_SUCCESS && a.at ? *a.at : 0, a.length))
		a.result = a.real(w[0], w[1], w[2], w[3], w[4], 0);
	if (gated)
		pdn_allocation_ended();
	pdn_retired_give_back();
	return a.result;
}

/*
 * The driver was called with these words. All is in registers as long as nothing is retired. What
 * began before the first address of the process was retired has taken no turn, and may have got
 * just that one.
 */
static inline void end_allocating(struct call *call, const CUdeviceptr *at, uint64_t length,
				  uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	if (pdn_any_was_retired())
		call->result = end_allocating_slow(
			(struct allocating){
				.real = (by_words *)call->real,
				.result = call->result,
				.of_addresses = call->row == PDN_CALL_cuMemAddressReserve,
				.at = at,
				.length = length,
				.words = {a, b, c, d, e},
			},
			call->gated);
}

/* The program asks the driver to reserve addresses: these, if it names any. */
static inline void wants_addresses(struct call *call, uint64_t addr, uint64_t length)
{
	if (addr)
		pdn_retired_yield(addr, length);
	begin_allocation(call);
}

#endif
