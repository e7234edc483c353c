/* SPDX-License-Identifier: MIT */
/* Device memory: extents of a memfd, and who still holds them. See store.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bits.h"
#include "core.h"
#include "sim.h"
#include "store.h"

#define SPAN_FACTOR   8		    /* place in the memfd for each byte of memory */
#define TOUCHED_LIMIT (64ull << 20) /* free pages that may stay in RAM */
#define MAX_DEVICES   16

struct export
{
	uint64_t id, size;
	struct export *next;
};

struct sim_store {
	int fd;
	int device;
	char *view;
	uint64_t inode;
	uint64_t total, used; /* bytes */
	uint64_t pages;	      /* in the span */
	uint64_t *taken;      /* a bit for each page of the span */
	uint64_t *touched;    /* pages that are free but in RAM */
	uint64_t touched_bytes;
	uint64_t last_page, last_pages; /* given back last: the next of that size goes there */
	uint64_t lowest;		/* no free page below */
	struct sim_extent *kept;	/* aside: without a user, but exported */
	struct export *exports;		/* those not known to be closed */
	uint64_t export_bytes, next_export, next_record;
};

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

/* Gives RAM back to the host. */
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

	bits_put(store->taken, page, count, false);
	store->used -= extent->size;
	store->last_page = page;
	store->last_pages = count;
	if (page < store->lowest)
		store->lowest = page;
	if (extent->touched) {
		bits_put(store->touched, page, count, true);
		store->touched_bytes += extent->size;
		if (store->touched_bytes > TOUCHED_LIMIT)
			punch_free_pages(store);
	}
	extent->next = spare;
	spare = extent;
}

/* ---- who still holds it --------------------------------------------------------------------- */

/* Whether somebody has a read lock there. The store's own description has none. */
static bool locked(const struct sim_store *store, uint64_t offset, uint64_t size)
{
	struct flock probe = {.l_type = F_WRLCK,
			      .l_whence = SEEK_SET,
			      .l_start = (off_t)offset,
			      .l_len = (off_t)size};

	return fcntl(store->fd, F_OFD_GETLK, &probe) == 0 && probe.l_type != F_UNLCK;
}

static void forget_closed_exports(struct sim_store *store)
{
	struct export **at = &store->exports;

	while (*at) {
		struct export *export = *at;

		if (locked(store, SIM_EXPORT_IDS + export->id, 1)) {
			at = &export->next;
			continue;
		}
		store->export_bytes -= export->size;
		*at = export->next;
		free(export);
	}
}

static void free_closed_memory(struct sim_store *store)
{
	struct sim_extent **at = &store->kept;

	while (*at) {
		struct sim_extent *extent = *at;

		if (locked(store, extent->offset, extent->size)) {
			at = &extent->next;
			continue;
		}
		*at = extent->next;
		give_back(extent);
	}
}

/* ---- extents -------------------------------------------------------------------------------- */

static struct sim_extent *new_extent(void)
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
		free_closed_memory(store);
	if (store->used + size > store->total || !find_place(store, size >> SIM_PAGE_SHIFT, &page))
		return NULL;
	extent = new_extent();
	if (!extent)
		return NULL;
	extent->store = store;
	extent->offset = page << SIM_PAGE_SHIFT;
	extent->size = size;
	extent->users = 1;
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

void sim_extent_hold(struct sim_extent *extent)
{
	extent->users++;
}

/* A store that was made for one imported extent goes with it. */
static void close_import(struct sim_extent *extent)
{
	struct sim_store *store = extent->store;

	while (store->exports) {
		struct export *export = store->exports;

		store->exports = export->next;
		free(export);
	}
	munmap(store->view, extent->size);
	close(store->fd);
	free(store);
	extent->next = spare;
	spare = extent;
}

void sim_extent_drop(struct sim_extent *extent)
{
	struct sim_store *store = extent->store;

	if (--extent->users)
		return;
	if (store->device < 0) {
		close_import(extent);
	} else if (extent->exported && locked(store, extent->offset, extent->size)) {
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
 * The descriptor that was handed to us may be shared with others, who may close it: a description
 * of our own is locked and mapped instead.
 */
struct sim_extent *sim_extent_import(int fd, uint64_t offset, uint64_t size, CUresult *why)
{
	struct sim_store *store = calloc(1, sizeof(*store));
	struct sim_extent *extent = new_extent();
	struct flock lock = {.l_type = F_RDLCK,
			     .l_whence = SEEK_SET,
			     .l_start = (off_t)offset,
			     .l_len = (off_t)size};
	char path[64];

	*why = CUDA_ERROR_OUT_OF_MEMORY;
	if (!store || !extent)
		goto no_memory;
	*why = CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	store->fd = open(path, O_RDWR | O_CLOEXEC);
	if (store->fd < 0)
		goto no_memory;
	*why = CUDA_ERROR_MAP_FAILED;
	fcntl(store->fd, F_OFD_SETLK, &lock);
	store->view = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, store->fd, offset);
	if (store->view == MAP_FAILED)
		goto no_map;
	store->device = -1;
	store->next_export = (uint64_t)getpid() << 32; /* apart from those of the owner */
	extent->store = store;
	extent->offset = offset;
	extent->size = size;
	extent->users = 1;
	return extent;
no_map:
	close(store->fd);
no_memory:
	free(store);
	if (extent) {
		extent->next = spare;
		spare = extent;
	}
	return NULL;
}

/*
 * Addresses that are mapped one behind the other may lie on extents that are not. An export shows
 * them in one piece, so they are brought together: the program can't see where its memory is,
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
		if (extents[i]->store != store ||
		    locked(store, extents[i]->offset, extents[i]->size))
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
 * The old pages are given to a record of their own, which takes the exports along. Where there is no
 * room for both, the memory stays where it is.
 */
void sim_extent_move(struct sim_extent *extent)
{
	struct sim_extent *other, old;

	if (extent->store->device < 0)
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

/* ---- exports -------------------------------------------------------------------------------- */

static bool set_lock(int fd, uint64_t offset, uint64_t size)
{
	struct flock lock = {.l_type = F_RDLCK,
			     .l_whence = SEEK_SET,
			     .l_start = (off_t)offset,
			     .l_len = (off_t)size};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

int sim_store_export(struct sim_extent *extent, uint64_t offset, uint64_t size, bool pins)
{
	struct sim_store *store = extent->store;
	struct export *export;
	char path[64];
	int fd;

	if (pins && sim_options.pin_bytes != UINT64_MAX) {
		forget_closed_exports(store);
		if (size > sim_options.pin_bytes ||
		    store->export_bytes > sim_options.pin_bytes - size)
			return -1;
	}
	export = malloc(sizeof(*export));
	if (!export)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", store->fd);
	fd = open(path, O_RDWR | (sim_options.export_cloexec ? O_CLOEXEC : 0));
	if (fd < 0)
		goto no_descriptor;
	export->id = store->next_export;
	export->size = size;
	if (!set_lock(fd, offset, size) ||
	    (pins && !set_lock(fd, SIM_EXPORT_IDS + export->id, 1)) ||
	    lseek(fd, offset, SEEK_SET) < 0)
		goto no_lock;
	extent->exported = true;
	extent->touched = true; /* its holder may write to it */
	if (!pins) {
		free(export);
		return fd;
	}
	if (++store->next_export % 256 == 0)
		forget_closed_exports(store); /* else the list would grow for ever */
	store->export_bytes += size;
	export->next = store->exports;
	store->exports = export;
	return fd;
no_lock:
	close(fd);
no_descriptor:
	free(export);
	return -2;
}

/* ---- records for other processes ------------------------------------------------------------ */

uint64_t sim_record_write(struct sim_store *store, struct sim_record *record)
{
	uint64_t at = SIM_RECORDS_AT + store->next_record * sizeof(*record);

	record->magic = SIM_RECORD_MAGIC;
	if (pwrite(store->fd, record, sizeof(*record), at) != sizeof(*record))
		return 0;
	store->next_record++;
	return at;
}

void sim_record_end(struct sim_store *store, uint64_t at)
{
	uint64_t gone = 0;

	if (pwrite(store->fd, &gone, sizeof(gone), at + offsetof(struct sim_record, id)) < 0)
		sim_complain("simulated libcuda: a record of shared memory could not be ended: %s",
			     strerror(errno));
}

bool sim_record_read(int fd, uint64_t at, struct sim_record *record)
{
	return pread(fd, record, sizeof(*record), at) == sizeof(*record) &&
	       record->magic == SIM_RECORD_MAGIC;
}

/* ---- start and stop ------------------------------------------------------------------------- */

/* Mapped past the sanitizers: they would set up shadow memory for all of it. */
static void *map_store(int fd, uint64_t size)
{
	long address = syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_NORESERVE, fd, 0);

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
	free_closed_memory(&stores[device]);
	*free_bytes = stores[device].total - stores[device].used;
	*total = stores[device].total;
}

/* ---- questions of tests --------------------------------------------------------------------- */

static bool known(int device)
{
	return device >= 0 && device < MAX_DEVICES && stores[device].view;
}

SIM_API uint64_t sim_used_bytes(int device)
{
	uint64_t used = 0;

	sim_lock();
	if (known(device)) {
		free_closed_memory(&stores[device]);
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
	if (known(device)) {
		free_closed_memory(&stores[device]);
		for (extent = stores[device].kept; extent; extent = extent->next)
			kept += extent->size;
	}
	sim_unlock();
	return kept;
}

SIM_API unsigned sim_open_exports(int device)
{
	struct export *export;
	unsigned count = 0;

	sim_lock();
	if (known(device)) {
		forget_closed_exports(&stores[device]);
		for (export = stores[device].exports; export; export = export->next)
			count++;
	}
	sim_unlock();
	return count;
}

SIM_API uint64_t sim_open_export_bytes(int device)
{
	uint64_t bytes = 0;

	sim_lock();
	if (known(device)) {
		forget_closed_exports(&stores[device]);
		bytes = stores[device].export_bytes;
	}
	sim_unlock();
	return bytes;
}

SIM_API int64_t sim_dmabuf_offset(int fd)
{
	return lseek(fd, 0, SEEK_CUR);
}
