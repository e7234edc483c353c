// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * GPU memory, and its mappings in the address spaces of processes. The memory is the PCI device's
 * BAR itself (or, on demand, ordinary memory, which needs no BAR): page n of GPU memory is always
 * seen through page n of the BAR; only the number of pages that may be seen at once is limited.
 */
#include <linux/bitmap.h>
#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "gpu.h"

/* The first address if the program does not ask for one. */
#define VA_BEGIN 0x700000000000ull
#define VA_END	 0x740000000000ull

/* ---- memory objects ---- */

static void poison(u32 page)
{
	u64 __iomem *at = gpu.bar + ((u64)page << SIM_PAGE_SHIFT);
	u32 i;

	for (i = 0; i < SIM_GPU_PAGE / sizeof(*at); i++)
		writeq(SIM_GPU_POISON, at + i);
}

/* Frees the pages; gpu.memory_lock held. */
static void give_pages(struct sim_memory *memory, u32 count)
{
	while (count--)
		__clear_bit(memory->pages[count], gpu.memory_used);
}

static void ram_free(struct sim_memory *memory, u32 count)
{
	while (count--)
		__free_pages(memory->ram[count], get_order(SIM_GPU_PAGE));
	kvfree(memory->ram);
	memory->ram = NULL;
}

static bool ram_alloc(struct sim_memory *memory)
{
	u32 i;

	memory->ram = kvcalloc(memory->count, sizeof(*memory->ram), GFP_KERNEL);
	for (i = 0; memory->ram && i < memory->count; i++) {
		memory->ram[i] = alloc_pages(GFP_KERNEL | __GFP_ZERO, get_order(SIM_GPU_PAGE));
		if (!memory->ram[i])
			ram_free(memory, i);
	}
	return memory->ram;
}

static void memory_release(struct kref *users)
{
	struct sim_memory *memory = container_of(users, struct sim_memory, users);
	u32 i;

	for (i = 0; !memory->ram && i < memory->count; i++)
		poison(memory->pages[i]);
	mutex_lock(&gpu.memory_lock);
	if (!memory->ram)
		give_pages(memory, memory->count);
	list_del(&memory->all);
	mutex_unlock(&gpu.memory_lock);
	sim_count(SIM_GPU_MEMORY_PAGES, -(long)memory->count);
	ram_free(memory, memory->ram ? memory->count : 0);
	kvfree(memory->pages);
	kfree(memory);
}

void sim_memory_drop(struct sim_memory *memory)
{
	kref_put(&memory->users, memory_release);
}

/* Reserves a free page; gpu.memory_lock held. Scattered: not the neighbour of the last one. */
static bool reserve_page(u32 *page, bool scattered)
{
	u32 from = 0, found;

	if (scattered) {
		gpu.scatter = (gpu.scatter + 7) % gpu.bar_pages;
		from = gpu.scatter;
	}
	found = find_next_zero_bit(gpu.memory_used, gpu.bar_pages, from);
	if (found >= gpu.bar_pages)
		found = find_first_zero_bit(gpu.memory_used, gpu.bar_pages);
	if (found >= gpu.bar_pages)
		return false;
	__set_bit(found, gpu.memory_used);
	*page = found;
	return true;
}

static bool reserve_pages(struct sim_memory *memory, bool scattered)
{
	unsigned long first;
	u32 i;

	if (!scattered) {
		first = bitmap_find_next_zero_area(gpu.memory_used, gpu.bar_pages, 0, memory->count,
						   0);
		if (first < gpu.bar_pages) {
			bitmap_set(gpu.memory_used, first, memory->count);
			for (i = 0; i < memory->count; i++)
				memory->pages[i] = first + i;
			return true;
		}
	}
	for (i = 0; i < memory->count; i++) {
		if (!reserve_page(&memory->pages[i], scattered)) {
			give_pages(memory, i);
			return false;
		}
	}
	return true;
}

struct sim_memory *sim_memory_alloc(struct sim_client *client, u64 size, u32 flags)
{
	struct sim_memory *memory;

	if (!size || !IS_ALIGNED(size, SIM_GPU_PAGE))
		return ERR_PTR(-EINVAL);
	if (size >> SIM_PAGE_SHIFT > gpu.bar_pages)
		return ERR_PTR(-ENOSPC);
	memory = kzalloc(sizeof(*memory), GFP_KERNEL);
	if (!memory)
		return ERR_PTR(-ENOMEM);
	memory->count = size >> SIM_PAGE_SHIFT;
	memory->size = size;
	memory->pages = kvcalloc(memory->count, sizeof(*memory->pages), GFP_KERNEL);
	if (!memory->pages) {
		kfree(memory);
		return ERR_PTR(-ENOMEM);
	}
	if (flags & SIM_GPU_COHERENT && !ram_alloc(memory)) {
		kvfree(memory->pages);
		kfree(memory);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&memory->users);
	mutex_lock(&gpu.memory_lock);
	if (!memory->ram && !reserve_pages(memory, flags & SIM_GPU_SCATTERED)) {
		mutex_unlock(&gpu.memory_lock);
		kvfree(memory->pages);
		kfree(memory);
		return ERR_PTR(-ENOSPC);
	}
	memory->id = ++gpu.last_memory;
	list_add(&memory->all, &gpu.memories);
	mutex_unlock(&gpu.memory_lock);
	list_add(&memory->of_owner, &client->memories);
	sim_count(SIM_GPU_MEMORY_PAGES, memory->count);
	return memory;
}

struct sim_memory *sim_memory_find(u64 id)
{
	struct sim_memory *memory, *found = NULL;

	mutex_lock(&gpu.memory_lock);
	list_for_each_entry(memory, &gpu.memories, all) {
		if (memory->id != id)
			continue;
		if (!memory->freed && kref_get_unless_zero(&memory->users))
			found = memory;
		break;
	}
	mutex_unlock(&gpu.memory_lock);
	return found;
}

phys_addr_t sim_memory_page(const struct sim_memory *memory, u64 offset)
{
	if (memory->ram)
		return page_to_phys(memory->ram[offset >> SIM_PAGE_SHIFT]);
	return gpu.bar_start + ((u64)memory->pages[offset >> SIM_PAGE_SHIFT] << SIM_PAGE_SHIFT);
}

/* ---- BAR space: each page once for each kind, however many pins there are of it ---- */

static u32 *bar_users(u32 page, bool apart)
{
	return &gpu.bar_used[apart ? gpu.bar_pages + page : page];
}

void sim_bar_give(struct sim_memory *memory, u64 offset, u64 length, bool apart)
{
	u32 i, first = offset >> SIM_PAGE_SHIFT;
	u32 count = ((offset + length - 1) >> SIM_PAGE_SHIFT) - first + 1;

	if (memory->ram)
		return;
	mutex_lock(&gpu.memory_lock);
	for (i = first; i < first + count; i++) {
		if (--*bar_users(memory->pages[i], apart))
			continue;
		gpu.bar_used_pages--;
		sim_count(SIM_GPU_BAR_PAGES, -1);
	}
	mutex_unlock(&gpu.memory_lock);
}

int sim_bar_take(struct sim_memory *memory, u64 offset, u64 length, bool apart)
{
	u32 i, first = offset >> SIM_PAGE_SHIFT, more = 0;
	u32 count = ((offset + length - 1) >> SIM_PAGE_SHIFT) - first + 1;
	u32 limit = sim_knob(SIM_GPU_BAR_LIMIT);
	int error = 0;

	if (memory->ram)
		return 0;
	mutex_lock(&gpu.memory_lock);
	for (i = first; i < first + count; i++)
		more += !*bar_users(memory->pages[i], apart);
	if (limit && gpu.bar_used_pages + more > limit) {
		error = -ENOMEM;
	} else {
		for (i = first; i < first + count; i++)
			++*bar_users(memory->pages[i], apart);
		gpu.bar_used_pages += more;
		sim_count(SIM_GPU_BAR_PAGES, more);
	}
	mutex_unlock(&gpu.memory_lock);
	return error;
}

/* ---- mappings ---- */

/* The mapping with the lowest address that ends after va; NULL: none. */
static struct sim_mapping *mapping_from(struct sim_client *client, u64 va)
{
	struct rb_node *node = client->mappings.rb_node;
	struct sim_mapping *found = NULL;

	while (node) {
		struct sim_mapping *mapping = rb_entry(node, struct sim_mapping, node);

		if (mapping->va + mapping->size > va) {
			found = mapping;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

static u64 free_va(struct sim_client *client, u64 size)
{
	u64 va = VA_BEGIN;

	while (va + size <= VA_END) {
		struct sim_mapping *next = mapping_from(client, va);

		if (!next || next->va >= va + size)
			return va;
		/* In steps of 2 MiB, as the real driver places large mappings. */
		va = ALIGN(next->va + next->size, SZ_2M);
	}
	return 0;
}

struct sim_mapping *sim_map(struct sim_client *client, struct sim_memory *memory, u64 offset,
			    u64 size, u64 va)
{
	struct rb_node **link = &client->mappings.rb_node, *parent = NULL;
	struct sim_mapping *mapping, *next;
	u64 end;

	if (!size || !IS_ALIGNED(va | size | offset, SIM_GPU_PAGE) ||
	    check_add_overflow(va, size, &end) || offset > memory->size ||
	    size > memory->size - offset)
		return ERR_PTR(-EINVAL);
	if (!va)
		va = free_va(client, size);
	if (!va)
		return ERR_PTR(-ENOSPC);
	next = mapping_from(client, va);
	if (next && next->va < va + size)
		return ERR_PTR(-EEXIST);
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return ERR_PTR(-ENOMEM);
	mapping->va = va;
	mapping->size = size;
	mapping->offset = offset;
	mapping->memory = memory;
	kref_get(&memory->users);
	INIT_LIST_HEAD(&mapping->pins);
	while (*link) {
		parent = *link;
		link = va < rb_entry(parent, struct sim_mapping, node)->va ? &parent->rb_left
									   : &parent->rb_right;
	}
	rb_link_node(&mapping->node, parent, link);
	rb_insert_color(&mapping->node, &client->mappings);
	return mapping;
}

static void mapping_end(struct sim_client *client, struct sim_mapping *mapping)
{
	rb_erase(&mapping->node, &client->mappings);
	sim_pins_end(mapping);
	sim_memory_drop(mapping->memory);
	kfree(mapping);
}

int sim_unmap(struct sim_client *client, u64 va, u64 size)
{
	struct sim_mapping *mapping = mapping_from(client, va);

	if (!mapping || mapping->va != va || mapping->size != size)
		return -ENOENT;
	mapping_end(client, mapping);
	return 0;
}

struct sim_mapping *sim_mapping_of(u64 p2p_token, u32 va_space, u64 va, u64 length)
{
	struct sim_client *client;
	struct sim_mapping *mapping;

	list_for_each_entry(client, &gpu.clients, all) {
		if (p2p_token ? client->p2p_token != p2p_token || client->va_space != va_space
			      : client->tgid != task_tgid(current))
			continue;
		mapping = mapping_from(client, va);
		if (mapping && mapping->va <= va && length <= mapping->va + mapping->size - va)
			return mapping;
	}
	return NULL;
}

/* The handle ends: the host loses its view at once, mappings end, the memory lasts while pinned. */
static void memory_end(struct sim_client *client, struct sim_memory *memory)
{
	struct sim_client *other;
	struct rb_node *node, *next;

	mutex_lock(&gpu.memory_lock);
	memory->freed = true;
	mutex_unlock(&gpu.memory_lock);
	if (gpu.inode_mapping)
		unmap_mapping_range(gpu.inode_mapping, memory->id << 28, memory->size, 1);
	list_for_each_entry(other, &gpu.clients, all) {
		for (node = rb_first(&other->mappings); node; node = next) {
			struct sim_mapping *mapping = rb_entry(node, struct sim_mapping, node);

			next = rb_next(node);
			if (mapping->memory == memory)
				mapping_end(other, mapping);
		}
	}
	list_del_init(&memory->of_owner);
	sim_memory_drop(memory);
}

int sim_memory_free(struct sim_client *client, u64 id)
{
	struct sim_memory *memory;

	list_for_each_entry(memory, &client->memories, of_owner) {
		if (memory->id == id) {
			memory_end(client, memory);
			return 0;
		}
	}
	return -ENOENT;
}

void sim_client_end(struct sim_client *client)
{
	struct sim_memory *memory, *next;
	struct rb_node *node;

	while ((node = rb_first(&client->mappings)))
		mapping_end(client, rb_entry(node, struct sim_mapping, node));
	list_for_each_entry_safe(memory, next, &client->memories, of_owner)
		memory_end(client, memory);
}
