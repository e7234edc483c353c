/* SPDX-License-Identifier: MIT */
/*
 * Device memory by descriptor: exported, imported, and described for other processes. See store.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core.h"
#include "sim.h"
#include "store_parts.h"

/* ---- exports -------------------------------------------------------------------------------- */

static void forget_closed_exports(struct sim_store *store)
{
	struct sim_export **at = &store->exports;

	while (*at) {
		struct sim_export *export = *at;

		if (sim_store_locked(store, SIM_EXPORT_IDS + export->id, 1)) {
			at = &export->next;
			continue;
		}
		store->export_bytes -= export->size;
		*at = export->next;
		free(export);
	}
}

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
	struct sim_export *export;
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
		forget_closed_exports(store); /* otherwise the list would grow for ever */
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

/* ---- imports ------------------------------------------------------------------------------- */

/* A store that was made for one imported extent ends with it. */
void sim_import_close(struct sim_extent *extent)
{
	struct sim_store *store = extent->store;

	while (store->exports) {
		struct sim_export *export = store->exports;

		store->exports = export->next;
		free(export);
	}
	munmap(store->view, extent->size);
	close(store->fd);
	free(store);
	sim_extent_delete(extent);
}

/*
 * The program's descriptor may be shared with processes that close it: a new description of the
 * file is locked and mapped instead.
 */
struct sim_extent *sim_extent_import(int fd, uint64_t offset, uint64_t size, CUresult *why)
{
	struct sim_store *store = calloc(1, sizeof(*store));
	struct sim_extent *extent = sim_extent_new();
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
	store->next_export = (uint64_t)getpid() << 32; /* different from those of the owner */
	extent->store = store;
	extent->offset = offset;
	extent->size = size;
	extent->users = 1;
	return extent;
no_map:
	close(store->fd);
no_memory:
	free(store);
	if (extent)
		sim_extent_delete(extent);
	return NULL;
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

/* ---- questions of tests --------------------------------------------------------------------- */

SIM_API unsigned sim_open_exports(int device)
{
	struct sim_export *export;
	struct sim_store *store;
	unsigned count = 0;

	sim_lock();
	store = sim_store_known(device);
	if (store) {
		forget_closed_exports(store);
		for (export = store->exports; export; export = export->next)
			count++;
	}
	sim_unlock();
	return count;
}

SIM_API uint64_t sim_open_export_bytes(int device)
{
	struct sim_store *store;
	uint64_t bytes = 0;

	sim_lock();
	store = sim_store_known(device);
	if (store) {
		forget_closed_exports(store);
		bytes = store->export_bytes;
	}
	sim_unlock();
	return bytes;
}

SIM_API int64_t sim_dmabuf_offset(int fd)
{
	return lseek(fd, 0, SEEK_CUR);
}
