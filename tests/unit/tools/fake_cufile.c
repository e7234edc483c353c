/* SPDX-License-Identifier: MIT */
/*
 * A libcufile.so.0 for check-storage, on the simulated driver: cuFile's functions as its reference
 * declares them, with statistics. CUFILE says how it behaves:
 *
 *	p2p, nvfs, posix   bytes move, and are counted so
 *	mixed              the write is P2P, the read is not
 *	sixteen            as p2p, of as many GPUs as there are counters for, the last one
 *	seventeen          more GPUs than that
 *	unread             as p2p, but the reads of all are not counted
 *	old                it has no statistics, as before CUDA 13
 *	open=N             cuFileDriverOpen fails with this error
 *	cuda=N             the same, with this error of CUDA
 *	file=N, memory=N   the registrations fail
 *	write=N            cuFileWrite fails with this errno
 *	read=N             cuFileRead fails with this error of cuFile
 *	short, corrupt     of a read
 *	crash, crashfile   in a write, in the registration of a file
 *
 * As the real one, it refuses files of O_TMPFILE, and those without a name. It also refuses a file
 * that a program would inherit, and one whose name could be guessed from the process number.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
	int err, cu_err;
} CUfileError_t;

typedef struct {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
} CUfileDescr_t;

typedef struct {
	uint64_t ok, err;
} CUfileOpCounter_t;

typedef struct {
	CUfileOpCounter_t read_ops, write_ops, hdl_register_ops, hdl_deregister_ops,
		buf_register_ops, buf_deregister_ops;
	uint64_t read_bytes, write_bytes, read_bw_bytes_per_sec, write_bw_bytes_per_sec;
	uint64_t read_lat_avg_us, write_lat_avg_us, read_ops_per_sec, write_ops_per_sec;
	uint64_t read_lat_sum_us, write_lat_sum_us;
	CUfileOpCounter_t batch_submit_ops, batch_complete_ops, batch_setup_ops, batch_cancel_ops,
		batch_destroy_ops, batch_enqueued_ops, batch_posix_enqueued_ops,
		batch_processed_ops, batch_posix_processed_ops, batch_nvfs_submit_ops,
		batch_p2p_submit_ops, batch_aio_submit_ops, batch_iouring_submit_ops,
		batch_mixed_io_submit_ops, batch_total_submit_ops;
	uint64_t batch_read_bytes, batch_write_bytes, batch_read_bw_bytes, batch_write_bw_bytes;
	uint64_t batch_submit_lat_avg_us, batch_completion_lat_avg_us;
	uint64_t batch_submit_ops_per_sec, batch_complete_ops_per_sec;
	uint64_t batch_submit_lat_sum_us, batch_completion_lat_sum_us;
	uint64_t last_batch_read_bytes, last_batch_write_bytes;
} CUfileStatsLevel1_t;

typedef struct {
	CUfileStatsLevel1_t basic;
	uint64_t read_size_kb_hist[32], write_size_kb_hist[32];
} CUfileStatsLevel2_t;

typedef struct {
	char uuid[16];
	uint64_t read_bytes, read_bw_bytes_per_sec, read_utilization, read_duration_us;
	uint64_t n_total_reads, n_p2p_reads, n_nvfs_reads, n_posix_reads, n_unaligned_reads,
		n_dr_reads, n_sparse_regions, n_inline_regions, n_reads_err;
	uint64_t writes_bytes, write_bw_bytes_per_sec, write_utilization, write_duration_us;
	uint64_t n_total_writes, n_p2p_writes, n_nvfs_writes, n_posix_writes, n_unaligned_writes,
		n_dr_writes, n_writes_err;
	uint64_t n_mmap, n_mmap_ok, n_mmap_err, n_mmap_free, reg_bytes;
} CUfilePerGpuStats_t;

typedef struct {
	CUfileStatsLevel2_t detailed;
	uint32_t num_gpus;
	CUfilePerGpuStats_t per_gpu_stats[16];
} CUfileStatsLevel3_t;

CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileHandleRegister(void **file, CUfileDescr_t *descriptor);
void cuFileHandleDeregister(void *file);
CUfileError_t cuFileBufRegister(const void *memory, size_t size, int flags);
CUfileError_t cuFileBufDeregister(const void *memory);
ssize_t cuFileWrite(void *file, const void *memory, size_t size, off_t at, off_t from);
ssize_t cuFileRead(void *file, void *memory, size_t size, off_t at, off_t to);
#ifndef OLD
CUfileError_t cuFileSetStatsLevel(int level);
CUfileError_t cuFileStatsStart(void);
CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats);
#endif

static int is(const char *behaviour)
{
	const char *chosen = getenv("CUFILE");

	return chosen && strcmp(chosen, behaviour) == 0;
}

/* The number behind "behaviour=", or 0. */
static int number(const char *behaviour)
{
	const char *chosen = getenv("CUFILE");
	size_t length = strlen(behaviour);

	return chosen && strncmp(chosen, behaviour, length) == 0 && chosen[length] == '='
		       ? atoi(chosen + length + 1)
		       : 0;
}

static CUfileError_t result(int error)
{
	return (CUfileError_t){.err = error};
}

static void *cuda(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *function = library ? dlsym(library, name) : NULL;

	if (!function)
		abort();
	return function;
}

static int opened, registered_file = -1;
static const void *registered_memory;
static CUfileStatsLevel3_t counters;
static int counting, level;

/* The GPU that is used is the last one of those that count. */
static CUfilePerGpuStats_t *mine(void)
{
	return &counters.per_gpu_stats[is("sixteen") ? 15 : 1];
}

CUfileError_t cuFileDriverOpen(void)
{
	const char *log = getenv("CUFILE_LOGFILE_PATH");
	FILE *file = fopen(log ? log : "cufile.log", "a");

	if (file)
		fclose(file);
	if (number("cuda"))
		return (CUfileError_t){.err = 5011, .cu_err = number("cuda")};
	opened = !number("open");
	return result(number("open"));
}

static int has_name(int fd)
{
	char link[40], name[4096] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, name, sizeof(name) - 1) > 0 && access(name, F_OK) == 0;
}

static int is_private(int fd)
{
	char link[40], number[20], name[4096] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	snprintf(number, sizeof(number), "-%ld", (long)getpid());
	return readlink(link, name, sizeof(name) - 1) > 0 && !strstr(name, number) &&
	       fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

CUfileError_t cuFileHandleRegister(void **file, CUfileDescr_t *descriptor)
{
	if (!opened || descriptor->type != 1)
		return result(5022);
	if (number("file"))
		return result(number("file"));
	if (fcntl(descriptor->handle.fd, F_GETFL) &
	    (O_TMPFILE | O_NOFOLLOW | O_APPEND | O_NONBLOCK))
		return result(5019);
	if (!has_name(descriptor->handle.fd) || !is_private(descriptor->handle.fd))
		return result(5018);
	if (is("crashfile"))
		raise(SIGABRT);
	registered_file = descriptor->handle.fd;
	*file = &registered_file;
	return result(0);
}

void cuFileHandleDeregister(void *file)
{
	*(int *)file = -1;
}

CUfileError_t cuFileBufRegister(const void *memory, size_t size, int flags)
{
	(void)size;
	if (flags)
		return result(5022);
	if (!number("memory"))
		registered_memory = memory;
	return result(number("memory"));
}

CUfileError_t cuFileBufDeregister(const void *memory)
{
	return result(memory == registered_memory ? 0 : 5024);
}

ssize_t cuFileWrite(void *file, const void *memory, size_t size, off_t at, off_t from)
{
	int (*copy)(void *, unsigned long long, size_t);
	char *bytes;
	ssize_t done;

	if (number("write")) {
		errno = number("write");
		return -1;
	}
	if (is("crash"))
		raise(SIGABRT);
	bytes = malloc(size);
	*(void **)&copy = cuda("cuMemcpyDtoH_v2");
	if (memory != registered_memory ||
	    copy(bytes, (uintptr_t)memory + (unsigned long long)from, size))
		return -5012;
	done = pwrite(*(int *)file, bytes, size, at);
	free(bytes);
	mine()->n_p2p_writes += !is("nvfs") && !is("posix");
	mine()->n_nvfs_writes += is("nvfs");
	mine()->n_posix_writes += is("posix");
	counters.detailed.basic.write_ops.ok++;
	return done;
}

ssize_t cuFileRead(void *file, void *memory, size_t size, off_t at, off_t to)
{
	int (*copy)(unsigned long long, const void *, size_t);
	char *bytes;
	ssize_t done;

	if (number("read"))
		return -number("read");
	bytes = malloc(size);
	*(void **)&copy = cuda("cuMemcpyHtoD_v2");
	done = pread(*(int *)file, bytes, size, at);
	bytes[size / 2] ^= (char)is("corrupt");
	if (copy((uintptr_t)memory + (unsigned long long)to, bytes, size))
		return -5012;
	free(bytes);
	mine()->n_p2p_reads += !is("nvfs") && !is("posix") && !is("mixed");
	mine()->n_nvfs_reads += is("nvfs");
	mine()->n_posix_reads += is("posix") || is("mixed");
	counters.detailed.basic.read_ops.ok += !is("unread");
	return is("short") ? done / 2 : done;
}

#ifndef OLD
CUfileError_t cuFileSetStatsLevel(int wanted)
{
	level = wanted;
	return result(wanted < 0 || wanted > 3 ? 5022 : 0);
}

CUfileError_t cuFileStatsStart(void)
{
	counting = opened && level;
	return result(counting ? 0 : 5001);
}

CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats)
{
	if (!counting || level < 3)
		return result(5022);
	counters.num_gpus = is("seventeen") ? 17 : is("sixteen") ? 16 : 2;
	*stats = counters;
	return result(0);
}
#endif
