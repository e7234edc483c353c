/* SPDX-License-Identifier: MIT */
/* Device memory: extents of a memfd, and the processes that still hold them. See store.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bar.h"
#include "bits.h"
#include "core.h"
#include "sim.h"
#include "store_parts.h"

#define SPAN_FACTOR   8		    /* address space in the memfd for each byte of memory */
#define TOUCHED_LIMIT (64ull << 20) /* free pages that may stay in RAM */

static struct sim_store stores[MAX_DEVICES];
static struct sim_extent *spare;

struct sim_store *sim_store_of(int device)
{
	return &stores[device];
}

int sim_store_fd(const struct sim_store *store, uint64_t *inode)
{
	*inode = store->inode;
	return store->fd;
}

/* ---- pages ---------------------------------------------------------------------------------- */

static bool find_place(struct sim_store *store, uint64_t count, uint64_t *place)
{
	*place = store->last_page;
	if (store->last_pages == count && bits_all_clear(store->taken, *place, count))
		return true;
	store->lowest = bits_next(store->taken, store->lowest, store->pages, false);
	*place = bits_find_clear(store->taken, store->lowest, store->pages, count, 1);
	return *place < store->pages;
}

/* Returns RAM to the host. */
static void punch(struct sim_store *store, uint64_t page, uint64_t count)
{
	fallocate(store->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page << SIM_PAGE_SHIFT,
		  count << SIM_PAGE_SHIFT);
}

static void punch_free_pages(struct sim_store *store)
{
	uint64_t page = 0, end;

	while ((page = bits_next(store->touched, page, store->pages, true)) < store->pages) {
		end = bits_next(store->touched, page, store->pages, false);
		punch(store, page, end - page);
		bits_put(store->touched, page, end - page, false);
		page = end;
	}
	store->touched_bytes = 0;
}

static void give_back(struct sim_extent *extent)
{
	struct sim_store *store = extent->store;
	uint64_t page = extent->offset >> SIM_PAGE_SHIFT, count = extent->size >> SIM_PAGE_SHIFT;
	bool in_ram = extent->touched && !extent->bar_memory;

	if (extent->bar_memory)
		sim_bar_give(extent);
	bits_put(store->taken, page, count, false);
	store->used -= extent->size;
	store->last_page = page;
	store->last_pages = count;
	if (page < store->lowest)
		store->lowest = page;
	if (in_ram) {
		bits_put(store->touched, page, count, true);
		store->touched_bytes += extent->size;
		if (store->touched_bytes > TOUCHED_LIMIT)
			punch_free_pages(store);
	}
	sim_extent_delete(extent);
}

/* ---- who still holds it --------------------------------------------------------------------- */

/* Does any process have a read lock there? The store's own description has none. */
bool sim_store_locked(const struct sim_store *store, uint64_t offset, uint64_t size)
{
	struct flock probe = {.l_type = F_WRLCK,
			      .l_whence = SEEK_SET,
			      .l_start = (off_t)offset,
			      .l_len = (off_t)size};

	return fcntl(store->fd, F_OFD_GETLK, &probe) == 0 && probe.l_type != F_UNLCK;
}

void sim_store_free_closed(struct sim_store *store)
{
	struct sim_extent **at = &store->kept;

	while (*at) {
		struct sim_extent *extent = *at;

		if (sim_store_locked(store, extent->offset, extent->size)) {
			at = &extent->next;
			continue;
		}
		*at = extent->next;
		give_back(extent);
	}
}

/* ---- extents -------------------------------------------------------------------------------- */

struct sim_extent *sim_extent_new(void)
{
	struct sim_extent *extent = spare;

	if (extent)
		spare = extent->next;
	else
		extent = malloc(sizeof(*extent));
	if (extent)
		memset(extent, 0, sizeof(*extent));
	return extent;
}

struct sim_extent *sim_extent_take(int device, uint64_t size)
{
	struct sim_store *store = &stores[device];
	struct sim_extent *extent;
	uint64_t page;

	if (size > store->total)
		return NULL;
	if (store->kept && store->used + size > store->total)
		sim_store_free_closed(store);
	if (store->used + size > store->total || !find_place(store, size >> SIM_PAGE_SHIFT, &page))
		return NULL;
	extent = sim_extent_new();
	if (!extent)
		return NULL;
	extent->store = store;
	extent->offset = page << SIM_PAGE_SHIFT;
	extent->size = size;
	extent->users = 1;
	if (sim_bar_is_there() && !sim_bar_take(extent)) {
		sim_extent_delete(extent);
		return NULL;
	}
	bits_put(store->taken, page, size >> SIM_PAGE_SHIFT, true);
	if (store->touched_bytes) {
		uint64_t i;

		for (i = page; i < page + (size >> SIM_PAGE_SHIFT); i++) {
			if (!bits_get(store->touched, i))
				continue;
			bits_put(store->touched, i, 1, false);
			store->touched_bytes -= SIM_PAGE;
			extent->touched = true;
		}
	}
	store->used += size;
	return extent;
}

void sim_extent_delete(struct sim_extent *extent)
{
	extent->next = spare;
	spare = extent;
}

void sim_extent_hold(struct sim_extent *extent)
{
	extent->users++;
}

void sim_extent_drop(struct sim_extent *extent)
{
	struct sim_store *store = extent->store;

	if (--extent->users)
		return;
	if (store->device < 0) {
		sim_import_close(extent);
	} else if (extent->exported && sim_store_locked(store, extent->offset, extent->size)) {
		extent->next = store->kept;
		store->kept = extent;
	} else {
		give_back(extent);
	}
}

int sim_extent_device(const struct sim_extent *extent)
{
	return extent->store->device;
}

char *sim_extent_view(struct sim_extent *extent)
{
	extent->touched = true;
	return extent->store->device < 0 ? extent->store->view
					 : extent->store->view + extent->offset;
}

/*
 * Addresses that are mapped one after another may lie on extents that are not. An export shows them
 * in one piece, so the extents are brought together: the program can't see where its memory is,
 * unless it was exported before.
 */
bool sim_extents_join(struct sim_extent **extents, unsigned count, int device)
{
	struct sim_store *store = &stores[device];
	uint64_t size = 0, page, at;
	bool joined = true;
	unsigned i;

	for (i = 0; i < count; i++) {
		size += extents[i]->size;
		if (i && (extents[i]->store != extents[i - 1]->store ||
			  extents[i]->offset != extents[i - 1]->offset + extents[i - 1]->size))
			joined = false;
	}
	if (joined)
		return true;
	for (i = 0; i < count; i++)
		if (extents[i]->store != store || extents[i]->bar_memory ||
		    sim_store_locked(store, extents[i]->offset, extents[i]->size))
			return false;
	if (!find_place(store, size >> SIM_PAGE_SHIFT, &page))
		return false;
	bits_put(store->taken, page, size >> SIM_PAGE_SHIFT, true);
	at = page << SIM_PAGE_SHIFT;
	for (i = 0; i < count; i++) {
		struct sim_extent *extent = extents[i];

		if (extent->touched)
			memcpy(store->view + at, store->view + extent->offset, extent->size);
		bits_put(store->taken, extent->offset >> SIM_PAGE_SHIFT,
			 extent->size >> SIM_PAGE_SHIFT, false);
		punch(store, extent->offset >> SIM_PAGE_SHIFT, extent->size >> SIM_PAGE_SHIFT);
		extent->offset = at;
		at += extent->size;
	}
	store->lowest = 0;
	return true;
}

/*
 * The old pages get a record of their own, which keeps the exports. If there is no space for both,
 * the memory stays where it is.
 */
void sim_extent_move(struct sim_extent *extent)
{
	struct sim_extent *other, old;

	if (extent->store->device < 0 || extent->bar_memory)
		return;
	other = sim_extent_take(extent->store->device, extent->size);
	if (!other)
		return;
	if (extent->touched) {
		memcpy(other->store->view + other->offset, extent->store->view + extent->offset,
		       extent->size);
		other->touched = true;
	}
	old = *extent;
	extent->offset = other->offset;
	extent->touched = other->touched;
	extent->exported = false;
	other->offset = old.offset;
	other->touched = old.touched;
	other->exported = old.exported;
	sim_extent_drop(other);
}

/* ---- start and stop ------------------------------------------------------------------------- */

/* Mapped without the sanitizers' mmap, which would set up shadow memory for all of it. */
static void *map_store(int fd, uint64_t size)
{
	long address = syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_NORESERVE, (long)fd, 0L);

	return address == -1 ? NULL : (void *)address;
}

static bool start_store(int device)
{
	struct sim_store *store = &stores[device];
	uint64_t span = sim_options.memory * SPAN_FACTOR;
	struct stat stat;
	char name[32];

	snprintf(name, sizeof(name), "simulated-gpu-%d", device);
	store->device = device;
	store->total = sim_options.memory;
	store->pages = span >> SIM_PAGE_SHIFT;
	store->taken = calloc(store->pages / 64 + 1, 8);
	store->touched = calloc(store->pages / 64 + 1, 8);
	store->fd = memfd_create(name, MFD_CLOEXEC);
	if (!store->taken || !store->touched || store->fd < 0 || ftruncate(store->fd, span) ||
	    fstat(store->fd, &stat))
		return false;
	store->inode = stat.st_ino;
	store->view = map_store(store->fd, span);
	return store->view != NULL;
}

CUresult sim_stores_start(void)
{
	unsigned device;

	sim_bar_start();
	for (device = 0; device < sim_options.devices; device++) {
		if (start_store(device))
			continue;
		sim_complain("simulated libcuda: no memory for device %u: %s", device,
			     strerror(errno));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

void sim_store_info(int device, uint64_t *free_bytes, uint64_t *total)
{
	sim_store_free_closed(&stores[device]);
	*free_bytes = sim_bar_is_there() ? sim_bar_free_bytes()
					 : stores[device].total - stores[device].used;
	*total = stores[device].total;
}

/* ---- questions of tests --------------------------------------------------------------------- */

struct sim_store *sim_store_known(int device)
{
	return device >= 0 && device < MAX_DEVICES && stores[device].view ? &stores[device] : NULL;
}

SIM_API uint64_t sim_used_bytes(int device)
{
	uint64_t used = 0;

	sim_lock();
	if (sim_store_known(device)) {
		sim_store_free_closed(&stores[device]);
		used = stores[device].used;
	}
	sim_unlock();
	return used;
}

SIM_API uint64_t sim_kept_bytes(int device)
{
	struct sim_extent *extent;
	uint64_t kept = 0;

	sim_lock();
	if (sim_store_known(device)) {
		sim_store_free_closed(&stores[device]);
		for (extent = stores[device].kept; extent; extent = extent->next)
			kept += extent->size;
	}
	sim_unlock();
	return kept;
}
