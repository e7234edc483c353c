/* SPDX-License-Identifier: MIT */
/* Live handles, in a hash table with linear probing. */
#include <stdint.h>
#include <stdlib.h>

#include "handles.h"

struct slot {
	void *handle;
	enum sim_type type;
};

static struct slot *slots;
static unsigned long size, used;

static unsigned long hash(const void *handle)
{
	return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 20;
}

static struct slot *find(const void *handle)
{
	unsigned long i;

	if (!size || !handle)
		return NULL;
	for (i = hash(handle) & (size - 1); slots[i].handle; i = (i + 1) & (size - 1))
		if (slots[i].handle == handle)
			return &slots[i];
	return NULL;
}

static void insert(struct slot slot)
{
	unsigned long i = hash(slot.handle) & (size - 1);

	while (slots[i].handle)
		i = (i + 1) & (size - 1);
	slots[i] = slot;
}

static int grow(void)
{
	struct slot *old = slots;
	unsigned long old_size = size, i;
	struct slot *bigger = calloc(size ? size * 2 : 256, sizeof(*bigger));

	if (!bigger)
		return -1;
	slots = bigger;
	size = size ? size * 2 : 256;
	for (i = 0; i < old_size; i++)
		if (old[i].handle)
			insert(old[i]);
	free(old);
	return 0;
}

void *sim_handle_new(enum sim_type type, unsigned long bytes)
{
	struct slot slot = {.type = type};

	if ((used + 1) * 2 > size && grow())
		return NULL;
	slot.handle = calloc(1, bytes);
	if (!slot.handle)
		return NULL;
	insert(slot);
	used++;
	return slot.handle;
}

/* Later entries of the run move up, so that no probe ends too early. */
void sim_handle_end(void *handle)
{
	struct slot *slot = find(handle);
	unsigned long hole, i;

	if (!slot)
		return;
	hole = slot - slots;
	for (i = (hole + 1) & (size - 1); slots[i].handle; i = (i + 1) & (size - 1)) {
		unsigned long home = hash(slots[i].handle) & (size - 1);

		if (((i - home) & (size - 1)) < ((i - hole) & (size - 1)))
			continue;
		slots[hole] = slots[i];
		hole = i;
	}
	slots[hole].handle = NULL;
	used--;
}

void sim_handle_delete(void *handle)
{
	sim_handle_end(handle);
	free(handle);
}

void *sim_handle(const void *handle, enum sim_type type)
{
	struct slot *slot = find(handle);

	return slot && slot->type == type ? slot->handle : NULL;
}

void *sim_handle_next(enum sim_type type, unsigned long *position)
{
	while (*position < size) {
		struct slot *slot = &slots[(*position)++];

		if (slot->handle && slot->type == type)
			return slot->handle;
	}
	return NULL;
}
