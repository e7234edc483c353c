/* SPDX-License-Identifier: MIT */
/*
 * Finds the registrations that the program still holds on memory that ends, names them in the
 * trace, and reports them.
 */
#ifndef PDN_HELD_H
#define PDN_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/objects/object.h"

/*
 * Lock not held, for both. The calling thread has unlinked the region, and its objects are ENDING.
 * The consumers' `holders` run.
 *
 * Find out which of the objects were asked for memory that ends with the scope, and for memory that
 * does not: sets is_touched and outlives. The scope covers a part of the region.
 *
 * Name the program's registrations that hold them, if there is a trace. Returns the code that made
 * one of them, as a return address, if a line wants it; 0: unknown.
 */
void pdn_objects_ask_holders(uint32_t region, const struct pdn_scope *scope);
uint64_t pdn_objects_name_holders(uint32_t region, enum pindown_reason reason,
				  const struct pdn_scope *scope);

/* How many objects of each consumer are kept on a region. */
struct pdn_held_objects {
	uint32_t all;
	bool outlast; /* some don't end even where their address is retired */
	struct {
		char name[PDN_CONSUMER_NAME];
		uint32_t count;
	} of[PDN_CONSUMERS];
};

/* Lock held. One more object of this consumer is kept. */
void pdn_held_count(uint32_t consumer, struct pdn_held_objects *held);

/*
 * Lock not held; the calling thread has ended the region. Writes the counts to the trace, and
 * prints a line if PINDOWN_HELD asks for one. made_at: pdn_objects_name_holders().
 */
void pdn_held_report(const struct pindown_region *region, const struct pdn_held_objects *held,
		     uint64_t made_at);

#endif
