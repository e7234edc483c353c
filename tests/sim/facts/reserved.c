/* SPDX-License-Identifier: MIT */
/* Reservations (cuMemAddressReserve) where memory was freed, and what ends them. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "facts.h"

#define TIB   (1ull << 40)
#define BLOCK (2 * MIB)

/* A question in pieces. */
__attribute__((format(printf, 1, 2))) static const char *of(const char *format, ...)
{
	static char question[128];
	va_list args;

	va_start(args, format);
	vsnprintf(question, sizeof(question), format, args);
	va_end(args);
	return question;
}

static uint64_t blocks_of(uint64_t size)
{
	return (size + BLOCK - 1) / BLOCK * BLOCK;
}

static CUdeviceptr allocated(uint64_t size)
{
	CUdeviceptr ptr;

	NEED(cuMemAlloc_v2(&ptr, size));
	return ptr;
}

static CUdeviceptr freed(uint64_t size)
{
	CUdeviceptr ptr = allocated(size);

	NEED(cuMemFree_v2(ptr));
	return ptr;
}

static void say_place(const char *question, CUdeviceptr got, CUdeviceptr wanted)
{
	say(question, "%s", got == wanted ? "the same" : "another");
}

/* Where does a reservation land? 0: nowhere. */
static CUdeviceptr reserve(const char *question, CUdeviceptr wanted, uint64_t size)
{
	CUdeviceptr got = 0;
	CUresult result = cuMemAddressReserve(&got, size, 0, wanted, 0);

	if (result != CUDA_SUCCESS) {
		answer(question, result);
		return 0;
	}
	say_place(question, got, wanted);
	return got;
}

static void give_back(CUdeviceptr reserved, uint64_t size)
{
	if (reserved)
		NEED(cuMemAddressFree(reserved, size));
}

static void reserve_briefly(const char *question, CUdeviceptr wanted, uint64_t size)
{
	give_back(reserve(question, wanted, size), size);
}

/* Gets memory of that size, says where, and frees it. */
static void allocate_briefly(const char *question, CUdeviceptr place, uint64_t size)
{
	say_place(question, freed(size), place);
}

/* ---- memory of one size --------------------------------------------------------------------- */

static void ask_one_size(const char *name, uint64_t size, bool exported)
{
	uint64_t whole = blocks_of(size);
	CUdeviceptr ptr = allocated(size), got, other, next;
	long left;
	void *host;
	int fd = -1;

	if (exported)
		NEED(cuMemGetHandleForAddressRange(&fd, ptr, whole,
						   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	NEED(cuMemFree_v2(ptr));
	left = free_mib();
	got = reserve(of("%s, reservation where it was", name), ptr, whole);
	say(of("%s, memory that it takes", name), "%ld MiB", left - free_mib());
	next = allocated(size);
	say_place(of("%s, the next allocation", name), next, ptr);
	NEED(cuMemHostAlloc(&host, whole, 0));
	say(of("%s, page-locked memory begins in it", name), "%d", (CUdeviceptr)host - ptr < whole);
	NEED(cuMemAddressReserve(&other, whole, 0, 0, 0));
	say_place(of("%s, a reservation anywhere", name), other, ptr);
	reserve_briefly(of("%s, a second reservation there", name), ptr, whole);
	ASK_ABOUT(of("%s, free of the reservation", name), cuMemAddressFree(got, whole));
	if (size >= BLOCK)
		allocate_briefly(of("%s, the allocation after that", name), ptr, size);
	reserve_briefly(of("%s, reserved again", name), ptr, whole);
	NEED(cuMemAddressFree(other, whole));
	NEED(cuMemFreeHost(host));
	NEED(cuMemFree_v2(next));
	if (fd >= 0)
		close(fd);
}

static void ask_many_rounds(void)
{
	enum { ROUNDS = 200 };
	static CUdeviceptr reserved[ROUNDS];
	CUdeviceptr before = 0;
	int kept = 0, again = 0, i;

	for (i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = freed(4 * MIB);

		again += ptr == before;
		NEED(cuMemAddressReserve(&reserved[i], 4 * MIB, 0, ptr, 0));
		kept += reserved[i] == ptr;
		before = ptr;
	}
	say("200 times 4 MiB", "%d kept, %d at the address before", kept, again);
	for (i = 0; i < ROUNDS; i++)
		NEED(cuMemAddressFree(reserved[i], 4 * MIB));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Neighbours in a block of 2 MiB are freed in turn. */
static void ask_about_neighbours(const char *name, uint64_t size)
{
	CUdeviceptr at[4], block;
	int i, count = size == MIB ? 2 : 4;

	for (i = 0; i < count; i++)
		at[i] = allocated(size);
	block = at[0] & ~(BLOCK - 1);
	say(of("%s, neighbours are in one block", name), "%d", at[count - 1] - block < BLOCK);
	for (i = 0; i < count; i++) {
		NEED(cuMemFree_v2(at[i]));
		reserve_briefly(of("%s, %d of %d freed, the block", name, i + 1, count), block,
				BLOCK);
	}
}

/* Does anything small lie in the last block of 3 MiB, which it does not fill? */
static void ask_about_3_mib(void)
{
	enum { MANY = 600 };
	static CUdeviceptr small[MANY];
	CUdeviceptr big = allocated(3 * MIB), block;
	int inside = 0, i;

	for (i = 0; i < MANY; i++) {
		small[i] = allocated(8 * KIB);
		inside += small[i] - big < 4 * MIB;
	}
	say("600 times 8 KiB after 3 MiB, in its blocks", "%d", inside);
	NEED(cuMemFree_v2(big));
	reserve_briefly("3 MiB freed, small ones alive, its blocks", big, 4 * MIB);
	block = small[MANY - 1] & ~(BLOCK - 1);
	for (i = 0; i < MANY - 1; i++)
		NEED(cuMemFree_v2(small[i]));
	reserve_briefly("all but the last freed, its block", block, BLOCK);
	NEED(cuMemFree_v2(small[MANY - 1]));
	reserve_briefly("the last freed, its block", block, BLOCK);
}

static void ask_about_hints(void)
{
	CUdeviceptr live = allocated(4 * MIB), ptr, part, got;

	reserve_briefly("where memory lives", live, 4 * MIB);
	reserve_briefly("inside of memory that lives", live + BLOCK, BLOCK);
	NEED(cuMemFree_v2(live));
	ptr = freed(64 * MIB);
	part = reserve("a part of 64 MiB freed", ptr + 4 * MIB, BLOCK);
	reserve_briefly("all of it then", ptr, 64 * MIB);
	reserve_briefly("all before the part", ptr, 4 * MIB);
	reserve_briefly("all after it", ptr + 6 * MIB, 58 * MIB);
	allocate_briefly("an allocation of 64 MiB then", ptr, 64 * MIB);
	give_back(part, BLOCK);
	reserve_briefly("64 KiB into the block", ptr + 64 * KIB, BLOCK);
	reserve_briefly("4 KiB into the block", ptr + 4 * KIB, BLOCK);
	got = reserve("64 MiB freed", ptr, 64 * MIB);
	reserve_briefly("inside of the reservation", ptr + 4 * MIB, BLOCK);
	ASK_ABOUT("free of a part of it", cuMemAddressFree(ptr, BLOCK));
	describe("reserved", ptr);
	give_back(got, 64 * MIB);

	NEED(cuMemAddressReserve(&ptr, 64 * MIB, 0, 0, 0));
	NEED(cuMemAddressFree(ptr, 64 * MIB));
	reserve_briefly("a reservation freed", ptr, 64 * MIB);
	reserve_briefly("a part of a reservation freed", ptr + 4 * MIB, BLOCK);
	ASK_ABOUT("at 2^48", cuMemAddressReserve(&got, BLOCK, 0, 1ull << 48, 0));
	ASK_ABOUT("2^48 bytes", cuMemAddressReserve(&got, 1ull << 48, 0, 0, 0));
}

static void ask_for_much(void)
{
	CUdeviceptr at[64];
	int count = 0;

	while (count < 64 && cuMemAddressReserve(&at[count], TIB, 0, 0, 0) == CUDA_SUCCESS)
		count++;
	say("reservations of 1 TiB, of 64", "%d", count);
	while (count--)
		NEED(cuMemAddressFree(at[count], TIB));
}

static void *without_context(void *arg)
{
	CUdeviceptr got = reserve("a thread without a context", *(CUdeviceptr *)arg, 4 * MIB);

	ASK_ABOUT("its free", cuMemAddressFree(got, 4 * MIB));
	return NULL;
}

/* ---- pools ---------------------------------------------------------------------------------- */

static CUdeviceptr freed_of_pool(CUmemoryPool pool)
{
	CUdeviceptr ptr;

	NEED(cuMemAllocFromPoolAsync(&ptr, 64 * MIB, pool, NULL));
	NEED(cuMemFreeAsync(ptr, NULL));
	NEED(cuStreamSynchronize(NULL));
	return ptr;
}

static void ask_about_pools(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool;
	CUdeviceptr ptr, got;

	NEED(cuDeviceGetDefaultMemPool(&pool, 0));
	ptr = freed_of_pool(pool);
	got = reserve("pool memory freed", ptr, 64 * MIB);
	say_place("the pool's next allocation", freed_of_pool(pool), ptr);
	allocate_briefly("cuMemAlloc then", ptr, 64 * MIB);
	give_back(got, 64 * MIB);
	NEED(cuMemPoolTrimTo(pool, 0));
	reserve_briefly("the pool trimmed", ptr, 64 * MIB);
	NEED(cuMemPoolCreate(&pool, &props));
	ptr = freed_of_pool(pool);
	reserve_briefly("memory of another pool freed", ptr, 64 * MIB);
	NEED(cuMemPoolDestroy(pool));
	reserve_briefly("that pool destroyed", ptr, 64 * MIB);
}

void facts_reserved(void)
{
	static const struct {
		const char *name;
		uint64_t size;
	} sizes[] = {{"4 KiB", 4 * KIB}, {"64 KiB", 64 * KIB}, {"1 MiB", MIB},
		     {"2 MiB", 2 * MIB}, {"3 MiB", 3 * MIB},   {"64 MiB", 64 * MIB}};
	CUdeviceptr ptr;
	pthread_t thread;
	size_t i;

	begin();
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		ask_one_size(sizes[i].name, sizes[i].size, false);
	ask_one_size("64 MiB, a dma-buf open", 64 * MIB, true);
	ask_many_rounds();
	ask_about_neighbours("64 KiB", 64 * KIB);
	ask_about_neighbours("1 MiB", MIB);
	ask_about_3_mib();
	ask_about_hints();
	ask_for_much();
	ptr = freed(4 * MIB);
	pthread_create(&thread, NULL, without_context, &ptr);
	pthread_join(thread, NULL);
	ask_about_pools();
}

/* ---- chunks of 32 MiB ----------------------------------------------------------------------- */

/* Two blocks of 16 MiB side by side, so in one chunk. */
static void allocate_two(CUdeviceptr two[2])
{
	int i = 8;

	two[1] = allocated(16 * MIB);
	do {
		two[0] = two[1];
		two[1] = allocated(16 * MIB);
	} while (two[1] != two[0] + 16 * MIB && --i);
	say("16 MiB, two are side by side", "%d", i > 0);
}

void facts_reserved_chunks(void)
{
	CUdeviceptr first, two[2], ptr, got;

	begin();
	first = allocated(16 * MIB);
	allocate_two(two);
	NEED(cuMemFree_v2(two[1]));
	NEED(cuMemFree_v2(two[0]));
	reserve_briefly("both freed, where one was", two[0], 16 * MIB);
	allocate_two(two);
	NEED(cuMemFree_v2(first));
	NEED(cuMemFree_v2(two[1]));
	NEED(cuMemFree_v2(two[0]));
	got = reserve("one before them freed, too, where one was", two[0], 16 * MIB);
	say_place("where the one before was", got, first);
	reserve_briefly("reserved, where one was", two[0], 16 * MIB);
	give_back(got, 16 * MIB);
	ptr = freed(64 * MIB);
	reserve_briefly("64 MiB freed, the first half", ptr, 32 * MIB);
	reserve_briefly("64 MiB freed, the second half", ptr + 32 * MIB, 32 * MIB);
	reserve_briefly("64 MiB freed, the second quarter", ptr + 16 * MIB, 16 * MIB);
	reserve_briefly("64 MiB freed, all of it", ptr, 64 * MIB);
}

/* ---- the end of the context ----------------------------------------------------------------- */

/* Makes a context that is alive current, asks, and gives the reservation back. */
static void ask_after_the_end(const char *name, CUcontext now, CUdeviceptr ptr)
{
	NEED(cuCtxSetCurrent(now));
	allocate_briefly(of("%s, the next allocation", name), ptr, 4 * MIB);
	reserve_briefly(of("%s, a second reservation", name), ptr, 4 * MIB);
	ASK_ABOUT(of("%s, free of the reservation", name), cuMemAddressFree(ptr, 4 * MIB));
	reserve_briefly(of("%s, reserved again", name), ptr, 4 * MIB);
}

void facts_reserved_ends(void)
{
	CUcontext primary = begin(), context;
	CUdeviceptr ptr, kept;

	NEED(cuCtxCreate_v2(&context, 0, 0));
	kept = allocated(8 * MIB);
	ptr = freed(4 * MIB);
	reserve("in a context", ptr, 4 * MIB);
	NEED(cuCtxDestroy_v2(context));
	ask_after_the_end("context destroyed", primary, ptr);
	reserve_briefly("context destroyed, its memory", kept, 8 * MIB);

	ptr = freed(4 * MIB);
	reserve("in the primary context", ptr, 4 * MIB);
	NEED(cuDevicePrimaryCtxReset_v2(0));
	NEED(cuDevicePrimaryCtxRetain(&primary, 0));
	ask_after_the_end("reset", primary, ptr);
	while (cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS)
		;

	NEED(cuDevicePrimaryCtxRetain(&primary, 0));
	NEED(cuCtxSetCurrent(primary));
	kept = allocated(8 * MIB);
	ptr = freed(4 * MIB);
	reserve("in the primary context", ptr, 4 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0));
	reserve_briefly("released to zero, a second reservation", ptr, 4 * MIB);
	reserve_briefly("released to zero, its memory", kept, 8 * MIB);
	NEED(cuDevicePrimaryCtxRetain(&primary, 0));
	ask_after_the_end("released and retained", primary, ptr);

	ptr = freed(4 * MIB);
	reserve("in the primary context", ptr, 4 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0));
	ASK_ABOUT("released to zero, free of the reservation", cuMemAddressFree(ptr, 4 * MIB));
	NEED(cuDevicePrimaryCtxRetain(&primary, 0));
	reserve_briefly("retained, reserved again", ptr, 4 * MIB);
}

/* ---- captures ------------------------------------------------------------------------------- */

static CUstream stream;
static CUcontext context_here;

struct capture {
	CUstreamCaptureMode mode;
	pthread_barrier_t barrier;
	CUresult result; /* of its end */
};

static void begin_capture(const struct capture *capture)
{
	NEED(cuStreamBeginCapture_v2(stream, capture->mode));
}

static void end_capture(struct capture *capture)
{
	CUgraph graph;

	capture->result = cuStreamEndCapture(stream, &graph);
	if (capture->result == CUDA_SUCCESS)
		cuGraphDestroy(graph);
}

static void *capture_elsewhere(void *arg)
{
	struct capture *capture = arg;

	NEED(cuCtxSetCurrent(context_here));
	begin_capture(capture);
	pthread_barrier_wait(&capture->barrier);
	pthread_barrier_wait(&capture->barrier);
	end_capture(capture);
	return NULL;
}

static void ask_in_capture(const char *name, CUdeviceptr ptr, CUstreamCaptureMode own_mode)
{
	CUdeviceptr got;

	NEED(cuThreadExchangeStreamCaptureMode(&own_mode));
	got = reserve(of("%s, reservation", name), ptr, 4 * MIB);
	ASK_ABOUT(of("%s, its free", name), cuMemAddressFree(got, 4 * MIB));
	NEED(cuThreadExchangeStreamCaptureMode(&own_mode));
}

static void this_thread_captures(const char *name, CUstreamCaptureMode mode,
				 CUstreamCaptureMode own_mode)
{
	struct capture capture = {.mode = mode};
	CUdeviceptr ptr = freed(4 * MIB);

	begin_capture(&capture);
	ask_in_capture(name, ptr, own_mode);
	end_capture(&capture);
	answer(of("%s, end", name), capture.result);
}

static void another_captures(const char *name, CUstreamCaptureMode mode,
			     CUstreamCaptureMode own_mode)
{
	struct capture capture = {.mode = mode};
	CUdeviceptr ptr = freed(4 * MIB);
	pthread_t thread;

	pthread_barrier_init(&capture.barrier, NULL, 2);
	pthread_create(&thread, NULL, capture_elsewhere, &capture);
	pthread_barrier_wait(&capture.barrier);
	ask_in_capture(name, ptr, own_mode);
	pthread_barrier_wait(&capture.barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&capture.barrier);
	answer(of("%s, end", name), capture.result);
}

void facts_reserved_capture(void)
{
	const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL;
	const CUstreamCaptureMode local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	const CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	context_here = begin();
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	this_thread_captures("global", global, global);
	this_thread_captures("global, thread relaxed", global, relaxed);
	this_thread_captures("thread-local", local, global);
	this_thread_captures("relaxed", relaxed, global);
	another_captures("another thread globally", global, global);
	another_captures("another thread globally, this one thread-local", global, local);
	another_captures("another thread globally, this one relaxed", global, relaxed);
	another_captures("another thread thread-locally", local, global);
	another_captures("another thread relaxed", relaxed, global);
}

/* ---- a checkpoint of this process ----------------------------------------------------------- */

void facts_reserved_restore(void)
{
	static const char *const steps[] = {
		"cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint",
		"cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"};
	CUcontext context = begin();
	CUdeviceptr kept = allocated(8 * MIB), ptr = freed(4 * MIB);
	size_t i;

	reserve("before", ptr, 4 * MIB);
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		CUresult (*step)(int, void *) =
			(CUresult(*)(int, void *))dlsym(RTLD_DEFAULT, steps[i]);

		if (!step) {
			say(steps[i], "is not there");
			return;
		}
		answer(steps[i], step(getpid(), NULL));
	}
	ask_after_the_end("restored", context, ptr);
	ASK_ABOUT("restored, free of memory", cuMemFree_v2(kept));
	reserve_briefly("restored, where it was", kept, 8 * MIB);
}
