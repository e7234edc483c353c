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

void pd_mapped(uint64_t addr, uint64_t length)
{
	uint64_t id = pd_buffer_id(addr);

	if (id)
		pd_record_replace(PD_KIND_MAPPING, addr, id, length);
}

/*
 * One call may unmap many, side by side. By now another thread may have mapped something new there:
 * that has an id which the driver knows, and stays.
 */
void pd_unmapped(uint64_t addr, uint64_t length)
{
	struct pd_record mapping;

	for (uint64_t at = addr; at - addr < length; at += mapping.b) {
		if (!pd_record_get(PD_KIND_MAPPING, at, 0, &mapping, 1) || !mapping.b)
			break;
		if (pd_buffer_id(at) != mapping.a)
			pd_record_remove_one(PD_KIND_MAPPING, at, mapping.a);
	}
}

bool pd_mapping_is_known(uint64_t base, uint64_t id)
{
	struct pd_record mapping;

	return pd_record_get(PD_KIND_MAPPING, base, 0, &mapping, 1) && mapping.a == id;
}
