// SPDX-License-Identifier: MIT
/*
 * misses calls:        the driver calls that a miss and its unpin make, and their cost beside that
 *                      of the export and the close alone, for each kind of memory
 * misses pins THREADS: pins in THREADS threads at once beside bare exports in as many, gets of the
 *                      same new memory, and hits and frees in another thread meanwhile
 *
 * It is linked with the cache's objects, so that it can count the calls, and runs on the simulated
 * driver or a real one. Prints lines NAME, THREADS and a value (ns, unless NAME says otherwise),
 * with tabs between.
 */
#define _GNU_SOURCE
#include "bench.h"
#include "calls.h"

#include "cache/hook_events.h"
#include "cache/pindown.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES	    ((size_t)4 << 20)
#define ROUNDS	    201
#define MAX_THREADS 64u

/* ---- the driver's functions, counted ------------------------------------------------------- */

#define MAX_CALLS 64u

static struct call {
	const char *name;
	uint64_t count;
} calls[MAX_CALLS];
static unsigned call_count;

#ifdef __x86_64__
#define STUB_BYTES 32u

/*
 * A stub that adds one to the count and jumps to the function, whatever its arguments are:
 * movabs $count, %r11; lock incq (%r11); movabs $function, %r11; jmp *%r11.
 */
static void *counted(void *function, const char *name)
{
	static unsigned char *stubs;
	unsigned char code[STUB_BYTES] = {0x49, 0xbb, 0,    0,	  0,	0,    0,    0,	  0,
					  0,	0xf0, 0x49, 0xff, 0x03, 0x49, 0xbb, 0,	  0,
					  0,	0,    0,    0,	  0,	0,    0x41, 0xff, 0xe3};
	uint64_t *count = &calls[call_count].count;
	unsigned char *stub;

	if (!stubs)
		stubs = mmap(NULL, MAX_CALLS * STUB_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stubs == MAP_FAILED || call_count == MAX_CALLS)
		stop("no room for a stub", (int)call_count);
	calls[call_count].name = name;
	stub = stubs + STUB_BYTES * call_count++;
	memcpy(code + 2, &count, sizeof(count));
	memcpy(code + 16, &function, sizeof(function));
	if (mprotect(stubs, MAX_CALLS * STUB_BYTES, PROT_READ | PROT_WRITE) != 0)
		stop("mprotect", 0);
	memcpy(stub, code, sizeof(code));
	if (mprotect(stubs, MAX_CALLS * STUB_BYTES, PROT_READ | PROT_EXEC) != 0)
		stop("mprotect", 0);
	return stub;
}
#else
static void *counted(void *function, const char *name)
{
	(void)name;
	return function;
}
#endif

static bool count_calls;

/* Before the first thread that pins, all functions have been looked up. */
static void *find_symbol(const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);

	return function && count_calls ? counted(function, name) : function;
}

static void forget_counts(void)
{
	for (unsigned i = 0; i < call_count; i++)
		calls[i].count = 0;
}

/* ---- memory -------------------------------------------------------------------------------- */

static CUdeviceptr linear(void)
{
	CUdeviceptr at;

	must(cuMemAlloc_v2(&at, BYTES), "cuMemAlloc");
	return at;
}

static CUdeviceptr from_pool(void)
{
	CUdeviceptr at;

	must(cuMemAllocAsync(&at, BYTES, NULL), "cuMemAllocAsync");
	must(cuStreamSynchronize(NULL), "cuStreamSynchronize");
	return at;
}

static CUdeviceptr the_mapping;

static CUdeviceptr mapped(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
					  .allocFlags = {.gpuDirectRDMACapable = 1}};
	const CUmemAccessDesc access = {.location = prop.location,
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;

	must(cuMemAddressReserve(&the_mapping, BYTES, 0, 0, 0), "cuMemAddressReserve");
	must(cuMemCreate(&handle, BYTES, &prop, 0), "cuMemCreate");
	must(cuMemMap(the_mapping, BYTES, 0, handle, 0), "cuMemMap");
	must(cuMemRelease(handle), "cuMemRelease");
	must(cuMemSetAccess(the_mapping, BYTES, &access, 1), "cuMemSetAccess");
	return the_mapping;
}

/* hook/ knows from cuMemMap what is mapped. */
static bool is_mapped(uint64_t base, uint64_t id)
{
	(void)id;
	return the_mapping && base - the_mapping < BYTES;
}

/* ---- one thread ---------------------------------------------------------------------------- */

static void export_and_close(CUdeviceptr at, size_t bytes)
{
	int fd = -1;

	must(cuMemGetHandleForAddressRange(&fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
	     "cuMemGetHandleForAddressRange");
	close(fd);
}

static pindown_region *must_get(CUdeviceptr at)
{
	pindown_region *region;
	int result = pindown_get(at, BYTES, 0, &region);

	if (result != PINDOWN_OK)
		stop(pindown_strerror(result), result);
	return region;
}

static void miss_and_unpin(CUdeviceptr at, size_t bytes)
{
	pindown_put(must_get(at));
	if (pindown_invalidate(at, bytes) != 1)
		stop("a region is not unpinned", 0);
}

static double time_of(void (*step)(CUdeviceptr, size_t), CUdeviceptr at, size_t bytes)
{
	double times[ROUNDS], begin;

	step(at, bytes);
	for (int i = 0; i < ROUNDS; i++) {
		begin = now_ns();
		step(at, bytes);
		times[i] = now_ns() - begin;
	}
	return median(times, ROUNDS);
}

/* The export by hand is of the range that the cache exports, which is known from a region. */
static void measure_kind(const char *kind, CUdeviceptr at)
{
	pindown_region *region = must_get(at);
	CUdeviceptr base = pindown_region_pin_base(region);
	size_t bytes = pindown_region_pin_length(region);

	pindown_put(region);
	pindown_flush();
	miss_and_unpin(at, BYTES);
	forget_counts();
	miss_and_unpin(at, BYTES);
	for (unsigned i = 0; i < call_count; i++)
		if (calls[i].count)
			printf("calls of a miss and its unpin, %s: %s\t1\t%llu\n", kind,
			       calls[i].name, (unsigned long long)calls[i].count);
	printf("export and close alone, %s\t1\t%.1f\n", kind,
	       time_of(export_and_close, base, bytes));
	printf("miss and unpin, %s\t1\t%.1f\n", kind, time_of(miss_and_unpin, at, BYTES));
}

/* ---- many threads -------------------------------------------------------------------------- */

enum { EACH = 200 };

struct worker {
	pthread_t thread;
	CUdeviceptr own;
	double ns;
};

static pthread_barrier_t line;
static unsigned threads;
static CUdeviceptr shared;
static bool is_over;

static void *pin_own(void *arg)
{
	struct worker *w = arg;
	double begin;

	use_context();
	miss_and_unpin(w->own, BYTES);
	pthread_barrier_wait(&line);
	begin = now_ns();
	for (int i = 0; i < EACH; i++)
		miss_and_unpin(w->own, BYTES);
	w->ns = (now_ns() - begin) / EACH;
	return NULL;
}

static void *export_own(void *arg)
{
	struct worker *w = arg;
	double begin;

	use_context();
	export_and_close(w->own, BYTES);
	pthread_barrier_wait(&line);
	begin = now_ns();
	for (int i = 0; i < EACH; i++)
		export_and_close(w->own, BYTES);
	w->ns = (now_ns() - begin) / EACH;
	return NULL;
}

/* One of the threads ends the region between two rounds. */
static void *pin_shared(void *arg)
{
	struct worker *w = arg;
	double begin;

	use_context();
	w->ns = 0;
	for (int i = 0; i < EACH; i++) {
		if (pthread_barrier_wait(&line) == PTHREAD_BARRIER_SERIAL_THREAD)
			pindown_invalidate(shared, BYTES);
		pthread_barrier_wait(&line);
		begin = now_ns();
		pindown_put(must_get(shared));
		w->ns += (now_ns() - begin) / EACH;
	}
	return NULL;
}

static void *pin_on(void *arg)
{
	struct worker *w = arg;

	use_context();
	pthread_barrier_wait(&line);
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		miss_and_unpin(w->own, BYTES);
	return NULL;
}

static void start(struct worker *workers, void *(*work)(void *))
{
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			stop("no thread", (int)i);
}

static double end(struct worker *workers)
{
	double sum = 0;

	for (unsigned i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		sum += workers[i].ns;
	}
	return sum / threads;
}

static double together(struct worker *workers, void *(*work)(void *))
{
	pthread_barrier_init(&line, NULL, threads);
	start(workers, work);
	return end(workers);
}

static uint64_t pins(void)
{
	struct pindown_stats now;

	if (pindown_stats(&now, sizeof(now), -1) != PINDOWN_OK)
		stop("pindown_stats", 0);
	return now.pins;
}

static void hit_16(void)
{
	for (unsigned i = 0; i < 16; i++)
		pindown_put(must_get(shared));
}

/* The cache's share of a free of memory that is not registered. */
static void free_16(void)
{
	for (unsigned i = 0; i < 16; i++)
		pdn_ended(pdn_end_range(shared + ((uint64_t)1 << 40), 0));
}

static double sixteenth(void (*step)(void))
{
	enum { TURNS = 5001 };
	static double values[TURNS];

	for (unsigned i = 0; i < TURNS; i++) {
		double begin = now_ns();

		step();
		values[i] = (now_ns() - begin) / 16;
	}
	return median(values, TURNS);
}

static void print(const char *name, double value)
{
	printf("%s\t%u\t%.2f\n", name, threads, value);
}

static void measure_pins(void)
{
	static struct worker workers[MAX_THREADS];
	uint64_t before;

	shared = linear();
	for (unsigned i = 0; i < threads; i++)
		workers[i].own = linear();
	print("export and close alone, each thread its own", together(workers, export_own));
	print("miss and unpin, each thread its own", together(workers, pin_own));
	before = pins();
	print("get of the same new memory", together(workers, pin_shared));
	print("get of the same new memory: pins a round", (double)(pins() - before) / EACH);
	pindown_put(must_get(shared));
	pthread_barrier_init(&line, NULL, threads + 1);
	start(workers, pin_on);
	pthread_barrier_wait(&line);
	print("hit beside threads that pin", sixteenth(hit_16));
	print("free of what is not registered, beside threads that pin", sixteenth(free_16));
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	end(workers);
}

/* ---- main ---------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	bool all_kinds = argc == 2 && strcmp(argv[1], "calls") == 0;

	threads = argc == 3 && strcmp(argv[1], "pins") == 0 ? (unsigned)atoi(argv[2]) : 0;
	if (!all_kinds && (!threads || threads > MAX_THREADS)) {
		fprintf(stderr, "usage: %s calls | pins THREADS (1 to %u)\n", argv[0], MAX_THREADS);
		return 2;
	}
	count_calls = all_kinds;
	open_driver();
	pdn_find_driver_symbol = find_symbol;
	pdn_is_mapped = is_mapped;
	pdn_set_intercepting(true);
	if (all_kinds) {
		measure_kind("linear", linear());
		measure_kind("pool", from_pool());
		measure_kind("mapped", mapped());
	} else {
		measure_pins();
	}
	pindown_flush();
	return 0;
}
