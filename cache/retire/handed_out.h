/* SPDX-License-Identifier: MIT */
/* Addresses that the driver hands out: are they retired (retired.h)? */
#ifndef PDN_HANDED_OUT_H
#define PDN_HANDED_OUT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * An allocation's answers at retired addresses. They stay allocated until the driver has answered
 * with another address, so that it can't give the same ones again.
 */
#define PDN_MOST_ASIDE 64
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

/* Lock not held. The program gets these addresses: those that are retired have escaped. */
void pdn_retired_handed_out(uint64_t begin, uint64_t end);

#endif
