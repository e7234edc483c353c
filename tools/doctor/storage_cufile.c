// SPDX-License-Identifier: MIT
/*
 * pindown doctor --try --storage: one attempt through cuFile (libcufile.so.0), as a program with
 * GPUDirect Storage makes it. Its statistics of level 3, since CUDA 13, tell which way the bytes
 * went. Declarations are those of the cuFile API reference.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/doctor/storage.h"

struct result {
	int error, cuda_error;
};

struct descriptor {
	int type;
	union {
		int fd;
		void *handle;
	};
	const void *operations;
};

enum { OPAQUE_FD = 1, CUDA_DRIVER_ERROR = 5011, LEVEL = 3, STATISTICS_GPUS = 16 };

struct per_gpu {
	char uuid[16];
	uint64_t read_bytes, read_bandwidth, read_utilization, read_us;
	uint64_t reads, peer_reads, nvfs_reads, posix_reads;
	uint64_t unaligned_reads, routed_reads, sparse, inlined, read_errors;
	uint64_t write_bytes, write_bandwidth, write_utilization, write_us;
	uint64_t writes, peer_writes, nvfs_writes, posix_writes;
	uint64_t unaligned_writes, routed_writes, write_errors;
	uint64_t maps, maps_ok, maps_failed, unmaps, registered_bytes;
};

struct statistics {
	uint64_t reads, read_errors, writes, write_errors, rest_of_level1[60];
	uint64_t level2[2][32];
	uint32_t gpus;
	struct per_gpu gpu[STATISTICS_GPUS];
	char later[65536]; /* newer libraries may write more */
};

static struct {
	struct result (*open)(void);
	struct result (*register_file)(void **, struct descriptor *);
	void (*deregister_file)(void *);
	struct result (*register_memory)(const void *, size_t, int);
	struct result (*deregister_memory)(const void *);
	ssize_t (*write)(void *, const void *, size_t, off_t, off_t);
	ssize_t (*read)(void *, void *, size_t, off_t, off_t);
	/* Since CUDA 13; NULL before. */
	struct result (*set_level)(int);
	struct result (*start)(void);
	struct result (*statistics)(struct statistics *);
} cufile;

static bool load(void)
{
	const struct {
		const char *name;
		void *function;
		bool is_optional;
	} wanted[] = {
		{"cuFileDriverOpen", &cufile.open, false},
		{"cuFileHandleRegister", &cufile.register_file, false},
		{"cuFileHandleDeregister", &cufile.deregister_file, false},
		{"cuFileBufRegister", &cufile.register_memory, false},
		{"cuFileBufDeregister", &cufile.deregister_memory, false},
		{"cuFileWrite", &cufile.write, false},
		{"cuFileRead", &cufile.read, false},
		{"cuFileSetStatsLevel", &cufile.set_level, true},
		{"cuFileStatsStart", &cufile.start, true},
		{"cuFileGetStatsL3", &cufile.statistics, true},
	};
	void *library;

	/* Or the library writes cufile.log into the current folder. */
	setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
	library = dlopen("libcufile.so.0", RTLD_NOW);
	for (unsigned i = 0; library && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *function = dlsym(library, wanted[i].name);

		if (!function && !wanted[i].is_optional)
			return false;
		*(void **)wanted[i].function = function;
	}
	return library != NULL;
}

static bool succeeds(struct result result, struct attempt *attempt)
{
	if (!result.error)
		return true;
	if (result.error == CUDA_DRIVER_ERROR && result.cuda_error)
		return attempt_failed(attempt, FROM_CUDA, result.cuda_error);
	return attempt_failed(attempt, FROM_CUFILE, result.error);
}

/* -1: see errno; less than that: an error of cuFile. */
static bool has_moved(ssize_t result, struct attempt *attempt)
{
	if (result == STORED_BYTES)
		return true;
	if (result < -1)
		return attempt_failed(attempt, FROM_CUFILE, (int)-result);
	return attempt_failed(attempt, FROM_SYSTEM, result < 0 ? errno : ENODATA);
}

static bool start_statistics(void)
{
	return cufile.set_level && cufile.start && cufile.statistics &&
	       cufile.set_level(LEVEL).error == 0 && cufile.start().error == 0;
}

/* What counters of all GPUs say; unknown unless they explain both transfers. */
static enum way way_of(const struct statistics *all)
{
	struct per_gpu sum = {.reads = 0};

	if (!all->reads || !all->writes || all->gpus > STATISTICS_GPUS)
		return WAY_UNKNOWN;
	for (unsigned i = 0; i < all->gpus; i++) {
		sum.peer_reads += all->gpu[i].peer_reads;
		sum.nvfs_reads += all->gpu[i].nvfs_reads;
		sum.posix_reads += all->gpu[i].posix_reads;
		sum.peer_writes += all->gpu[i].peer_writes;
		sum.nvfs_writes += all->gpu[i].nvfs_writes;
		sum.posix_writes += all->gpu[i].posix_writes;
	}
	if (sum.posix_reads || sum.posix_writes)
		return WAY_HOST;
	if (sum.nvfs_reads && sum.nvfs_writes)
		return WAY_NVIDIA_FS;
	if (sum.peer_reads && sum.peer_writes)
		return WAY_PEER;
	return WAY_UNKNOWN;
}

static enum way ask_way(void)
{
	struct statistics *all = allocate(sizeof(*all));
	enum way way = cufile.statistics(all).error ? WAY_UNKNOWN : way_of(all);

	release(all);
	return way;
}

static bool move(void *file, void *memory, off_t back, struct attempt *attempt)
{
	uint64_t begin;

	attempt->stage = STAGE_WRITE;
	begin = attempt_now_ns();
	if (!has_moved(cufile.write(file, memory, STORED_BYTES, 0, 0), attempt))
		return false;
	attempt->write_ns = attempt_now_ns() - begin;
	attempt->stage = STAGE_READ;
	begin = attempt_now_ns();
	if (!has_moved(cufile.read(file, memory, STORED_BYTES, 0, back), attempt))
		return false;
	attempt->read_ns = attempt_now_ns() - begin;
	return true;
}

static bool move_registered(void *file, uint64_t addr, uint64_t back, struct attempt *attempt)
{
	void *memory = (void *)(uintptr_t)addr;
	bool counts, moved;

	if (!succeeds(cufile.register_memory(memory, TRY_BYTES, 0), attempt))
		return false;
	counts = start_statistics();
	moved = move(file, memory, (off_t)(back - addr), attempt);
	if (moved && counts)
		attempt->way = ask_way();
	cufile.deregister_memory(memory);
	return moved;
}

/* cuFile refuses O_TMPFILE, and looks at the file's name when it is registered. */
static bool register_file(const char *folder, int fd, void **file, struct attempt *attempt)
{
	struct descriptor descriptor = {.type = OPAQUE_FD, .fd = fd};
	bool registered;

	attempt->stage = STAGE_REGISTER;
	registered = succeeds(cufile.register_file(file, &descriptor), attempt);
	storage_unlink(folder, attempt);
	return registered;
}

bool try_cufile(uint64_t addr, uint64_t back, const char *folder, struct attempt *attempt)
{
	bool moved = false;
	void *file;
	int fd;

	attempt->stage = STAGE_START;
	if (!load())
		return attempt_failed(attempt, FROM_CUFILE, -1);
	if (!succeeds(cufile.open(), attempt))
		return false;
	fd = storage_named_file(folder, attempt);
	if (fd < 0)
		return false;
	if (register_file(folder, fd, &file, attempt)) {
		moved = move_registered(file, addr, back, attempt);
		cufile.deregister_file(file);
	}
	close(fd);
	return moved;
}
