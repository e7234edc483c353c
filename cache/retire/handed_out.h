/* SPDX-License-Identifier: MIT */
/* Addresses that the driver hands out: are they retired (retired.h)? */
#ifndef PDN_HANDED_OUT_H
#define PDN_HANDED_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/retire/turns.h"

/* What one call of the program's has got at retired addresses, until it has got another one. */
#define PDN_MOST_ASIDE 32
struct pdn_aside {
	bool are_reservations; /* of addresses; else memory by cuMemAlloc */
	bool is_last;	       /* no memory was left beside them */
	unsigned count;
	uint64_t addrs[PDN_MOST_ASIDE];
};

/*
 * Lock not held. The driver has answered with this address; 0: with an error. true: it is put
 * aside, and the driver is to be asked again. In the end they all are given back.
 */
bool pdn_retired_again(struct pdn_aside *aside, uint64_t addr, uint64_t size);

/* Lock not held. The program gets these addresses. One load until the first address is retired. */
void pdn_retired_handed_out(uint64_t begin, uint64_t end);
static inline void pdn_address_handed_out(uint64_t begin, uint64_t end)
{
	if (pdn_any_was_retired())
		pdn_retired_handed_out(begin, end);
}

#endif
