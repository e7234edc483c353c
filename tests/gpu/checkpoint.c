/* SPDX-License-Identifier: MIT */
/*
 * checkpoint [QUIESCE]: a process pins memory by pindown_get() and ibv_reg_mr(), and another makes
 * three checkpoints of it, as cuda-checkpoint and CRIU do, while threads go on to look memory up.
 * Afterwards nothing may be found that was pinned before (a new dma-buf has another inode), nothing
 * is counted as missed, and all memory comes back at the frees.
 *
 * QUIESCE is the command `pindown`: before each checkpoint `pindown quiesce` is run, after which
 * the memory must come back while the process is checkpointed, too.
 *
 * It runs with libpindown.so preloaded, on the recording libibverbs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "hook/cuda/abi.h"
#include "tests/bench/bench.h"
#include "tests/verbs/recorder.h"

#define MIB	    ((size_t)1 << 20)
#define SIZE	    (256 * MIB)
#define SLACK	    (32 * MIB) /* what the driver may keep for itself */
#define CHECKPOINTS 3
#define THREADS	    4
#define ACCESS	    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

enum kind { LINEAR, POOL, MAPPED, KINDS };
static const char *const kind_names[] = {"linear", "pool", "mapped"};

static struct {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_stats) stats;
	__typeof__(&pindown_region_dmabuf) dmabuf;
} pindown;

static int to_parent[2], to_child[2];
static const char *command; /* NULL: no quiescing */
static CUdevice device;
static CUcontext context;
static bool failed;

static void must(int result, const char *what)
{
	if (result != 0)
		stop(what, result);
}

static void check(bool right, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void check(bool right, const char *format, ...)
{
	va_list arguments;

	printf("%s ", right ? "ok  " : "FAIL");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	if (!right)
		__atomic_store_n(&failed, true, __ATOMIC_RELAXED);
}

static void begin_cuda(void)
{
	must(cuInit(0), "cuInit");
	must(cuDeviceGet(&device, 0), "cuDeviceGet");
	must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

static size_t free_memory(void)
{
	size_t left, all;

	must(cuMemGetInfo_v2(&left, &all), "cuMemGetInfo");
	return left;
}

/* ---- the process of which checkpoints are made ----------------------------------------------- */

static struct memory {
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle; /* of mapped memory */
	ino_t before;			     /* of the dma-buf before the last checkpoint */
	struct ibv_mr *mr;
} memory[KINDS];
static struct ibv_pd *pd;
static unsigned made; /* checkpoints */
static bool over;
static unsigned long lookups, stale;

static void map(struct memory *mem)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	prop.allocFlags.gpuDirectRDMACapable = 1;
	must(cuMemAddressReserve(&mem->at, SIZE, 0, 0, 0), "cuMemAddressReserve");
	must(cuMemCreate(&mem->handle, SIZE, &prop, 0), "cuMemCreate");
	must(cuMemMap(mem->at, SIZE, 0, mem->handle, 0), "cuMemMap");
	must(cuMemSetAccess(mem->at, SIZE, &access, 1), "cuMemSetAccess");
}

static void allocate_all(void)
{
	must(cuMemAlloc_v2(&memory[LINEAR].at, SIZE), "cuMemAlloc");
	must(cuMemAllocAsync(&memory[POOL].at, SIZE, NULL), "cuMemAllocAsync");
	must(cuCtxSynchronize(), "cuCtxSynchronize");
	map(&memory[MAPPED]);
}

static void free_all(void)
{
	must(cuMemFree_v2(memory[LINEAR].at), "cuMemFree");
	must(cuMemFreeAsync(memory[POOL].at, NULL), "cuMemFreeAsync");
	must(cuCtxSynchronize(), "cuCtxSynchronize");
	must(cuMemUnmap(memory[MAPPED].at, SIZE), "cuMemUnmap");
	must(cuMemRelease(memory[MAPPED].handle), "cuMemRelease");
	must(cuMemAddressFree(memory[MAPPED].at, SIZE), "cuMemAddressFree");
}

/* Of the dma-buf by which the memory is pinned now. */
static ino_t inode_of(CUdeviceptr at)
{
	pindown_region *region;
	uint64_t offset;
	struct stat st;
	int fd;

	must(pindown.get(at, 4096, 0, &region), "pindown_get");
	must(pindown.dmabuf(region, at, &fd, &offset), "pindown_region_dmabuf");
	must(fstat(fd, &st), "fstat");
	pindown.put(region);
	return st.st_ino;
}

static void *look_up(void *number)
{
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	for (uintptr_t i = (uintptr_t)number; !__atomic_load_n(&over, __ATOMIC_ACQUIRE); i++) {
		struct memory *mem = &memory[i % KINDS];
		ino_t before = __atomic_load_n(&mem->before, __ATOMIC_ACQUIRE);

		if (inode_of(mem->at) == before)
			__atomic_fetch_add(&stale, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&lookups, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static struct pindown_stats statistics(void)
{
	struct pindown_stats stats = {0};

	pindown.stats(&stats, sizeof(stats), -1);
	return stats;
}

/* In the child: its parent makes a context of its own first, and then a checkpoint each time. */
static void ask_parent(void)
{
	char byte = 'c';

	must(write(to_parent[1], &byte, 1) != 1, "asking the parent");
	must(read(to_child[0], &byte, 1) != 1, "waiting for the parent");
}

static void register_anew(struct memory *mem)
{
	if (mem->mr)
		must(ibv_dereg_mr(mem->mr), "ibv_dereg_mr");
	mem->mr = ibv_reg_mr(pd, (void *)mem->at, SIZE, ACCESS);
	if (!mem->mr)
		stop("ibv_reg_mr", 0);
}

static void one_checkpoint(void)
{
	uint64_t pins = statistics().pins;
	ino_t before[KINDS];

	for (enum kind kind = 0; kind < KINDS; kind++) {
		before[kind] = inode_of(memory[kind].at);
		register_anew(&memory[kind]);
		must(ibv_dereg_mr(memory[kind].mr), "ibv_dereg_mr"); /* it is idle, and cached */
		memory[kind].mr = NULL;
	}
	ask_parent();
	made++;
	for (enum kind kind = 0; kind < KINDS; kind++) {
		ino_t now = inode_of(memory[kind].at);

		check(now != before[kind], "checkpoint %u, %s: the memory is pinned again", made,
		      kind_names[kind]);
		__atomic_store_n(&memory[kind].before, before[kind], __ATOMIC_RELEASE);
		register_anew(&memory[kind]);
		check(inode_of(memory[kind].at) == now, "checkpoint %u, %s: a hit of that follows",
		      made, kind_names[kind]);
		must(ibv_dereg_mr(memory[kind].mr), "ibv_dereg_mr");
		memory[kind].mr = NULL;
	}
	check(statistics().pins >= pins + KINDS, "checkpoint %u: %llu pins", made,
	      (unsigned long long)(statistics().pins - pins));
}

static void find_pindown(void)
{
	pindown.get = (__typeof__(pindown.get))dlsym(RTLD_DEFAULT, "pindown_get");
	pindown.put = (__typeof__(pindown.put))dlsym(RTLD_DEFAULT, "pindown_put");
	pindown.stats = (__typeof__(pindown.stats))dlsym(RTLD_DEFAULT, "pindown_stats");
	pindown.dmabuf = (__typeof__(pindown.dmabuf))dlsym(RTLD_DEFAULT, "pindown_region_dmabuf");
	if (!pindown.get || !pindown.put || !pindown.stats || !pindown.dmabuf)
		stop("libpindown.so is not preloaded", 0);
}

static int be_the_child(void)
{
	pthread_t threads[THREADS];
	size_t before, after;

	find_pindown();
	begin_cuda();
	pd = ibv_alloc_pd(ibv_open_device(ibv_get_device_list(NULL)[0]));
	ask_parent();
	before = free_memory();
	allocate_all();
	one_checkpoint();
	if (!command) { /* threads that go on would pin again what is quiesced */
		for (uintptr_t i = 0; i < THREADS; i++)
			must(pthread_create(&threads[i], NULL, look_up, (void *)i), "a thread");
	}
	while (made < CHECKPOINTS)
		one_checkpoint();
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < THREADS && !command; i++)
		pthread_join(threads[i], NULL);
	if (!command)
		check(stale == 0 && lookups > 0, "%lu lookups in threads, %lu stale", lookups,
		      stale);
	check(statistics().missed_invalidations == 0, "%llu invalidations missed",
	      (unsigned long long)statistics().missed_invalidations);
	free_all();
	check(statistics().regions == 0, "%llu regions are left after the frees",
	      (unsigned long long)statistics().regions);
	after = free_memory();
	check(after + SLACK >= before, "%lld MiB are missing after the frees",
	      ((long long)before - (long long)after) / (long long)MIB);
	fflush(stdout);
	return failed;
}

/* ---- the process that makes them ------------------------------------------------------------- */

static void quiesce(pid_t child)
{
	char text[400];

	snprintf(text, sizeof(text), "%s quiesce %d", command, (int)child);
	check(system(text) == 0, "pindown quiesce");
}

static void make_checkpoint(pid_t child)
{
	size_t before = free_memory(), meanwhile;

	if (command)
		quiesce(child);
	must(cuCheckpointProcessLock(child, NULL), "cuCheckpointProcessLock");
	must(cuCheckpointProcessCheckpoint(child, NULL), "cuCheckpointProcessCheckpoint");
	meanwhile = free_memory();
	printf("     %lld MiB came back while it was checkpointed\n",
	       ((long long)meanwhile - (long long)before) / (long long)MIB);
	if (command)
		check(meanwhile + SLACK >= before + KINDS * SIZE,
		      "the memory comes back while it is checkpointed");
	must(cuCheckpointProcessRestore(child, NULL), "cuCheckpointProcessRestore");
	must(cuCheckpointProcessUnlock(child, NULL), "cuCheckpointProcessUnlock");
}

int main(int argc, char **argv)
{
	int status = 1;
	pid_t child;
	char byte;

	command = argc > 1 ? argv[1] : NULL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	must(pipe(to_parent) || pipe(to_child), "pipe");
	child = fork();
	if (child == 0) {
		close(to_parent[0]);
		close(to_child[1]);
		_exit(be_the_child());
	}
	close(to_parent[1]);
	close(to_child[0]);
	while (read(to_parent[0], &byte, 1) == 1) {
		if (!context)
			begin_cuda();
		else
			make_checkpoint(child);
		must(write(to_child[1], &byte, 1) != 1, "telling the process");
	}
	waitpid(child, &status, 0);
	check(status == 0, "the process has ended well");
	return failed;
}
