/* SPDX-License-Identifier: MIT */
/*
 * libfabric's registration cache with its CUDA monitor, as of ofiwg/libfabric#8081: it does not see
 * frees. It compares buffer ids when an address is registered again, and only then removes the
 * entry of the freed memory. A layer above that keeps a descriptor (open-mpi/ompi#11125) sends with
 * it until then.
 */
#include "stale.h"

static struct entry entries[STALE_ENTRIES];

static unsigned long long buffer_id_of(CUdeviceptr addr)
{
	unsigned long long id = 0;

	cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr);
	return id;
}

static bool find(const struct road *road, CUdeviceptr addr, size_t length, struct keys *keys)
{
	struct entry *entry = stale_find(entries, addr, length);

	if (entry && entry->buffer_id != buffer_id_of(addr)) {
		stale_remove(entry);
		entry = NULL;
	}
	if (!entry) {
		entry = stale_add(entries, road, addr, length);
		if (entry)
			entry->buffer_id = buffer_id_of(addr);
	}
	return stale_give(entry, keys);
}

static unsigned finish(void)
{
	return stale_remove_all(entries);
}

const struct middleware *stale_middleware(void)
{
	static const struct middleware this = {"libfabric", 1, true, false, find, NULL, finish};

	return &this;
}
