/* SPDX-License-Identifier: MIT */
/*
 * Threads that allocate, free, get, put, flush and invalidate at random, against an oracle that knows
 * which buffer id died when: it does when the cache says that the driver may free it. A region is stale
 * if its buffer id had died before the get that returned it began. And if nobody uses the memory then,
 * it must not be pinned any more.
 *
 * STRESS_SEED repeats a run's choices (not its interleaving); STRESS_OPS makes it longer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "cache_test.h"

#define MOST_THREADS 8
#define SLOTS	     12
#define DEEPEST	     4 /* regions that one thread holds at once */
#define MOST_IDS     (1u << 20)

/* ---- the oracle ---- */

static uint64_t clock_now = 1;	      /* ticks at each death and at each get */
static uint64_t died_at[MOST_IDS];    /* by buffer id; 0: alive, or not born */
static uint64_t deaths, hits_checked; /* how much was seen */

static struct slot {
	pthread_mutex_t owner; /* of the one that allocates and frees; never held by gets */
	uint64_t base, size;
	uint64_t users; /* gets begun and not yet put */
} slots[SLOTS];

static uint64_t tick(void)
{
	return __atomic_add_fetch(&clock_now, 1, __ATOMIC_SEQ_CST);
}

static void id_dies(uint64_t id)
{
	ck_assert_uint_lt(id, MOST_IDS);
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

/* ---- the threads ---- */

struct player {
	struct worker worker;
	uint64_t random;
	unsigned ops;
	struct {
		pindown_region *region;
		struct slot *slot;
	} held[DEEPEST];
	unsigned depth;
};

static uint32_t roll(struct player *player, uint32_t sides)
{
	/* xorshift64 */
	player->random ^= player->random << 13;
	player->random ^= player->random >> 7;
	player->random ^= player->random << 17;
	return (uint32_t)(player->random >> 33) % sides;
}

static void put_one(struct player *player)
{
	if (!player->depth)
		return;
	unsigned at = roll(player, player->depth);
	struct slot *slot = player->held[at].slot;
	pindown_put(player->held[at].region);
	player->held[at] = player->held[--player->depth];
	__atomic_sub_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
}

static void get_one(struct player *player)
{
	struct slot *slot = &slots[roll(player, SLOTS)];
	uint64_t addr = slot->base + roll(player, (uint32_t)KIB(64));
	pindown_region *region = NULL;

	if (player->depth == DEEPEST)
		put_one(player);
	__atomic_add_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
	uint64_t began = tick();
	int result = pindown_get(addr, 1, roll(player, 8) ? 0 : PINDOWN_GET_CACHED, &region);
	if (result == PINDOWN_OK) {
		assert_not_stale(region, began, addr);
		player->held[player->depth].region = region;
		player->held[player->depth++].slot = slot;
		return;
	}
	__atomic_sub_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
	ck_assert_msg(result == PINDOWN_ERR_NOT_DEVICE || result == PINDOWN_ERR_NO_SPACE ||
			      result == PINDOWN_ERR_BUSY,
		      "%s", pindown_strerror(result));
}

/* Under the slot's lock. The driver refuses now and then: then nothing has died. */
static void end_slot(struct player *player, struct slot *slot)
{
	uint64_t id = fake_id(slot->base);
	bool refuses = roll(player, 10) == 0;

	if (!id)
		return;
	pd_guard guard = roll(player, 2) ? pd_end_range(slot->base, 0)
					 : pd_end_range(slot->base, slot->size);
	if (__atomic_load_n(&slot->users, __ATOMIC_SEQ_CST) == 0)
		ck_assert_msg(fake_open_exports_of(id) == 0,
			      "buffer id %" PRIu64 " is pinned, and nobody uses it", id);
	if (!refuses) {
		id_dies(id);
		ck_assert_int_eq(fake_free(slot->base), FAKE_SUCCESS);
	}
	pd_ended(guard);
}

/* In place of what was there; the address is used again at once, as the real driver does. */
static void free_and_alloc(struct player *player)
{
	struct slot *slot = &slots[roll(player, SLOTS)];

	if (pthread_mutex_trylock(&slot->owner))
		return;
	end_slot(player, slot);
	if (!fake_id(slot->base) && roll(player, 4)) {
		slot->size = KIB(64) << roll(player, 4);
		watched_alloc(slot->base, slot->size, roll(player, 3) ? FAKE_LINEAR : FAKE_POOL);
	}
	pthread_mutex_unlock(&slot->owner);
}

static void play(void *arg)
{
	struct player *player = arg;

	for (unsigned i = 0; i < player->ops; i++) {
		uint32_t what = roll(player, 100);
		struct slot *slot = &slots[roll(player, SLOTS)];

		if (what < 50)
			get_one(player);
		else if (what < 80)
			put_one(player);
		else if (what < 95)
			free_and_alloc(player);
		else if (what < 97)
			pindown_flush();
		else if (what < 98)
			pindown_invalidate(slot->base, roll(player, 2) ? 0 : KIB(512));
		else if (what < 99)
			pd_recheck(NULL);
		else
			stats();
	}
	while (player->depth)
		put_one(player);
}

/* ---- the runs ---- */

static uint64_t seed_of_this_run(void)
{
	const char *given = getenv("STRESS_SEED");
	uint64_t seed = 0;

	if (given)
		seed = strtoull(given, NULL, 0);
	else
		ck_assert_int_eq(getrandom(&seed, sizeof(seed), 0), (int)sizeof(seed));
	return seed ? seed : 1;
}

static unsigned ops_per_thread(unsigned threads)
{
	const char *given = getenv("STRESS_OPS");

	return (given ? (unsigned)strtoul(given, NULL, 0) : 40000u) / threads;
}

static void run(unsigned threads)
{
	static struct player players[MOST_THREADS];
	uint64_t seed = seed_of_this_run();

	printf("%u threads, STRESS_SEED=0x%" PRIx64 "\n", threads, seed);
	fflush(stdout);
	for (unsigned i = 0; i < SLOTS; i++) {
		slots[i] = (struct slot){.base = BASE + MIB(2) * i, .size = KIB(64)};
		pthread_mutex_init(&slots[i].owner, NULL);
		watched_alloc(slots[i].base, slots[i].size, FAKE_LINEAR);
	}
	for (unsigned i = 0; i < threads; i++) {
		players[i] = (struct player){.random = seed ^ (0x9e3779b97f4a7c15u * (i + 1)),
					     .ops = ops_per_thread(threads)};
		worker_start(&players[i].worker, play, &players[i]);
	}
	for (unsigned i = 0; i < threads; i++)
		worker_join(&players[i].worker);
	struct pindown_stats s = stats();
	printf("%" PRIu64 " regions compared, %" PRIu64 " deaths, %" PRIu64 " pins, %" PRIu64
	       " lost races, %" PRIu64 " evictions\n",
	       hits_checked, deaths, s.pins, s.lost_races, s.evictions);
	fflush(stdout);
	ck_assert_uint_gt(hits_checked, 0);
	ck_assert_uint_gt(deaths, 0);
	ck_assert_uint_eq(s.kept_regions, 0);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}

START_TEST(two_threads)
{
	run(2);
}
END_TEST

START_TEST(four_threads_and_a_small_budget)
{
	setenv("PINDOWN_MAX_REGIONS", "5", 1);
	run(4);
}
END_TEST

START_TEST(eight_threads)
{
	run(8);
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
	run(4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: random, with an oracle");
	TCase *tc = cache_case(suite, "random");

	tcase_add_test(tc, two_threads);
	tcase_add_test(tc, four_threads_and_a_small_budget);
	tcase_add_test(tc, eight_threads);
	tcase_add_test(tc, eight_threads_and_little_pin_space);
	tcase_add_test(tc, four_threads_with_every_hit_checked);
	return run_suite(suite);
}
