/* SPDX-License-Identifier: MIT */
/*
 * Which memory was made with cuMemMap. The driver would tell by its allocation handle, but asking
 * for that is not safe while another thread may unmap the memory. So the calls are watched.
 *
 * A mapping is known by where it begins and by its buffer id, which no other ever gets: what is
 * remembered of one that has ended is found by nobody, and is replaced by the next one there.
 */
#include "hook/hook.h"
#include "hook/cuda/records.h"

struct mapping {
	uint64_t base, id, length;
};
static PD_TABLE(struct mapping) mappings;

void pd_mapped(uint64_t addr, uint64_t length)
{
	struct mapping mapping = {.base = addr, .id = pd_buffer_id(addr), .length = length};

	if (mapping.id)
		pd_record_replace(&mappings, &mapping);
}

/*
 * One call may unmap many, side by side. By now another thread may have mapped something new there:
 * that has an id which the driver knows, and stays.
 */
void pd_unmapped(uint64_t addr, uint64_t length)
{
	struct mapping mapping;

	for (uint64_t at = addr; at - addr < length; at += mapping.length) {
		if (!pd_record_get(&mappings, at, 0, &mapping, 1) || !mapping.length)
			break;
		if (pd_buffer_id(at) != mapping.id)
			pd_record_remove_one(&mappings, at, mapping.id);
	}
}

bool pd_mapping_is_known(uint64_t base, uint64_t id)
{
	struct mapping mapping;

	return pd_record_get(&mappings, base, 0, &mapping, 1) && mapping.id == id;
}
