/* SPDX-License-Identifier: MIT */
/*
 * The driver's memory in the model, and fast versions of the driver's functions that describe it.
 */
#define _GNU_SOURCE
#include <string.h>

#include "model.h"

struct memory memory[PLACES];
static uint64_t last_id;

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, NOT_SUPPORTED = 801 };

void memory_reset(void)
{
	memset(memory, 0, sizeof(memory));
	last_id = 0;
}

uint64_t memory_new_id(void)
{
	return ++last_id;
}

uint64_t place_size(unsigned place)
{
	if (place < SMALL)
		return KIB(24);
	return place >= SMALL + MEDIUM && place < FIRST_MAPPING ? MIB(256) : MIB(2);
}

/* Small ones begin in the middle of a page, the others at 2 MiB as with the driver. */
uint64_t place_base(unsigned place)
{
	if (place < SMALL)
		return MODEL_BASE + KIB(28) + place * KIB(24);
	if (place < SMALL + MEDIUM)
		return MODEL_BASE + MIB(16) + (place - SMALL) * MIB(2);
	if (place < FIRST_MAPPING)
		return MODEL_BASE + GIB(1) + (place - SMALL - MEDIUM) * MIB(256);
	return MODEL_BASE + GIB(4) - MIB(6) + (place - FIRST_MAPPING) * MIB(2);
}

unsigned place_of(uint64_t addr)
{
	unsigned place = PLACES - 1;

	while (place > 0 && place_base(place) > addr)
		place--;
	return place;
}

struct memory *memory_at(uint64_t addr)
{
	static struct memory *last = memory;

	if (last->id && addr >= last->base && addr < last->end)
		return last;
	for (unsigned i = 0; i < PLACES; i++)
		if (memory[i].id && addr >= memory[i].base && addr < memory[i].end)
			return last = &memory[i];
	return NULL;
}

void *context_handle(unsigned context)
{
	return (void *)(uintptr_t)(0xc0 + context);
}

void *pool_handle(unsigned pool)
{
	return (void *)(uintptr_t)(0xb0 + pool);
}

int memory_device(const struct memory *m)
{
	switch (m->kind) {
	case POOL:
		return (int)m->owner;
	case LINEAR:
		return m->owner == CONTEXTS - 1;
	default:
		return 0;
	}
}

/* ---- the driver's functions ---- */

enum {
	ATTR_CONTEXT = 1,
	ATTR_MEMORY_TYPE = 2,
	ATTR_BUFFER_ID = 7,
	ATTR_IS_MANAGED = 8,
	ATTR_DEVICE_ORDINAL = 9,
	ATTR_RANGE_START_ADDR = 11,
	ATTR_RANGE_SIZE = 12,
	ATTR_MAPPING_BASE_ADDR = 19,
	ATTR_MEMPOOL_HANDLE = 17,
};

static int attribute(const struct memory *m, int attr, void *data)
{
	switch (attr) {
	case ATTR_CONTEXT:
		*(void **)data = m && (m->kind == LINEAR || m->kind >= MANAGED)
					 ? context_handle(m->owner)
					 : NULL;
		return SUCCESS;
	case ATTR_MEMORY_TYPE:
		*(unsigned *)data = !m ? 0 : m->kind == HOST ? 1 : 2;
		return SUCCESS;
	case ATTR_BUFFER_ID:
		*(uint64_t *)data = m ? m->id : 0;
		return SUCCESS;
	case ATTR_IS_MANAGED:
		*(unsigned *)data = m && m->kind == MANAGED;
		return SUCCESS;
	case ATTR_DEVICE_ORDINAL:
		*(int *)data = m ? memory_device(m) : -2;
		return SUCCESS;
	case ATTR_MAPPING_BASE_ADDR: /* a pool allocates from pieces of 2 MiB */
		*(uint64_t *)data = m ? m->base & -MIB(2) : 0;
		return SUCCESS;
	case ATTR_RANGE_START_ADDR: /* of mapped memory: its reservation, one for all */
		*(uint64_t *)data = !m			? 0
				    : m->kind == MAPPED ? place_base(FIRST_MAPPING)
							: m->base;
		return SUCCESS;
	case ATTR_RANGE_SIZE:
		*(uint64_t *)data = !m			? 0
				    : m->kind == MAPPED ? MAPPINGS * MIB(2)
							: m->end - m->base;
		return SUCCESS;
	case ATTR_MEMPOOL_HANDLE:
		*(void **)data = m && m->kind == POOL ? pool_handle(m->owner) : NULL;
		return SUCCESS;
	}
	return INVALID_VALUE;
}

static int get_attribute(void *data, int attr, uint64_t addr)
{
	const struct memory *m = memory_at(addr);

	return m ? attribute(m, attr, data) : INVALID_VALUE;
}

static int get_attributes(unsigned n, int *attrs, void **data, uint64_t addr)
{
	const struct memory *m = memory_at(addr);
	int result = SUCCESS;

	for (unsigned i = 0; i < n && result == SUCCESS; i++)
		result = attribute(m, attrs[i], data[i]);
	return result;
}

static int address_range(uint64_t *base, size_t *size, uint64_t addr)
{
	const struct memory *m = memory_at(addr);

	if (!m)
		return NOT_FOUND;
	*base = m->base;
	*size = m->end - m->base;
	return SUCCESS;
}

static int set_attribute(const void *value, int attr, uint64_t addr)
{
	const struct memory *m = memory_at(addr);

	(void)value, (void)attr;
	return !m ? INVALID_VALUE : m->kind == MAPPED ? NOT_SUPPORTED : SUCCESS;
}

bool memory_is_mapped(uint64_t base, uint64_t id)
{
	const struct memory *m = memory_at(base);

	return m && m->kind == MAPPED && m->base == base && m->id == id;
}

void *memory_symbol(const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} symbols[] = {
		{"cuPointerGetAttribute", (void *)get_attribute},
		{"cuPointerGetAttributes", (void *)get_attributes},
		{"cuMemGetAddressRange_v2", (void *)address_range},
		{"cuPointerSetAttribute", (void *)set_attribute},
	};

	for (unsigned i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (strcmp(name, symbols[i].name) == 0)
			return symbols[i].function;
	return NULL;
}
