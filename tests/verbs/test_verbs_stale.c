/* SPDX-License-Identifier: MIT */
/*
 * Threads that allocate, register, send and free by chance, through a cache by address of their own
 * as middleware has it, which hears of no free. What the card sends by a registration that the
 * cache finds is compared with what is in the memory. STRESS_SEED repeats the choices of a run.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/dice.h"
#include "tests/unit/support/suite.h"
#include "verbs_test.h"

#define THREADS 4
#define PLACES	128
#define SENT	64u

enum kind { LARGE, SMALL, POOL, MAPPED, KINDS };

/* Under the lock. */
static struct entry {
	CUdeviceptr at;
	enum kind kind;
	struct ibv_mr *mr;
} entries[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned hits, wrong[KINDS], failed[KINDS];

static struct player {
	pthread_t thread;
	uint64_t random;
	char got[4096]; /* what the card has sent */
	struct ibv_mr *target;
} players[THREADS];

static uint32_t roll(struct player *me, uint32_t sides)
{
	return (uint32_t)below(&me->random, sides);
}

static void drop(struct entry *entry)
{
	if (entry->mr)
		must_deregister(entry->mr);
	*entry = (struct entry){0};
}

enum sent { RIGHT, WRONG, FAILED };

static enum sent try_to_send(struct player *me, const struct ibv_mr *mr, CUdeviceptr at, char c)
{
	memset(me->got, 0, SENT);
	if (recorder_copy(mr->lkey, at, me->target->rkey, (uintptr_t)me->got, SENT) != RECORDER_OK)
		return FAILED;
	for (unsigned i = 0; i < SENT; i++)
		if (me->got[i] != c)
			return WRONG;
	return RIGHT;
}

/* The memory holds this character. */
static void send_cached(struct player *me, CUdeviceptr at, enum kind kind, char c)
{
	struct entry *entry = &entries[at / KIB(64) * 31 % PLACES];
	enum sent sent = FAILED;

	pthread_mutex_lock(&lock);
	if (entry->at == at) {
		sent = try_to_send(me, entry->mr, at, c);
		hits++;
		wrong[entry->kind] += sent == WRONG;
		failed[entry->kind] += sent == FAILED;
	}
	if (sent != RIGHT) {
		drop(entry);
		*entry = (struct entry){at, kind, must_register(pd, at, SENT, ALL_ACCESS)};
		ck_assert_int_eq(try_to_send(me, entry->mr, at, c), RIGHT);
	}
	pthread_mutex_unlock(&lock);
}

static void drop_one(struct entry *entry)
{
	pthread_mutex_lock(&lock);
	drop(entry);
	pthread_mutex_unlock(&lock);
}

static CUdeviceptr map_new(uint64_t size)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	OK(cuMemAddressReserve(&p, size, 0, 0, 0));
	OK(cuMemCreate(&handle, size, &prop, 0));
	OK(cuMemMap(p, size, 0, handle, 0));
	OK(cuMemRelease(handle));
	OK(cuMemSetAccess(p, size, &access, 1));
	return p;
}

static void one_life(struct player *me)
{
	static uint32_t lives;
	char c = (char)(1 + __atomic_fetch_add(&lives, 1, __ATOMIC_RELAXED) % 127);
	enum kind kind = (enum kind)roll(me, KINDS);
	uint64_t size = kind == SMALL ? KIB(4) << roll(me, 9) : MIB(2) * (1 + roll(me, 3));
	CUdeviceptr p;

	if (kind == POOL)
		OK(cuMemAllocAsync(&p, size, NULL));
	else
		p = kind == MAPPED ? map_new(size) : gpu_alloc(size);
	gpu_fill(p, c, SENT);
	for (uint32_t i = roll(me, 3); i > 0; i--)
		send_cached(me, p, kind, c);
	if (roll(me, 3) == 0)
		drop_one(&entries[roll(me, PLACES)]);
	if (kind == POOL) {
		OK(cuMemFreeAsync(p, NULL));
	} else if (kind == MAPPED) {
		OK(cuMemUnmap(p, size));
		OK(cuMemAddressFree(p, size));
	} else {
		gpu_free(p);
	}
}

static void *play(void *player)
{
	OK(cuCtxSetCurrent(cuda));
	for (uint32_t lives = wants_long_rounds() ? 20000 : 1000; lives > 0; lives--)
		one_life(player);
	return NULL;
}

static void play_all(uint64_t seed)
{
	for (unsigned i = 0; i < THREADS; i++) {
		struct player *one = &players[i];

		one->random = seed + i;
		one->target = ibv_reg_mr(pd, one->got, sizeof(one->got), ALL_ACCESS);
		ck_assert_int_eq(pthread_create(&one->thread, NULL, play, one), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(players[i].thread, NULL);
		must_deregister(players[i].target);
	}
}

START_TEST(what_the_card_sends_of_large_memory_is_right)
{
	begin();
	register_once(pd, gpu_alloc(MIB(2)), SENT, ALL_ACCESS);
	play_all(stress_seed(THREADS));
	printf("%u hits; wrong: %u large, %u small, %u of pools, %u mapped; failed: %u large, %u "
	       "small; %" PRIu64 " ranges retired, %" PRIu64 " escaped\n",
	       hits, wrong[LARGE], wrong[SMALL], wrong[POOL], wrong[MAPPED], failed[LARGE],
	       failed[SMALL], stats().retired, stats().escapes);
	ck_assert_uint_gt(hits, 100);
	ck_assert_uint_gt(stats().retired, 100);
	ck_assert_uint_eq(wrong[LARGE], 0);
	ck_assert_uint_le(failed[LARGE], stats().escapes);
	ck_assert_uint_eq(stats().left_to_card, 0);
	for (unsigned i = 0; i < PLACES; i++)
		if (entries[i].kind != LARGE)
			drop(&entries[i]);
	ck_assert_uint_eq(sim_kept_bytes(0), 0); /* by those of large memory, nothing */
	for (unsigned i = 0; i < PLACES; i++)
		drop(&entries[i]);
	for (unsigned i = 0; i < PLACES; i++)
		gpu_free(gpu_alloc(KIB(4)));
	ck_assert_uint_eq(recorder_open_mrs(), 1); /* idle */
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), sim_calls("cuMemAddressFree"));
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: a cache by address");
	TCase *tc = verbs_case(suite, "random");

	tcase_add_test(tc, what_the_card_sends_of_large_memory_is_right);
	return run_verbs_tests(argc, argv, suite);
}
