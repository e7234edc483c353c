/* SPDX-License-Identifier: MIT */
/*
 * Threads that do at random what the model does (tests/model), against an oracle that knows when
 * each buffer id died: when the cache allows the driver to free it. A region is stale if its buffer
 * id had died before the get that returned the region began. Memory that nobody uses when it dies
 * must not be pinned any more.
 *
 * A second build, with -DPDN_POINTS, is test_races_windows: threads are held up between any two
 * steps, until each race window has been entered (windows.h). When memory is pinned although its
 * free continued, that build prints the last steps of all threads about it.
 *
 * STRESS_SEED repeats the choices of a run (not its interleaving); STRESS_OPS makes it longer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#include "cache/base/thread/barrier.h"
#include "tests/unit/support/fork_test.h"
#include "tests/unit/support/refuse.h"
#include "tests/unit/support/sanitizers.h"
#include "cache/hit/region.h"
#ifdef PDN_POINTS
#include "tests/unit/support/windows.h"
#endif

#define MAX_THREADS 8
#define SLOTS	    12
#define MAX_DEPTH   4 /* regions that one thread holds at once */
#define MAX_IDS	    (1u << 22)
#define CONTEXTS    3 /* the slots take turns */

/* Without points there are too few steps to tell anything. */
static uint64_t note(const char *what, uint64_t addr, uint64_t number)
{
#ifdef PDN_POINTS
	return windows_note(what, addr, number);
#else
	(void)what, (void)addr, (void)number;
	return 0;
#endif
}

/* ---- the oracle ---- */

static uint64_t clock_now = 1;	      /* ticks at each death and at each get */
static uint64_t died_at[MAX_IDS];     /* by buffer id; 0: alive, or not born */
static uint64_t deaths, hits_checked; /* how much was seen */

static struct slot {
	pthread_mutex_t owner; /* held by the thread that allocates and frees; never by gets */
	uint64_t base, size;
	enum fake_kind kind;
	uint64_t
		trusted; /* bytes from the base that are not volatile, as the cache has been told */
	bool was_volatile; /* it was volatile when a get began that may still be under way */
	uint64_t asking;   /* gets under way */
	uint64_t users;	   /* gets that have begun, and are not yet put */
	uint64_t returned; /* gets that have succeeded */
} slots[SLOTS];

static uint64_t tick(void)
{
	return __atomic_add_fetch(&clock_now, 1, __ATOMIC_SEQ_CST);
}

static void id_dies(uint64_t id)
{
	ck_assert_uint_lt(id, MAX_IDS);
	__atomic_store_n(&died_at[id], tick(), __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&deaths, 1, __ATOMIC_RELAXED);
}

static void assert_not_stale(const pindown_region *region, uint64_t began, uint64_t addr)
{
	uint64_t id = pindown_region_buffer_id(region);
	uint64_t died = __atomic_load_n(&died_at[id], __ATOMIC_SEQ_CST);

	ck_assert_msg(!died || died > began,
		      "stale: 0x%" PRIx64 ", buffer id %" PRIu64 " died at %" PRIu64
		      ", the get began at %" PRIu64,
		      addr, id, died, began);
	ck_assert_uint_le(pindown_region_base(region), addr);
	ck_assert_uint_lt(addr, pindown_region_base(region) + pindown_region_length(region));
	__atomic_add_fetch(&hits_checked, 1, __ATOMIC_RELAXED);
}

/*
 * Is it still pinned when the free continues and nobody uses it? A get that was under way may have
 * had it already. Then that get will return it, which is the excuse. (Not in volatile memory: see
 * may_be_compared().)
 */
enum { SUSPECT = 1, EXCUSED = 2 };
static uint8_t suspicions[MAX_IDS];

static struct suspect {
	uint64_t id, addr, step; /* the step at which it was suspected */
} suspects[1 << 16];		 /* of this round */
static uint64_t suspected;

static void excuse(uint64_t id)
{
	if (__atomic_load_n(&suspicions[id], __ATOMIC_SEQ_CST) & SUSPECT)
		__atomic_fetch_or(&suspicions[id], EXCUSED, __ATOMIC_SEQ_CST);
}

static void begin_to_suspect(uint64_t id, uint64_t addr)
{
	uint64_t at = __atomic_fetch_add(&suspected, 1, __ATOMIC_SEQ_CST);

	ck_assert_uint_lt(at, sizeof(suspects) / sizeof(suspects[0]));
	suspects[at] = (struct suspect){id, addr, note("IT IS PINNED: id", addr, id)};
	__atomic_fetch_or(&suspicions[id], SUSPECT, __ATOMIC_SEQ_CST);
}

static void print_how_it_came(const struct suspect *suspect)
{
#ifdef PDN_POINTS
	printf("the steps before and after that one:\n");
	windows_print_steps(suspect->addr, suspect->step, 4000, 2000);
#endif
	(void)suspect;
}

/* Call it after a round, when all threads are gone. */
static void assert_no_suspicion(void)
{
	for (uint64_t i = 0; i < suspected; i++) {
		const struct suspect *suspect = &suspects[i];

		if (suspicions[suspect->id] != SUSPECT) /* each ck_assert is a system call */
			continue;
		print_how_it_came(suspect);
		ck_abort_msg("buffer id %" PRIu64
			     " was pinned when its free went on, and nobody used it",
			     suspect->id);
	}
	suspected = 0;
}

/* ---- the threads ---- */

struct player {
	struct worker worker;
	uint64_t random;
	unsigned ops;
	struct {
		pindown_region *region;
		struct slot *slot;
		uint64_t id;
	} held[MAX_DEPTH];
	unsigned depth;
	pindown_region *putting; /* the region that it is putting */
};
static struct player players[MAX_THREADS];

static uint32_t roll(struct player *player, uint32_t sides)
{
	/* xorshift64 */
	player->random ^= player->random << 13;
	player->random ^= player->random >> 7;
	player->random ^= player->random << 17;
	return (uint32_t)(player->random >> 33) % sides;
}

/* As long as a region is held, it keeps its id and is pinned. */
static void assert_holds(const pindown_region *region, uint64_t id)
{
	ck_assert_msg(pindown_region_buffer_id(region) == id,
		      "a held region has become another: buffer id %" PRIu64 ", was %" PRIu64,
		      pindown_region_buffer_id(region), id);
	ck_assert_msg(fake_open_exports_of(id) > 0,
		      "buffer id %" PRIu64 " was unpinned under its holder", id);
}

static void put_one(struct player *player)
{
	if (!player->depth)
		return;
	unsigned at = roll(player, player->depth);
	struct slot *slot = player->held[at].slot;
	assert_holds(player->held[at].region, player->held[at].id);
	__atomic_store_n(&player->putting, player->held[at].region, __ATOMIC_SEQ_CST);
	note("put begins, of id", slot->base, player->held[at].id);
	pindown_put(player->held[at].region);
	note("put is over, of id", slot->base, player->held[at].id);
	__atomic_store_n(&player->putting, NULL, __ATOMIC_SEQ_CST);
	player->held[at] = player->held[--player->depth];
	__atomic_sub_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
}

static void keep(struct player *player, struct slot *slot, pindown_region *region)
{
	uint64_t id = pindown_region_buffer_id(region);

	player->held[player->depth].region = region;
	player->held[player->depth].slot = slot;
	player->held[player->depth++].id = id;
}

/*
 * A get that can only hit counts as a user from its beginning; one that may pin, from its return.
 */
static void get_one(struct player *player)
{
	struct slot *slot = &slots[roll(player, SLOTS)];
	uint64_t addr = slot->base + roll(player, (uint32_t)KIB(64));
	unsigned flags = roll(player, 3) ? 0 : PINDOWN_GET_CACHED;
	pindown_region *region = NULL;

	if (player->depth == MAX_DEPTH)
		put_one(player);
	if (flags)
		__atomic_add_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&slot->asking, 1, __ATOMIC_SEQ_CST);
	uint64_t began = tick();
	note(flags ? "get of what is cached begins" : "get begins", slot->base, addr - slot->base);
	int result = pindown_get(addr, 1, flags, &region);
	if (result == PINDOWN_OK)
		note("get returns id", slot->base, pindown_region_buffer_id(region));
	else
		note("get fails, with minus", slot->base, (uint64_t)-result);
	__atomic_sub_fetch(&slot->asking, 1, __ATOMIC_SEQ_CST);
	if (result == PINDOWN_OK) {
		if (!flags)
			__atomic_add_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
		__atomic_add_fetch(&slot->returned, 1, __ATOMIC_SEQ_CST);
		excuse(pindown_region_buffer_id(region));
		assert_not_stale(region, began, addr);
		keep(player, slot, region);
		return;
	}
	if (flags)
		__atomic_sub_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
	ck_assert_msg(result == PINDOWN_ERR_NOT_DEVICE || result == PINDOWN_ERR_NO_SPACE ||
			      result == PINDOWN_ERR_BUSY || result == PINDOWN_ERR_DRIVER ||
			      result == PINDOWN_ERR_TIMED_OUT,
		      "%s", pindown_strerror(result));
}

static void *context_of(const struct slot *slot)
{
	return (void *)(uintptr_t)(0xc0 + (slot - slots) % CONTEXTS);
}

/* A forked child has its parent's descriptors for a moment, until its handler closes them. */
static uint64_t forks_begun, forks_ended;

static bool every_hit_is_compared; /* PINDOWN_VERIFY=always */

/* Call it with the slot's lock. Memory that is volatile may be freed unseen. */
static bool is_volatile(const struct slot *slot)
{
	return slot->trusted < slot->size;
}

/*
 * Call it with the slot's lock. A hit in volatile memory holds the region while it is compared, and
 * may then not return it. So may a hit that began just before the memory became trusted again.
 */
static bool may_be_compared(struct slot *slot)
{
	bool asked = __atomic_load_n(&slot->asking, __ATOMIC_SEQ_CST) != 0;

	if (!is_volatile(slot) && !asked)
		slot->was_volatile = false;
	return slot->was_volatile || (every_hit_is_compared && asked);
}

/*
 * A look at all regions could not ask about this one, as another thread just ended a context: its
 * hits are compared for as long as it lives, see end_or_check() in recheck.c.
 */
static bool is_compared_for_life(uint64_t id)
{
	bool any = false;

	pdn_lock();
	for (uint32_t n = 1; n <= pdn_region_high_water(); n++)
		any |= pdn_briefs[n].state != PDN_FREE && pdn_regions[n].buffer_id == id &&
		       pdn_regions[n].flags & PDN_REGION_UNASKED;
	pdn_unlock();
	return any;
}

/*
 * A late put of the record's previous region may find the record's new region, if that was in use
 * until a moment ago. Then the late put unpins the new region, and the put of its last user has
 * already returned. A free that begins later waits for the unpin.
 */
static bool is_unpinned_by_a_late_put(uint64_t id)
{
	bool any = false;

	pdn_lock();
	for (unsigned i = 0; i < MAX_THREADS; i++) {
		pindown_region *region = __atomic_load_n(&players[i].putting, __ATOMIC_SEQ_CST);

		any |= region && pindown_region_buffer_id(region) == id;
	}
	pdn_unlock();
	return any;
}

/* For a reader of the steps. */
static void note_regions_of(uint64_t id)
{
	pdn_lock();
	for (uint32_t n = 1; n <= pdn_region_high_water(); n++) {
		if (pdn_briefs[n].state == PDN_FREE || pdn_regions[n].buffer_id != id)
			continue;
		note("  in region", pdn_regions[n].base, n);
		note("    its state", pdn_regions[n].base, pdn_briefs[n].state);
		note("    the reason of its end", pdn_regions[n].base, pdn_regions[n].reason);
		note("    is held", pdn_regions[n].base, pdn_region_in_use(n));
	}
	pdn_unlock();
}

static void look_if_idle_is_unpinned(struct slot *slot, uint64_t id)
{
	uint64_t forks = __atomic_load_n(&forks_ended, __ATOMIC_SEQ_CST);
	uint64_t returned = __atomic_load_n(&slot->returned, __ATOMIC_SEQ_CST);

	if (!id || may_be_compared(slot) || __atomic_load_n(&slot->users, __ATOMIC_SEQ_CST) != 0 ||
	    is_unpinned_by_a_late_put(id) || fake_open_exports_of(id) == 0 ||
	    is_compared_for_life(id))
		return;
	if (__atomic_load_n(&forks_begun, __ATOMIC_SEQ_CST) != forks)
		return;
	begin_to_suspect(id, slot->base);
	note_regions_of(id);
	if (__atomic_load_n(&slot->returned, __ATOMIC_SEQ_CST) != returned)
		excuse(id); /* a get has returned it just now */
}

static void fork_one(void (*child)(void *))
{
	__atomic_fetch_add(&forks_begun, 1, __ATOMIC_SEQ_CST);
	note("fork begins", 0, 0);
	in_child(child, NULL);
	note("the child has ended", 0, 0);
	__atomic_fetch_add(&forks_ended, 1, __ATOMIC_SEQ_CST);
}

/* Call it with the slot's lock. Now and then the driver refuses, and nothing dies. */
static void end_slot(struct player *player, struct slot *slot)
{
	uint64_t id = fake_id(slot->base);
	bool refuses = roll(player, 10) == 0;

	if (!id)
		return;
	note("free begins, of id", slot->base, id);
	pdn_guard guard = slot->kind != FAKE_VMM && roll(player, 2)
				  ? pdn_end_range(slot->base, 0)
				  : pdn_end_range(slot->base, slot->size);
	note(refuses ? "free fails, of id" : "free continues, of id", slot->base, id);
	look_if_idle_is_unpinned(slot, id);
	if (!refuses) {
		id_dies(id);
		ck_assert_int_eq(fake_free(slot->base), FAKE_SUCCESS);
	}
	pdn_ended(guard);
}

static void begin_slot(struct player *player, struct slot *slot, bool seen)
{
	static const enum fake_kind kinds[] = {FAKE_LINEAR, FAKE_LINEAR, FAKE_POOL, FAKE_VMM};

	slot->kind = kinds[roll(player, 4)];
	slot->size = slot->kind == FAKE_VMM ? MIB(2) : KIB(64) << roll(player, 4);
	/*
	 * It may be longer than the memory before it. Until the cache is told, another thread's pin
	 * of it is checked.
	 */
	slot->was_volatile |= is_volatile(slot);
	fake_alloc_in(slot->base, slot->size, slot->kind,
		      slot->kind == FAKE_LINEAR ? context_of(slot) : NULL, 0,
		      slot->kind == FAKE_POOL ? (void *)0xb0 : NULL);
	note(seen ? "allocated: id" : "allocated unseen: id", slot->base, fake_id(slot->base));
	if (!seen)
		return;
	pdn_allocated(slot->base, slot->size);
	note("the cache was notified, of bytes", slot->base, slot->size);
	if (is_volatile(slot))
		slot->trusted = slot->size;
}

/* Replaces the memory; the address is used again at once, as the real driver does. */
static void free_and_alloc(struct player *player)
{
	struct slot *slot = &slots[roll(player, SLOTS)];

	if (pthread_mutex_trylock(&slot->owner))
		return;
	end_slot(player, slot);
	if (!fake_id(slot->base) && roll(player, 4))
		begin_slot(player, slot, true);
	pthread_mutex_unlock(&slot->owner);
}

/*
 * Frees and replaces memory without telling the cache, after telling it that the memory is
 * volatile.
 */
static void play_unseen(struct player *player)
{
	struct slot *slot = &slots[roll(player, SLOTS)];
	uint64_t id;

	if (pthread_mutex_trylock(&slot->owner))
		return;
	id = fake_id(slot->base);
	if (!is_volatile(slot)) {
		note("becomes volatile: id", slot->base, id);
		pdn_volatile(slot->base, MIB(2));
		slot->trusted = 0;
		slot->was_volatile = true;
	} else if (roll(player, 4) == 0) {
		note("becomes trusted again: id", slot->base, id);
		pdn_allocated(slot->base, MIB(2));
		slot->trusted = MIB(2);
	} else if (id) {
		note("is freed unseen: id", slot->base, id);
		/*
		 * Until this free the driver says that the memory is alive, and a hit believes it.
		 */
		ck_assert_int_eq(fake_free_unseen(slot->base), FAKE_SUCCESS);
		id_dies(id);
		if (roll(player, 2))
			begin_slot(player, slot, roll(player, 2));
	}
	pthread_mutex_unlock(&slot->owner);
}

static void end_context(struct player *player)
{
	unsigned first = roll(player, CONTEXTS), locked = first;
	void *context = context_of(&slots[first]);

	while (locked < SLOTS && pthread_mutex_trylock(&slots[locked].owner) == 0)
		locked += CONTEXTS;
	if (locked >= SLOTS) {
		note("end of context begins", 0, (uintptr_t)context);
		pdn_guard guard = pdn_end_context(context);
		note("end of context continues", 0, (uintptr_t)context);

		for (unsigned i = first; i < SLOTS; i += CONTEXTS) {
			uint64_t id = fake_id(slots[i].base);

			if (!id || slots[i].kind != FAKE_LINEAR)
				continue;
			look_if_idle_is_unpinned(&slots[i], id);
			id_dies(id);
		}
		fake_context_destroy(context);
		pdn_ended(guard);
	}
	while (locked > first) {
		locked -= CONTEXTS;
		pthread_mutex_unlock(&slots[locked].owner);
	}
}

static void fail_some_pins(struct player *player)
{
	static const int results[] = {FAKE_UNKNOWN, FAKE_OUT_OF_MEMORY, FAKE_OPERATING_SYSTEM};

	fake_fail(FAKE_EXPORT, roll(player, 4), 1 + roll(player, 3), results[roll(player, 3)]);
}

/* ThreadSanitizer does not support a fork among threads. */
#define CAN_FORK (!UNDER_TSAN)

static void child_has_nothing(void *arg)
{
	struct pindown_stats s;

	(void)arg;
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK);
	EXPECT(s.regions == 0 && s.bytes == 0 && s.pins == 0 && s.kept_regions == 0);
	EXPECT(pindown_flush() == 0);
}

static void play(void *arg)
{
	struct player *player = arg;

#ifdef PDN_POINTS
	windows_join(player->random);
#endif
	for (unsigned i = 0; i < player->ops; i++) {
		uint32_t what = roll(player, 1000);
		struct slot *slot = &slots[roll(player, SLOTS)];

		if (what < 480)
			get_one(player);
		else if (what < 770)
			put_one(player);
		else if (what < 900)
			free_and_alloc(player);
		else if (what < 930)
			play_unseen(player);
		else if (what < 950)
			pindown_flush();
		else if (what < 965)
			pindown_invalidate(slot->base, roll(player, 2) ? 0 : KIB(512));
		else if (what < 975)
			pdn_recheck(NULL);
		else if (what < 982)
			end_context(player);
		else if (what < 990)
			fail_some_pins(player);
		else if (what < 992)
			pdn_ended(pdn_end_all());
		else if (what < 999)
			stats();
		else if (CAN_FORK && roll(player, 8) == 0)
			fork_one(child_has_nothing);
	}
	while (player->depth)
		put_one(player);
#ifdef PDN_POINTS
	windows_leave();
#endif
}

/* ---- the runs ---- */

static unsigned ops_per_thread(unsigned threads)
{
	const char *given = getenv("STRESS_OPS");

	return (given ? (unsigned)strtoul(given, NULL, 0) : 40000u) / threads;
}

static void play_once(unsigned threads, uint64_t seed, unsigned ops)
{
	/* All threads get theirs first, because each looks at the others. */
	for (unsigned i = 0; i < threads; i++)
		players[i] = (struct player){.random = seed ^ (0x9e3779b97f4a7c15u * (i + 1)),
					     .ops = ops};
	for (unsigned i = 0; i < threads; i++)
		worker_start(&players[i].worker, play, &players[i]);
	for (unsigned i = 0; i < threads; i++)
		worker_join(&players[i].worker);
	assert_no_suspicion();
	ck_assert_uint_eq(stats().kept_regions, 0);
}

#ifdef PDN_POINTS

/*
 * Until each window was entered a few times, however long that takes on this machine, within a
 * limit.
 */
#define PATIENCE 250 /* seconds; or as many as WINDOWS_SECONDS says */
#define ENOUGH	 3

static void play_all(unsigned threads, uint64_t seed)
{
	const char *given = getenv("WINDOWS_SECONDS");
	time_t end = time(NULL) + (given ? atoi(given) : PATIENCE);
	unsigned rounds = 0;

	do {
		play_once(threads, seed + rounds++, ops_per_thread(threads) / 10);
	} while (!windows_all_entered(ENOUGH) && time(NULL) < end);
	printf("%u rounds. ", rounds);
	windows_print();
	ck_assert_msg(windows_all_entered(ENOUGH), "a window was hardly ever entered: see above");
}

#else

static void play_all(unsigned threads, uint64_t seed)
{
	play_once(threads, seed, ops_per_thread(threads));
}

#endif

static void run(unsigned threads)
{
	uint64_t seed = stress_seed(threads);

	for (unsigned i = 0; i < SLOTS; i++) {
		slots[i] = (struct slot){
			.base = BASE + MIB(2) * i, .size = KIB(64), .trusted = MIB(2)};
		pthread_mutex_init(&slots[i].owner, NULL);
		fake_alloc_in(slots[i].base, slots[i].size, FAKE_LINEAR, context_of(&slots[i]), 0,
			      NULL);
	}
	play_all(threads, seed);
	struct pindown_stats s = stats();
	printf("%" PRIu64 " regions compared, %" PRIu64 " deaths, %" PRIu64 " pins, %" PRIu64
	       " lost races, %" PRIu64 " evictions\n",
	       hits_checked, deaths, s.pins, s.lost_races, s.evictions);
	fflush(stdout);
	ck_assert_uint_gt(hits_checked, 0);
	ck_assert_uint_gt(deaths, 0);
	pdn_recheck(NULL); /* drops the regions whose memory was freed unseen */
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}

#ifdef PDN_POINTS

START_TEST(every_window_is_entered)
{
	setenv("PINDOWN_MAX_REGIONS", "7", 1);
	run(6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: each window is entered");
	TCase *tc = fork_case(suite, "windows");

	tcase_set_timeout(tc, 290);
	tcase_add_test(tc, every_window_is_entered);
	return run_suite(suite);
}

#else

START_TEST(two_to_eight_threads)
{
	run((unsigned)_i);
}
END_TEST

/* Each hit has a fence: cache/base/thread/barrier.h. */
START_TEST(four_threads_without_membarrier)
{
	if (!refuse_system_call(SYS_membarrier, EPERM)) {
		skip_test("no seccomp filter can be installed here");
		return;
	}
	run(4);
	ck_assert_uint_eq(pdn_fence_mode, PDN_FENCE_FOR_GOOD);
}
END_TEST

START_TEST(four_threads_and_a_small_budget)
{
	setenv("PINDOWN_MAX_REGIONS", "5", 1);
	run(4);
}
END_TEST

START_TEST(eight_threads_and_little_pin_space)
{
	fake_pin_space(KIB(1500));
	run(8);
}
END_TEST

START_TEST(four_threads_with_every_hit_checked)
{
	setenv("PINDOWN_VERIFY", "always", 1);
	every_hit_is_compared = true;
	run(4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: random, with an oracle");
	TCase *tc = fork_case(suite, "random");

	tcase_add_loop_test(tc, two_to_eight_threads, 2, 9);
	tcase_add_test(tc, four_threads_without_membarrier);
	tcase_add_test(tc, four_threads_and_a_small_budget);
	tcase_add_test(tc, eight_threads_and_little_pin_space);
	tcase_add_test(tc, four_threads_with_every_hit_checked);
	return run_suite(suite);
}

#endif
