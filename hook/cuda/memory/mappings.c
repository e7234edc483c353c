/* SPDX-License-Identifier: MIT */
/*
 * Knows which memory was made with cuMemMap. The driver would say so if it was asked for the
 * memory's allocation handle, but that question is not safe while another thread may unmap the
 * memory. So the calls are watched.
 *
 * A mapping is known by its first address and its buffer id, which no other mapping ever gets. So
 * the record of a mapping that has ended is never found, and the next mapping there replaces it.
 */
#include "hook/hook.h"
#include "hook/cuda/memory/records.h"

struct mapping {
	uint64_t base, id, length;
};
static PDN_TABLE(struct mapping) mappings;

void pdn_mapped(uint64_t addr, uint64_t length)
{
	struct mapping mapping = {.base = addr, .id = pdn_buffer_id(addr), .length = length};

	if (mapping.id)
		pdn_record_replace(&mappings, &mapping);
}

/*
 * One call may unmap many mappings, side by side. Another thread may have mapped new memory there
 * by now: the driver still knows the id of that mapping, so its record stays.
 */
void pdn_unmapped(uint64_t addr, uint64_t length)
{
	struct mapping mapping;

	for (uint64_t at = addr; at - addr < length; at += mapping.length) {
		if (!pdn_record_get(&mappings, at, 0, &mapping, 1) || !mapping.length)
			break;
		if (pdn_buffer_id(at) != mapping.id)
			pdn_record_remove_one(&mappings, at, mapping.id);
	}
}

bool pdn_mapping_is_known(uint64_t base, uint64_t id)
{
	struct mapping mapping;

	return pdn_record_get(&mappings, base, 0, &mapping, 1) && mapping.id == id;
}
