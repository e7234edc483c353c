/* SPDX-License-Identifier: MIT */
/* Reservations where memory was freed: who gets the address, and when. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/support/sim_support.h"

#define BLOCK (2 * MIB)

static CUdeviceptr reserve(CUdeviceptr wanted, uint64_t size)
{
	CUdeviceptr got = 0;

	ok(cu(cuMemAddressReserve)(&got, size, 0, wanted, 0));
	ck_assert_uint_ne(got, 0);
	return got;
}

static CUdeviceptr freed(uint64_t size)
{
	CUdeviceptr ptr = allocate(size);

	ok(cu(cuMemFree_v2)(ptr));
	return ptr;
}

START_TEST(a_reserved_address_is_not_handed_out_until_it_is_given_back)
{
	static const uint64_t sizes[] = {BLOCK, 4 * MIB, 64 * MIB};
	size_t i;

	start();
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CUdeviceptr ptr = freed(sizes[i]), other, next, host;
		uint64_t before = free_bytes();

		ck_assert_uint_eq(reserve(ptr, sizes[i]), ptr);
		ck_assert_uint_eq(free_bytes(), before);
		next = allocate(sizes[i]);
		other = reserve(ptr, sizes[i]);
		ok(cu(cuMemHostAlloc)((void **)&host, sizes[i], 0));
		ck_assert_uint_ge(next - ptr, sizes[i]);
		ck_assert_uint_ge(other - ptr, sizes[i]);
		ck_assert_uint_ge(host - ptr, sizes[i]);
		ok(cu(cuMemAddressFree)(other, sizes[i]));
		refused(cu(cuMemAddressFree)(ptr, sizes[i] + BLOCK), CUDA_ERROR_INVALID_VALUE);
		ok(cu(cuMemAddressFree)(ptr, sizes[i]));
		refused(cu(cuMemAddressFree)(ptr, sizes[i]), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(freed(sizes[i]) == ptr, sizes[i] < 32 * MIB); /* a chunk */
		ok(cu(cuMemFreeHost)((void *)host));
		ok(cu(cuMemFree_v2)(next));
	}
}
END_TEST

/* The parts of a reservation are no reservations, and mapped memory holds it. */
START_TEST(a_reservation_is_mapped_and_freed_as_a_whole)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	start();
	ptr = reserve(freed(8 * MIB), 8 * MIB);
	reserve(ptr + 8 * MIB, BLOCK); /* its neighbour is another one */
	ok(cu(cuMemCreate)(&handle, 4 * MIB, &prop, 0));
	refused(cu(cuMemMap)(ptr + 6 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemMap)(ptr + 4 * MIB, 4 * MIB, 0, handle, 0));
	refused(cu(cuMemAddressFree)(ptr + 4 * MIB, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuMemAddressFree)(ptr, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemUnmap)(ptr + 4 * MIB, 4 * MIB));
	ok(cu(cuMemAddressFree)(ptr, 8 * MIB));
	ok(cu(cuMemRelease)(handle));
}
END_TEST

/* SIM_ADDRESSES is no limit for reservations. Those beyond it can be mapped as well. */
START_TEST(much_can_be_reserved_and_mapped)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at[64], ptr;
	unsigned char byte = 0;
	int i;

	setenv("SIM_ADDRESSES", "16G", 1);
	start();
	for (i = 0; i < 64; i++)
		at[i] = reserve(0, MIB << 20);
	refused(cu(cuMemAddressReserve)(&ptr, MIB << 20, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	refused(cu(cuMemAddressReserve)(&ptr, BLOCK, 0, 1ull << 48, 0), CUDA_ERROR_OUT_OF_MEMORY);
	ptr = at[63] + (MIB << 20) - BLOCK;
	ok(cu(cuMemCreate)(&handle, BLOCK, &prop, 0));
	ok(cu(cuMemMap)(ptr, BLOCK, 0, handle, 0));
	ok(cu(cuMemSetAccess)(ptr, BLOCK, &access, 1));
	ok(cu(cuMemsetD8_v2)(ptr, 0x5a, BLOCK));
	ok(cu(cuMemcpyDtoH_v2)(&byte, ptr + BLOCK - 1, 1));
	ck_assert_int_eq(byte, 0x5a);
	ok(cu(cuMemUnmap)(ptr, BLOCK));
	ok(cu(cuMemRelease)(handle));
	for (i = 0; i < 64; i++)
		ok(cu(cuMemAddressFree)(at[i], MIB << 20));
}
END_TEST

START_TEST(an_address_stays_its_pools_until_the_pool_ends)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr ptr, again;
	uint64_t before;
	CUmemoryPool pool;

	start();
	before = free_bytes();
	ok(cu(cuMemPoolCreate)(&pool, &props));
	ok(cu(cuMemAllocFromPoolAsync)(&ptr, 64 * MIB, pool, NULL));
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ok(cu(cuStreamSynchronize)(NULL));
	ck_assert_uint_eq(free_bytes(), before);
	ck_assert_uint_ne(reserve(ptr, 64 * MIB), ptr);
	ck_assert_uint_ne(freed(64 * MIB), ptr);
	ok(cu(cuMemAllocFromPoolAsync)(&again, 64 * MIB, pool, NULL));
	ck_assert_uint_eq(again, ptr);
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ok(cu(cuMemPoolDestroy)(pool));
	ck_assert_uint_eq(reserve(ptr, 64 * MIB), ptr);
}
END_TEST

/* More sizes than a pool keeps addresses of: the oldest ones go back. */
START_TEST(a_pool_keeps_a_bounded_number_of_addresses)
{
	CUdeviceptr first = 0, ptr = 0;
	uint64_t n;

	start();
	for (n = 1; n <= 65; n++) {
		ok(cu(cuMemAllocAsync)(&ptr, n * 96 * MIB, NULL));
		ok(cu(cuMemFreeAsync)(ptr, NULL));
		ok(cu(cuStreamSynchronize)(NULL));
		if (n == 1)
			first = ptr;
		if (n == 64)
			ck_assert_uint_ne(reserve(first, 96 * MIB), first);
	}
	ck_assert_uint_eq(reserve(first, 96 * MIB), first);
	ck_assert_uint_ne(reserve(ptr, 96 * MIB), ptr);
}
END_TEST

/* 0: in the environment, 1: from now on. */
START_TEST(hints_are_lost_on_demand)
{
	CUdeviceptr ptr;
	int i;

	if (_i == 0)
		setenv("SIM_LOST_HINTS", "2", 1);
	start();
	if (_i == 1)
		cu(sim_lose_hints)(2);
	ptr = freed(4 * MIB);
	for (i = 0; i < 2; i++) {
		reserve(0, 4 * MIB); /* has no hint to lose */
		ck_assert_uint_ne(reserve(ptr, 4 * MIB), ptr);
	}
	ck_assert_uint_eq(freed(4 * MIB), ptr);
	ck_assert_uint_eq(reserve(ptr, 4 * MIB), ptr);
}
END_TEST

START_TEST(a_refused_reservation_has_no_effect)
{
	CUdeviceptr ptr, got = 1;

	setenv("SIM_FAIL", "cuMemAddressReserve:*=CUDA_ERROR_NOT_SUPPORTED", 1);
	start();
	ptr = freed(4 * MIB);
	refused(cu(cuMemAddressReserve)(&got, 4 * MIB, 0, ptr, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(got, 1);
	ck_assert_uint_eq(freed(4 * MIB), ptr);
}
END_TEST

/* ---- a race --------------------------------------------------------------------------------- */

#define THREADS 4
#define MOST	8  /* allocations of each thread */
#define RING	64 /* its reservations */

/*
 * Who has which blocks of 2 MiB: the number of allocations in one, or RESERVED. Threads write it
 * down while the address is theirs: an allocation after it was made and until it is freed, a
 * reservation likewise. So no two may ever be there at once.
 */
#define RESERVED     0x10000
#define SHADOW_SLOTS (1u << 14)
static uint32_t shadow[SHADOW_SLOTS];
static CUdeviceptr shadow_base;

struct racer {
	CUcontext context;
	pthread_t thread;
	unsigned seed;
	unsigned frees, kept, elsewhere;
};

static void mark(CUdeviceptr ptr, uint64_t size, uint32_t value, bool on)
{
	uint64_t slot = (ptr - shadow_base) / BLOCK, last = (ptr + size - 1 - shadow_base) / BLOCK;

	ck_assert_uint_lt(last, SHADOW_SLOTS);
	for (; slot <= last; slot++) {
		uint32_t was = on ? __atomic_fetch_add(&shadow[slot], value, __ATOMIC_RELAXED)
				  : __atomic_fetch_sub(&shadow[slot], value, __ATOMIC_RELAXED);

		if (on)
			ck_assert_msg(value == RESERVED ? was == 0 : was < RESERVED,
				      "%u at a block that gets %u", was, value);
	}
}

struct range {
	CUdeviceptr at;
	uint64_t size;
};

static void get(struct range *range, uint64_t size)
{
	range->at = allocate(size);
	range->size = size;
	mark(range->at, size, 1, true);
}

static void put(struct range *range)
{
	mark(range->at, range->size, 1, false);
	ok(cu(cuMemFree_v2)(range->at));
	range->at = 0;
}

static void give_back(struct range *reserved)
{
	mark(reserved->at, reserved->size, RESERVED, false);
	ok(cu(cuMemAddressFree)(reserved->at, reserved->size));
	reserved->at = 0;
}

/* In place of an older reservation. */
static void free_and_reserve(struct racer *racer, struct range *range, struct range *reserved)
{
	CUdeviceptr wanted = range->at & ~(BLOCK - 1), got;
	uint64_t whole = (range->at + range->size - wanted + BLOCK - 1) / BLOCK * BLOCK;

	put(range);
	racer->frees++;
	got = reserve(wanted, whole);
	if (got != wanted) {
		racer->elsewhere++;
		ok(cu(cuMemAddressFree)(got, whole));
		return;
	}
	mark(got, whole, RESERVED, true);
	racer->kept++;
	if (reserved->at)
		give_back(reserved);
	*reserved = (struct range){got, whole};
}

static void *race(void *arg)
{
	struct racer *racer = arg;
	struct range mine[MOST] = {{0}}, ring[RING] = {{0}};
	unsigned rounds = wants_long_rounds() ? 200000 : 10000;

	ok(cu(cuCtxSetCurrent)(racer->context));
	while (rounds--) {
		struct range *range = &mine[rand_r(&racer->seed) % MOST];

		if (range->at)
			free_and_reserve(racer, range, &ring[racer->kept % RING]);
		else
			get(range, (4 * KIB) << rand_r(&racer->seed) % 13);
	}
	for (unsigned i = 0; i < MOST; i++)
		if (mine[i].at)
			put(&mine[i]);
	for (unsigned i = 0; i < RING; i++)
		if (ring[i].at)
			give_back(&ring[i]);
	return NULL;
}

START_TEST(no_thread_allocates_what_another_has_reserved)
{
	struct racer racers[THREADS] = {{0}};
	CUcontext context = start();
	uint64_t before = free_bytes();
	unsigned frees = 0, kept = 0, i;

	shadow_base = freed(64 * MIB) & ~(BLOCK - 1);
	shadow_base -= SHADOW_SLOTS / 2 * BLOCK; /* the driver may also go down from here */
	for (i = 0; i < THREADS; i++) {
		racers[i].context = context;
		racers[i].seed = i;
		pthread_create(&racers[i].thread, NULL, race, &racers[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(racers[i].thread, NULL);
		ck_assert_uint_eq(racers[i].kept + racers[i].elsewhere, racers[i].frees);
		frees += racers[i].frees;
		kept += racers[i].kept;
	}
	/* Blocks of their own are always kept, and small ones by chance. */
	ck_assert_uint_gt(kept, frees / 10);
	ck_assert_uint_lt(kept, frees);
	ck_assert_uint_eq(cu(sim_calls)("cuMemFree_v2"), cu(sim_calls)("cuMemAlloc_v2"));
	ck_assert_uint_eq(cu(sim_calls)("cuMemAddressFree"), cu(sim_calls)("cuMemAddressReserve"));
	ck_assert_uint_eq(cu(sim_live_allocations)(), 0);
	ck_assert_uint_eq(free_bytes(), before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: reservations");
	TCase *tests = suite_case(suite, "reserved", NULL, NULL);

	tcase_add_test(tests, a_reserved_address_is_not_handed_out_until_it_is_given_back);
	tcase_add_test(tests, a_reservation_is_mapped_and_freed_as_a_whole);
	tcase_add_test(tests, much_can_be_reserved_and_mapped);
	tcase_add_test(tests, an_address_stays_its_pools_until_the_pool_ends);
	tcase_add_test(tests, a_pool_keeps_a_bounded_number_of_addresses);
	tcase_add_loop_test(tests, hints_are_lost_on_demand, 0, 2);
	tcase_add_test(tests, a_refused_reservation_has_no_effect);
	tcase_add_test(tests, no_thread_allocates_what_another_has_reserved);
	return run_suite(suite);
}
