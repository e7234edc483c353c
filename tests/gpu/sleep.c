/* SPDX-License-Identifier: MIT */
/*
 * A program that puts its memory to sleep and wakes it, as vLLM, SGLang and torch_memory_saver do:
 * it unmaps and releases a segment, and later creates other memory and maps it at the same
 * addresses. Another thread registers the memory in each round, by ibv_reg_mr, by dma-bufs that it
 * exports itself and by pindown_get, and holds the registrations for two more rounds.
 *
 * No answer may be about the memory of an earlier round. A third thread gets and puts all the time:
 * `generation` is even while the memory is mapped. If it was the same even number before a get and
 * after it, the region must be of this round's memory.
 *
 * On the simulated driver the recording libibverbs moves bytes by the registrations, old ones and
 * new ones. On a real one there is no card that does. PINDOWN_HELD decides what must be seen.
 *
 * sleep [ROUNDS [tidy]]: with "tidy" everything is given back before the memory goes to sleep.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "hook/cuda/abi.h"
#include "tests/verbs/recorder.h"

#define MIB	(1ull << 20)
#define PIECE	(2 * MIB)
#define PIECES	4
#define SEGMENT (PIECES * PIECE)
#define KEPT	2 /* for so many more rounds registrations are held */
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static CUcontext context;
static CUdeviceptr segment;
static CUmemGenericAllocationHandle handles[PIECES];
static struct ibv_pd *pd;
static bool simulated, revokes, tidy;
static unsigned failed, rounds;

static uint64_t ids[PIECES];	/* this round's buffer ids, written while it is odd: */
static unsigned generation = 1; /* see above */
static bool done;		/* relaxed: for the asking thread, no matter when it sees it */
static unsigned compared, asked;

/*
 * The simulated driver can't bring mappings together for one dma-buf once a part of them has one.
 * So wake() does it, and no other thread pins meanwhile.
 */
static pthread_rwlock_t waking = PTHREAD_RWLOCK_INITIALIZER;

/* ---- small things --------------------------------------------------------------------------- */

static void __attribute__((noreturn)) stop(const char *why, int code)
{
	printf("sleep: %s: %d\n", why, code);
	exit(2);
}

static void expect(bool right, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void expect(bool right, const char *format, ...)
{
	va_list arguments;

	if (right || __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED) >= 10)
		return;
	va_start(arguments, format);
	printf("round %u: not so: ", rounds);
	vprintf(format, arguments);
	puts("");
	va_end(arguments);
}

static void must(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS)
		stop(call, result);
}
#define CU(fn, ...) must(fn(__VA_ARGS__), #fn)

static struct pindown_stats stats(void)
{
	struct pindown_stats now = {0};

	pindown_stats(&now, sizeof(now), -1);
	return now;
}

static uint64_t id_at(CUdeviceptr at)
{
	uint64_t id = 0;

	CU(cuPointerGetAttribute, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
	return id;
}

/* This process's descriptors of dma-bufs of a real driver. */
static unsigned dmabufs(void)
{
	DIR *entries = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned count = 0;
	char target[64];

	while (entries && (entry = readdir(entries))) {
		ssize_t n = readlinkat(dirfd(entries), entry->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
		count += strstr(target, "dmabuf") != NULL;
	}
	if (entries)
		closedir(entries);
	return count;
}

static size_t free_bytes(void)
{
	size_t left = 0, all;

	CU(cuMemGetInfo_v2, &left, &all);
	return left;
}

static void write_word(CUdeviceptr at, uint64_t word)
{
	CU(cuMemcpyHtoD_v2, at, &word, sizeof(word));
}

static uint64_t word_at(CUdeviceptr at)
{
	uint64_t word = 0;

	CU(cuMemcpyDtoH_v2, &word, at, sizeof(word));
	return word;
}

static int export_of(CUdeviceptr at, size_t size)
{
	int fd = -1;

	CU(cuMemGetHandleForAddressRange, &fd, at, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	return fd;
}

/* ---- sleep and wake ------------------------------------------------------------------------- */

/* In each piece, what is at its begin says which round and piece it is. */
static uint64_t word_of(unsigned round, unsigned piece)
{
	return 0x5eed00000000u + round * 16u + piece;
}

static CUdeviceptr piece_at(unsigned piece)
{
	return segment + piece * PIECE;
}

static void wake(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	if (simulated)
		pthread_rwlock_wrlock(&waking);
	for (unsigned i = 0; i < PIECES; i++) {
		CU(cuMemCreate, &handles[i], PIECE, &prop, 0);
		CU(cuMemMap, piece_at(i), PIECE, 0, handles[i], 0);
	}
	CU(cuMemSetAccess, segment, SEGMENT, &access, 1);
	for (unsigned i = 0; i < PIECES; i++) {
		write_word(piece_at(i), word_of(rounds, i));
		/* Relaxed: `generation` makes it visible. */
		__atomic_store_n(&ids[i], id_at(piece_at(i)), __ATOMIC_RELAXED);
	}
	if (simulated) {
		close(export_of(segment, SEGMENT));
		pthread_rwlock_unlock(&waking);
	}
	/* Release: pairs with the acquire in look(). */
	__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
}

/* Some programs release the memory before they unmap it, and some unmap all at once. */
static void fall_asleep(void)
{
	bool release_first = rounds % 3 == 0, at_once = rounds % 2;

	/* Acquire: pairs with the release in look(). It is odd before the memory ends. */
	__atomic_fetch_add(&generation, 1, __ATOMIC_ACQ_REL);
	for (unsigned i = 0; release_first && i < PIECES; i++)
		CU(cuMemRelease, handles[i]);
	for (unsigned i = 0; !at_once && i < PIECES; i++)
		CU(cuMemUnmap, piece_at((i + rounds) % PIECES), PIECE);
	if (at_once)
		CU(cuMemUnmap, segment, SEGMENT);
	for (unsigned i = 0; !release_first && i < PIECES; i++)
		CU(cuMemRelease, handles[i]);
}

/*
 * A pin that a free has outrun takes a moment to be undone. The free waits for it, but not for
 * ever, if the asking thread has no processor.
 */
static bool only_held_is_pinned(void)
{
	time_t deadline = time(NULL) + 30;
	struct pindown_stats now;

	do
		now = stats();
	while (now.bytes != now.kept_bytes && time(NULL) < deadline && sched_yield() == 0);
	return now.bytes == now.kept_bytes;
}

/* While nothing is mapped. */
static void check_asleep(void)
{
	pindown_region *region;

	for (unsigned i = 0; i < PIECES; i++) {
		expect(pindown_get(piece_at(i), 4096, PINDOWN_GET_CACHED, &region) != PINDOWN_OK,
		       "nothing is found of memory that is asleep");
		expect(pindown_get(piece_at(i), 4096, 0, &region) != PINDOWN_OK,
		       "memory that is asleep can't be registered");
	}
	expect(only_held_is_pinned(), "only what is held is pinned: %llu bytes",
	       (unsigned long long)stats().bytes);
	expect(!revokes || recorder_open_mrs() == 0, "every registration has ended: %u",
	       recorder_open_mrs());
}

/* ---- a thread that holds registrations ------------------------------------------------------ */

/*
 * The first lies in one mapping; the second crosses from one to the next, and so its region takes
 * the place of the first one's; the third is by a dma-buf of the program's own.
 */
enum { FIRST, ACROSS, DMABUF, MRS };
static const struct {
	CUdeviceptr offset;
	size_t length;
} windows[MRS] = {{0, PIECE}, {MIB, 2 * PIECE}, {3 * PIECE, PIECE}};

struct held {
	unsigned round;
	struct ibv_mr *mr[MRS];
	pindown_region *region;
	bool here;
};

static struct ibv_mr *register_by_dmabuf(CUdeviceptr at, size_t length)
{
	int fd = export_of(at, length);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, length, at, fd, ACCESS);

	close(fd);
	return mr;
}

static void hold(struct held *held)
{
	unsigned piece;

	held->round = rounds;
	for (unsigned i = 0; i < MRS; i++) {
		CUdeviceptr at = segment + windows[i].offset;

		held->mr[i] = i == DMABUF ? register_by_dmabuf(at, windows[i].length)
					  : ibv_reg_mr(pd, (void *)at, windows[i].length, ACCESS);
		if (!held->mr[i])
			stop("a registration has failed", (int)i);
	}
	if (pindown_get(segment + PIECE, PIECE, 0, &held->region) != PINDOWN_OK)
		stop("pindown_get has failed", pindown_driver_error());
	piece = (unsigned)((pindown_region_base(held->region) - segment) / PIECE);
	expect(pindown_region_buffer_id(held->region) == ids[piece],
	       "the region is of this round's memory");
	expect(pindown_region_is_live(held->region), "it is live");
	held->here = true;
}

static enum recorder_status move(struct ibv_mr *from, CUdeviceptr source, struct ibv_mr *to,
				 CUdeviceptr target)
{
	return recorder_copy(from->lkey, source, to->rkey, target, sizeof(uint64_t));
}

/* A word of the segment that no round writes; the card does. */
#define TARGET (segment + 3 * PIECE + 4096)

/* The card reads the memory of this round by its registrations. */
static void check_new(const struct held *held)
{
	for (unsigned i = 0; simulated && i < MRS; i++) {
		unsigned piece = i == DMABUF ? 3 : i;

		write_word(TARGET, 0);
		expect(move(held->mr[i], piece_at(piece), held->mr[DMABUF], TARGET) == RECORDER_OK,
		       "registration %u works", i);
		expect(word_at(TARGET) == word_of(rounds, piece), "registration %u: %#llx", i,
		       (unsigned long long)word_at(TARGET));
	}
}

/* By those of an earlier round it reads that round's memory, or nothing. */
static void check_old(const struct held *old, const struct held *now)
{
	expect(!pindown_region_is_live(old->region), "a region of an earlier round has ended");
	for (unsigned i = 0; i < MRS; i++) {
		unsigned piece = i == DMABUF ? 3 : i;
		enum recorder_status status;

		for (unsigned j = 0; j < MRS; j++)
			expect(old->mr[i] != now->mr[j] &&
				       (revokes || old->mr[i]->rkey != now->mr[j]->rkey),
			       "registration %u is not one of this round's", i);
		if (!simulated)
			continue;
		write_word(TARGET, 0);
		status = move(old->mr[i], piece_at(piece), now->mr[DMABUF], TARGET);
		expect(status == (revokes ? RECORDER_LOCAL_ERROR : RECORDER_OK),
		       "old registration %u: status %d", i, status);
		expect(word_at(TARGET) == (revokes ? 0 : word_of(old->round, piece)),
		       "old registration %u: %#llx", i, (unsigned long long)word_at(TARGET));
	}
}

static void let_go(struct held *held)
{
	for (unsigned i = 0; held->here && i < MRS; i++)
		expect(ibv_dereg_mr(held->mr[i]) == 0, "ibv_dereg_mr succeeds");
	if (held->here)
		pindown_put(held->region);
	held->here = false;
}

/* The main thread and this one take turns: each waits at the barrier for the other's turn. */
static pthread_barrier_t turn;
static bool over;

static void *holder(void *unused)
{
	struct held held[KEPT + 1] = {0};

	CU(cuCtxSetCurrent, context);
	for (;;) {
		pthread_barrier_wait(&turn);
		if (over)
			break;
		struct held *now = &held[rounds % (KEPT + 1)];
		let_go(now);
		hold(now);
		check_new(now);
		for (unsigned i = 0; i <= KEPT; i++)
			if (held[i].here && &held[i] != now)
				check_old(&held[i], now);
		if (tidy)
			let_go(now);
		pthread_barrier_wait(&turn);
	}
	for (unsigned i = 0; i <= KEPT; i++)
		let_go(&held[i]);
	pthread_barrier_wait(&turn);
	return unused;
}

/* ---- a thread that asks all the time -------------------------------------------------------- */

/* In the index only, or a pin if there is none. */
static int ask(CUdeviceptr at, bool pin, pindown_region **region)
{
	int result;

	if (!pin || !simulated)
		return pindown_get(at, 4096, pin ? 0 : PINDOWN_GET_CACHED, region);
	pthread_rwlock_rdlock(&waking);
	result = pindown_get(at, 4096, 0, region);
	pthread_rwlock_unlock(&waking);
	return result;
}

static void look(unsigned random)
{
	/* Acquire: pairs with the release in wake(), so the ids are this round's or later ones. */
	unsigned before = __atomic_load_n(&generation, __ATOMIC_ACQUIRE), piece = random % PIECES;
	pindown_region *region;
	uint64_t id, own;
	bool same;

	if (ask(piece_at(piece), random & 4, &region) != PINDOWN_OK)
		return;
	asked++;
	piece = (unsigned)((pindown_region_base(region) - segment) / PIECE);
	id = pindown_region_buffer_id(region);
	own = __atomic_load_n(&ids[piece], __ATOMIC_RELAXED);
	/* Release: what was read above was read before. Pairs with wake() and fall_asleep(). */
	same = __atomic_fetch_add(&generation, 0, __ATOMIC_ACQ_REL) == before && before % 2 == 0;
	compared += same;
	expect(!same || id == own, "a get finds this round's memory");
	pindown_put(region);
}

static void *asker(void *unused)
{
	unsigned random = 1;

	CU(cuCtxSetCurrent, context);
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		random = random * 1664525u + 1013904223u;
		look(random >> 16);
	}
	return unused;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *held = getenv("PINDOWN_HELD");

	CU(cuInit, 0);
	CU(cuDevicePrimaryCtxRetain, &context, 0);
	CU(cuCtxSetCurrent, context);
	pd = ibv_alloc_pd(ibv_open_device(list[0]));
	ibv_free_device_list(list);
	simulated = dlsym(RTLD_DEFAULT, "sim_calls") != NULL;
	revokes = held && strcmp(held, "revoke") == 0;
	if (!stats().intercepting)
		stop("libpindown.so is not preloaded", 0);
	CU(cuMemAddressReserve, &segment, SEGMENT, 0, 0, 0);
}

static void run(unsigned count)
{
	pthread_t threads[2];

	pthread_barrier_init(&turn, NULL, 2);
	if (pthread_create(&threads[0], NULL, holder, NULL) != 0 ||
	    pthread_create(&threads[1], NULL, asker, NULL) != 0)
		stop("no thread", 0);
	for (rounds = 0; rounds < count; rounds++) {
		wake();
		pthread_barrier_wait(&turn); /* the holder's turn */
		pthread_barrier_wait(&turn);
		fall_asleep();
		check_asleep();
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	pthread_join(threads[1], NULL);
	over = true;
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	pthread_join(threads[0], NULL);
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 1000, open;
	struct pindown_stats after;
	size_t before;

	tidy = argc > 2 && strcmp(argv[2], "tidy") == 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	begin();
	/* What the driver keeps for itself comes with the first round. */
	run(1);
	before = free_bytes();
	open = dmabufs();
	generation = 1;
	done = over = false;
	run(count);
	after = stats();
	expect(after.bytes == 0 && after.regions == 0, "nothing is pinned: %llu bytes",
	       (unsigned long long)after.bytes);
	expect(after.kept_bytes == 0, "nothing is kept");
	expect(after.missed_invalidations == 0, "no free was missed");
	expect(recorder_open_mrs() == 0, "no registration is left: %u", recorder_open_mrs());
	expect(recorder_strangers() == 0, "libibverbs got its own registrations only");
	expect(dmabufs() == open, "%u dma-bufs are open, %u before", dmabufs(), open);
	/* A real driver keeps some memory for itself. */
	expect(free_bytes() + (simulated ? 0 : 32 * MIB) >= before,
	       "%zu bytes are free, %zu before", free_bytes(), before);
	CU(cuMemAddressFree, segment, SEGMENT);
	printf("%u rounds, %u registrations%s, %llu misses, %llu hits, "
	       "%u gets meanwhile, %u of them compared\n",
	       count, count * MRS, tidy ? "" : " held over a sleep",
	       (unsigned long long)after.misses, (unsigned long long)after.hits, asked, compared);
	printf("%s, %u failures\n", failed ? "FAILED" : "passed", failed);
	return failed != 0;
}
