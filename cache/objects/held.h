/* SPDX-License-Identifier: MIT */
/* Reports registrations that the program still holds when their memory has ended. */
#ifndef PDN_HELD_H
#define PDN_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/objects/object.h"

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

/* Lock not held. Is a line to be printed of registrations that stay on this region? */
bool pdn_held_line_is_due(const struct pindown_region *region);

#endif
