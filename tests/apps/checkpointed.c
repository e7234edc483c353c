/* SPDX-License-Identifier: MIT */
/*
 * Another process makes checkpoints of this one, as cuda-checkpoint and CRIU do: addresses and
 * buffer ids stay, and a dma-buf of before shows the old memory for ever. From then on no lookup
 * may return what was pinned before, nothing of it may stay pinned, and all works as before.
 *
 * Each case runs in a process of its own, and its parent makes the checkpoints. The program finds
 * pindown as middleware does, by dlsym.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "hook/cuda/abi.h"
#include "tests/sim/sim.h"

#define MIB	      ((size_t)1 << 20)
#define SIZE	      (2 * MIB)
#define PINDOWN(name) ((typeof(pindown_##name) *)dlsym(RTLD_DEFAULT, "pindown_" #name))

static bool failed;

#define EXPECT(condition) expect(condition, #condition, __LINE__)

static void expect(bool condition, const char *text, int line)
{
	if (condition)
		return;
	failed = true;
	printf("    not so, in line %d: %s\n", line, text);
}

static void must(int result, const char *what)
{
	if (result == 0)
		return;
	printf("    %s failed: %d\n", what, result);
	exit(1);
}

/* ---- the two processes ---------------------------------------------------------------------- */

static int to_parent[2], to_child[2];
static CUdevice device;
static CUcontext context;

static void begin_cuda(void)
{
	must(cuInit(0), "cuInit");
	must(cuDeviceGet(&device, 0), "cuDeviceGet");
	must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/* In the child. */
static void be_checkpointed(void)
{
	char byte = 'c';

	must(write(to_parent[1], &byte, 1) != 1, "asking for a checkpoint");
	must(read(to_child[0], &byte, 1) != 1, "waiting for the checkpoint");
}

static void make_checkpoint(pid_t child)
{
	must(cuCheckpointProcessLock(child, NULL), "cuCheckpointProcessLock");
	must(cuCheckpointProcessCheckpoint(child, NULL), "cuCheckpointProcessCheckpoint");
	must(cuCheckpointProcessRestore(child, NULL), "cuCheckpointProcessRestore");
	must(cuCheckpointProcessUnlock(child, NULL), "cuCheckpointProcessUnlock");
}

/* ---- memory and what is pinned of it -------------------------------------------------------- */

static CUdeviceptr allocate(void)
{
	CUdeviceptr at = 0;

	must(cuMemAlloc_v2(&at, SIZE), "cuMemAlloc");
	return at;
}

static void fill(CUdeviceptr at, unsigned char byte)
{
	must(cuMemsetD8_v2(at, byte, SIZE), "cuMemsetD8");
	must(cuCtxSynchronize(), "cuCtxSynchronize");
}

/* What a device finds in the region's memory, by its dma-buf. */
static int byte_in(pindown_region *region, CUdeviceptr at)
{
	unsigned char byte = 0;
	uint64_t offset = 0;
	int fd = -1;

	if (PINDOWN(region_dmabuf)(region, at, &fd, &offset) != PINDOWN_OK)
		return -1;
	if (pread(fd, &byte, 1, sim_dmabuf_offset(fd) + (off_t)offset) != 1)
		return -1;
	return byte;
}

static pindown_region *get(CUdeviceptr at)
{
	pindown_region *region = NULL;

	must(PINDOWN(get)(at, 4096, 0, &region), "pindown_get");
	return region;
}

static int byte_by_get(CUdeviceptr at)
{
	pindown_region *region = get(at);
	int byte = byte_in(region, at);

	PINDOWN(put)(region);
	return byte;
}

static bool is_cached(CUdeviceptr at)
{
	pindown_region *region;

	if (PINDOWN(get)(at, 4096, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
		return false;
	PINDOWN(put)(region);
	return true;
}

static struct pindown_stats stats(void)
{
	struct pindown_stats now;

	memset(&now, 0, sizeof(now));
	PINDOWN(stats)(&now, sizeof(now), -1);
	return now;
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void gets(void)
{
	CUdeviceptr at = allocate();
	uint64_t hits;

	fill(at, 1);
	EXPECT(byte_by_get(at) == 1);
	be_checkpointed();
	fill(at, 2);
	EXPECT(byte_by_get(at) == 2);
	hits = stats().hits;
	EXPECT(byte_by_get(at) == 2);
	EXPECT(stats().hits == hits + 1);
	EXPECT(stats().pins == 2);
	EXPECT(stats().distrusted == 0);
}

static void cached_gets(void)
{
	CUdeviceptr at = allocate();

	PINDOWN(put)(get(at));
	EXPECT(is_cached(at));
	be_checkpointed();
	EXPECT(!is_cached(at));
}

static void gets_without_waiting(void)
{
	CUdeviceptr at = allocate();
	pindown_region *region = NULL;

	PINDOWN(put)(get(at));
	be_checkpointed();
	fill(at, 2);
	EXPECT(PINDOWN(get)(at, 4096, PINDOWN_GET_NOWAIT, &region) == PINDOWN_OK);
	EXPECT(region && byte_in(region, at) == 2);
	PINDOWN(put)(region);
}

static void vectors(void)
{
	struct pindown_range ranges[2];
	pindown_region *regions[2];

	for (unsigned i = 0; i < 2; i++)
		ranges[i] = (struct pindown_range){.addr = allocate(), .length = 4096};
	must(PINDOWN(getv)(ranges, 2, 0, regions, NULL), "pindown_getv");
	PINDOWN(putv)(regions, 2);
	be_checkpointed();
	fill(ranges[0].addr, 2);
	fill(ranges[1].addr, 3);
	must(PINDOWN(getv)(ranges, 2, 0, regions, NULL), "pindown_getv");
	EXPECT(byte_in(regions[0], ranges[0].addr) == 2);
	EXPECT(byte_in(regions[1], ranges[1].addr) == 3);
	PINDOWN(putv)(regions, 2);
}

static void held(void)
{
	CUdeviceptr at = allocate();
	pindown_region *before = get(at);

	EXPECT(PINDOWN(region_is_live)(before));
	be_checkpointed();
	fill(at, 2);
	EXPECT(!PINDOWN(region_is_live)(before));
	EXPECT(byte_by_get(at) == 2);
	EXPECT(stats().kept_regions == 1);
	PINDOWN(put)(before);
	EXPECT(stats().kept_regions == 0);
	EXPECT(sim_open_exports(device) == 1);
}

/* What is never used again goes with the next call that is watched, whatever that is. */
static void memory_comes_back(void)
{
	CUdeviceptr at[4], other;
	uint64_t used;

	for (unsigned i = 0; i < 4; i++)
		at[i] = allocate();
	other = allocate();
	used = sim_used_bytes(device);
	for (unsigned i = 0; i < 4; i++)
		PINDOWN(put)(get(at[i]));
	be_checkpointed();
	EXPECT(sim_kept_bytes(device) == 4 * SIZE);
	must(cuMemFree_v2(other), "cuMemFree");
	EXPECT(sim_open_exports(device) == 0);
	EXPECT(sim_used_bytes(device) == used - SIZE);
}

static void frees(void)
{
	CUdeviceptr at = allocate();

	PINDOWN(put)(get(at));
	be_checkpointed();
	must(cuMemFree_v2(at), "cuMemFree");
	EXPECT(sim_open_exports(device) == 0);
	EXPECT(stats().regions == 0);
}

static unsigned made, destroyed;

static int make_object(const struct pindown_object_request *what, void **data, void *arg)
{
	(void)arg;
	made++;
	*data = NULL;
	return byte_in(what->region, what->addr) < 0;
}

static int destroy_object(const struct pindown_object_end *what, void *arg)
{
	(void)what, (void)arg;
	destroyed++;
	return 0;
}

static void objects(void)
{
	const struct pindown_consumer consumer = {
		.name = "test", .create = make_object, .destroy = destroy_object};
	const struct pindown_key key = {.owner = 1};
	int id = PINDOWN(consumer_add)(&consumer, sizeof(consumer));
	CUdeviceptr at = allocate();
	pindown_object *object, *after;

	for (unsigned i = 0; i < 2; i++) {
		must(PINDOWN(attach)(id, at, 4096, 0, &key, NULL, &object), "pindown_attach");
		PINDOWN(detach)(object);
	}
	EXPECT(made == 1);
	be_checkpointed();
	must(PINDOWN(attach)(id, at, 4096, 0, &key, NULL, &object), "pindown_attach");
	EXPECT(made == 2 && destroyed == 1);
	be_checkpointed(); /* it is held now */
	must(PINDOWN(attach)(id, at, 4096, 0, &key, NULL, &after), "pindown_attach");
	EXPECT(made == 3 && destroyed == 1 && after != object);
	PINDOWN(detach)(after);
	PINDOWN(detach)(object);
	EXPECT(destroyed == 2);
	PINDOWN(consumer_remove)(id);
	EXPECT(destroyed == 3);
}

/* A call of the driver that opens its files in a thread of the program is no checkpoint. */
static void contexts(void)
{
	CUdeviceptr at = allocate();
	CUcontext other;

	PINDOWN(put)(get(at));
	must(cuCtxCreate_v2(&other, 0, device), "cuCtxCreate");
	EXPECT(is_cached(at));
	must(cuCtxDestroy_v2(other), "cuCtxDestroy");
	EXPECT(is_cached(at));
	EXPECT(stats().pins == 1);
}

/* It ends mappings of the process that calls it, whatever it returns. */
static void operation_complete(void)
{
	CUdeviceptr at = allocate();

	PINDOWN(put)(get(at));
	EXPECT(cuCheckpointOperationComplete(NULL) != CUDA_SUCCESS);
	EXPECT(!is_cached(at));
}

#define THREADS	    8
#define CHECKPOINTS 8
#define BLOCKS	    3

static CUdeviceptr blocks[BLOCKS];
static unsigned filled; /* with at least this byte */
static bool stop;
static pthread_barrier_t start_line; /* the first pins of the process are made at once */

struct user {
	pthread_t thread;
	unsigned uses, stale;
};

static void *use(void *user_)
{
	struct user *user = user_;

	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	pthread_barrier_wait(&start_line);
	for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
		int least = (int)__atomic_load_n(&filled, __ATOMIC_ACQUIRE);

		if (byte_by_get(blocks[i % BLOCKS]) < least)
			user->stale++;
		__atomic_store_n(&user->uses, i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Until it has begun and ended a use of each block. */
static void wait_for_uses(const struct user *user)
{
	unsigned begun = __atomic_load_n(&user->uses, __ATOMIC_ACQUIRE) + 1;

	while (__atomic_load_n(&user->uses, __ATOMIC_ACQUIRE) < begun + BLOCKS)
		usleep(100);
}

static void threads(void)
{
	struct user users[THREADS] = {{0}};

	for (unsigned b = 0; b < BLOCKS; b++)
		blocks[b] = allocate();
	pthread_barrier_init(&start_line, NULL, THREADS);
	for (unsigned t = 0; t < THREADS; t++)
		pthread_create(&users[t].thread, NULL, use, &users[t]);
	for (unsigned n = 1; n <= CHECKPOINTS; n++) {
		be_checkpointed();
		for (unsigned b = 0; b < BLOCKS; b++)
			fill(blocks[b], (unsigned char)n);
		__atomic_store_n(&filled, n, __ATOMIC_RELEASE);
		for (unsigned t = 0; t < THREADS; t++)
			wait_for_uses(&users[t]);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (unsigned t = 0; t < THREADS; t++) {
		pthread_join(users[t].thread, NULL);
		EXPECT(users[t].stale == 0);
	}
	PINDOWN(flush)();
	EXPECT(sim_open_exports(device) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"a get after it pins again", gets},
	{"a get of what is cached finds nothing", cached_gets},
	{"a get without waiting pins again", gets_without_waiting},
	{"a vector of gets pins again", vectors},
	{"a held region is kept for its holder, who can ask", held},
	{"memory that is not used again comes back", memory_comes_back},
	{"memory can be freed", frees},
	{"objects are made again", objects},
	{"a context of the program's is no checkpoint", contexts},
	{"cuCheckpointOperationComplete ends what is pinned", operation_complete},
	{"threads that go on find nothing of before", threads},
};

/* ---- running them --------------------------------------------------------------------------- */

static int run(void (*run_case)(void))
{
	begin_cuda();
	run_case();
	EXPECT(stats().missed_invalidations == 0);
	fflush(stdout);
	_exit(failed);
}

static bool passes(void (*run_case)(void))
{
	pid_t child;
	int status;
	char byte;

	fflush(stdout);
	must(pipe(to_parent) | pipe(to_child), "pipe");
	child = fork();
	if (child == 0) {
		close(to_parent[0]);
		run(run_case);
	}
	close(to_parent[1]);
	while (read(to_parent[0], &byte, 1) == 1) {
		begin_cuda();
		make_checkpoint(child);
		must(write(to_child[1], &byte, 1) != 1, "going on");
	}
	close(to_parent[0]);
	close(to_child[0]);
	close(to_child[1]);
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* In a process of its own: a child of one that has used CUDA can't. */
static bool passes_alone(void (*run_case)(void))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		bool ok = passes(run_case);

		fflush(stdout);
		_exit(!ok);
	}
	return waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
	unsigned good = 0, bad = 0;

	if (!PINDOWN(get)) {
		puts("libpindown.so is not preloaded");
		return 1;
	}
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fflush(stdout);
		if (passes_alone(cases[i].run)) {
			good++;
		} else {
			bad++;
			printf("FAIL %s\n", cases[i].name);
		}
	}
	printf("%u passed, %u failed, 0 skipped\n", good, bad);
	return bad != 0;
}
