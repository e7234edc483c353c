/* SPDX-License-Identifier: MIT */
/*
 * The cache against a model of it: a list of allocations and a list of regions, in which everything is
 * looked up by walking. One thread does random operations on both, and after each the books of both are
 * compared; now and then everything is asked for. A difference prints the operations that led to it.
 *
 * MODEL_SEED repeats a run, MODEL_OPS makes it longer.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "cache_test.h"

#define CONTEXTS 2
#define SMALL	 24 /* places for linear and pool memory, packed into few pages */
#define MAPPINGS 6  /* places of 2 MiB for mappings side by side */
#define PLACES	 (SMALL + MAPPINGS)
#define REGIONS	 256
#define HISTORY	 24

/* ---- the model ---- */

static struct allocation {
	uint64_t base, size, id; /* id 0: nothing is there */
	enum fake_kind kind;
	unsigned context;
} places[PLACES];

static struct model_region {
	pindown_region *real;
	uint64_t base, end, ids[MAPPINGS];
	uint64_t pinned; /* bytes */
	int context;	 /* -1: no context's */
	unsigned holds;
	bool used, live;
} regions[REGIONS];

static bool is_volatile_place[PLACES];

static struct allocation *allocation_at(uint64_t addr)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (places[i].id && addr - places[i].base < places[i].size)
			return &places[i];
	return NULL;
}

/* Where the memory ends that a get of [addr, addr + length) is for; 0: runs out of it. */
static uint64_t extent_end(const struct allocation *first, uint64_t end)
{
	uint64_t reached = first->base + first->size;

	while (reached < end) {
		const struct allocation *next = allocation_at(reached);
		if (first->kind != FAKE_VMM || !next || next->kind != FAKE_VMM)
			return 0;
		reached = next->base + next->size;
	}
	return reached;
}

static void ids_of(uint64_t base, uint64_t end, uint64_t *ids)
{
	for (unsigned n = 0; base < end && n < MAPPINGS; n++) {
		const struct allocation *a = allocation_at(base);
		ids[n] = a ? a->id : 0;
		base = a ? a->base + a->size : end;
	}
}

static struct model_region *region_holding(uint64_t addr, uint64_t end)
{
	for (unsigned i = 0; i < REGIONS; i++)
		if (regions[i].used && regions[i].live && regions[i].base <= addr &&
		    end <= regions[i].end)
			return &regions[i];
	return NULL;
}

static void unlink_region(struct model_region *r)
{
	r->live = false;
	if (!r->holds)
		r->used = false;
}

static unsigned unlink_overlapping(uint64_t begin, uint64_t end)
{
	unsigned n = 0;

	for (unsigned i = 0; i < REGIONS; i++)
		if (regions[i].used && regions[i].live && regions[i].base < end &&
		    begin < regions[i].end) {
			unlink_region(&regions[i]);
			n++;
		}
	return n;
}

static bool overlaps_volatile(const struct model_region *r)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (is_volatile_place[i] && places[i].base < r->end &&
		    r->base < places[i].base + places[i].size)
			return true;
	return false;
}

static bool is_true(const struct model_region *r)
{
	uint64_t now[MAPPINGS] = {0};

	ids_of(r->base, r->end, now);
	return memcmp(now, r->ids, sizeof(now)) == 0;
}

/* A region in volatile memory is compared with the driver when it is found. */
static bool passes_check(struct model_region *r)
{
	if (!overlaps_volatile(r) || is_true(r))
		return true;
	unlink_region(r);
	return false;
}

/* What lies where the driver has just put something new is compared, too, and what is to be trusted. */
static void check_overlapping(uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < REGIONS; i++)
		if (regions[i].used && regions[i].live && regions[i].base < end &&
		    begin < regions[i].end && !is_true(&regions[i]))
			unlink_region(&regions[i]);
}

static struct model_region *new_region(const struct allocation *first, uint64_t end)
{
	unlink_overlapping(first->base, end);
	for (unsigned i = 0; i < REGIONS; i++) {
		struct model_region *r = &regions[i];
		if (r->used)
			continue;
		*r = (struct model_region){
			.base = first->base,
			.end = end,
			.context = first->kind == FAKE_LINEAR ? (int)first->context : -1,
			.used = true,
			.live = true};
		ids_of(r->base, r->end, r->ids);
		return r;
	}
	ck_abort_msg("more than %d regions in the model", REGIONS);
	return NULL;
}

/* ---- history and dice ---- */

static char history[HISTORY][96];
static unsigned done;
static uint64_t dice;

static void remember(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(history[done++ % HISTORY], sizeof(history[0]), format, args);
	va_end(args);
}

static void print_history(void)
{
	for (unsigned i = done > HISTORY ? done - HISTORY : 0; i < done; i++)
		fprintf(stderr, "%8u  %s\n", i, history[i % HISTORY]);
}

#define AGREE(condition, ...)                      \
	do {                                       \
		if (!(condition)) {                \
			print_history();           \
			ck_abort_msg(__VA_ARGS__); \
		}                                  \
	} while (0)

static uint32_t roll(uint32_t sides)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (uint32_t)(dice >> 33) % sides;
}

static void *context_of(unsigned i)
{
	return (void *)(uintptr_t)(0xc0 + i);
}

/* ---- operations on both ---- */

static void forget_volatile(uint64_t base, uint64_t end)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (places[i].base < end && base < places[i].base + places[i].size)
			is_volatile_place[i] = false;
}

static void allocate(struct allocation *a, bool seen)
{
	static const enum fake_kind kinds[] = {FAKE_LINEAR, FAKE_LINEAR, FAKE_POOL};
	bool mapped = a >= &places[SMALL];

	a->kind = mapped ? FAKE_VMM : kinds[roll(3)];
	a->context = roll(CONTEXTS);
	fake_alloc_in(a->base, a->size, a->kind,
		      a->kind == FAKE_LINEAR ? context_of(a->context) : NULL, 0,
		      a->kind == FAKE_POOL ? (void *)0xb0 : NULL);
	a->id = fake_id(a->base);
	remember("allocate %p + %" PRIu64 " kind %d%s", (void *)a->base, a->size, a->kind,
		 seen ? "" : ", unseen");
	if (!seen)
		return;
	pd_allocated(a->base, a->size);
	check_overlapping(a->base, a->base + a->size);
	forget_volatile(a->base, a->base + a->size);
}

static void release(struct allocation *a, bool refused)
{
	bool mapped = a->kind == FAKE_VMM;

	remember("free %p%s", (void *)a->base, refused ? ", refused" : "");
	pd_guard guard = pd_end_range(a->base, mapped ? a->size : 0);
	unlink_overlapping(a->base, a->base + a->size);
	if (!refused) {
		ck_assert_int_eq(fake_free(a->base), FAKE_SUCCESS);
		a->id = 0;
	}
	pd_ended(guard);
}

static int expected_result(uint64_t addr, uint64_t length, bool cached,
			   struct model_region **region)
{
	const struct allocation *a = allocation_at(addr);
	uint64_t end;

	*region = region_holding(addr, addr + length);
	if (*region && passes_check(*region))
		return PINDOWN_OK;
	*region = NULL;
	if (cached || !a)
		return PINDOWN_ERR_NOT_DEVICE;
	end = extent_end(a, addr + length);
	if (!end)
		return PINDOWN_ERR_RANGE;
	*region = new_region(a, end);
	return PINDOWN_OK;
}

static void get(uint64_t addr, uint64_t length, bool cached)
{
	struct model_region *expected;
	pindown_region *real = NULL;

	remember("get %p + %" PRIu64 "%s", (void *)addr, length, cached ? ", cached" : "");
	int should = expected_result(addr, length, cached, &expected);
	int result = pindown_get(addr, length, cached ? PINDOWN_GET_CACHED : 0, &real);
	AGREE(result == should, "get: %s; the model: %s", pindown_strerror(result),
	      pindown_strerror(should));
	if (result != PINDOWN_OK)
		return;
	AGREE(!expected->real || expected->real == real, "get: another region than before");
	expected->real = real;
	expected->pinned = pindown_region_pin_length(real);
	expected->holds++;
	AGREE(pindown_region_base(real) == expected->base, "get: another base");
	AGREE(pindown_region_base(real) + pindown_region_length(real) == expected->end,
	      "get: another end");
	AGREE(pindown_region_buffer_id(real) == expected->ids[0], "get: another buffer id");
	AGREE(pindown_region_is_volatile(real) == overlaps_volatile(expected),
	      "get: volatile or not");
	AGREE(pindown_region_is_live(real), "get: not live");
	AGREE(pindown_region_pin_base(real) <= expected->base &&
		      pindown_region_pin_base(real) + expected->pinned >= expected->end,
	      "get: not all of it is pinned");
}

static void put(struct model_region *r)
{
	remember("put %p%s", (void *)r->base, r->live ? "" : ", kept");
	AGREE(pindown_region_is_live(r->real) == r->live, "put: live or not");
	pindown_put(r->real);
	if (--r->holds == 0 && !r->live)
		r->used = false;
}

static void flush(void)
{
	int count = 0;

	remember("flush");
	for (unsigned i = 0; i < REGIONS; i++)
		if (regions[i].used && regions[i].live && !regions[i].holds) {
			regions[i].used = false;
			count++;
		}
	int real = pindown_flush();
	AGREE(real == count, "flush: %d; the model: %d", real, count);
}

static void invalidate(uint64_t base, uint64_t length)
{
	remember("invalidate %p + %" PRIu64, (void *)base, length);
	int count = (int)unlink_overlapping(base, base + (length ? length : 1));
	int real = pindown_invalidate(base, length);
	AGREE(real == count, "invalidate: %d; the model: %d", real, count);
}

static void end_context(unsigned context)
{
	remember("context %u ends", context);
	pd_guard guard = pd_end_context(context_of(context));
	for (unsigned i = 0; i < REGIONS; i++)
		if (regions[i].used && regions[i].live && regions[i].context == (int)context)
			unlink_region(&regions[i]);
	fake_context_destroy(context_of(context));
	for (unsigned i = 0; i < PLACES; i++)
		if (places[i].id && places[i].kind == FAKE_LINEAR && places[i].context == context)
			places[i].id = 0;
	pd_ended(guard);
}

static void make_volatile(unsigned place)
{
	remember("volatile %p", (void *)places[place].base);
	pd_volatile(places[place].base, places[place].size);
	is_volatile_place[place] = true;
}

static void make_trusted(unsigned place)
{
	remember("trusted %p", (void *)places[place].base);
	pd_trusted(places[place].base, places[place].size);
	check_overlapping(places[place].base, places[place].base + places[place].size);
	is_volatile_place[place] = false;
}

/* Only where each hit is checked: elsewhere the cache can't know. */
static void replace_unseen(unsigned place)
{
	struct allocation *a = &places[place];

	if (!is_volatile_place[place] || !a->id)
		return;
	remember("free %p, unseen", (void *)a->base);
	ck_assert_int_eq(fake_free(a->base), FAKE_SUCCESS);
	a->id = 0;
	if (roll(2))
		allocate(a, false);
}

/* ---- comparing ---- */

static void compare_books(void)
{
	uint64_t count = 0, bytes = 0, kept = 0, kept_bytes = 0;
	struct pindown_stats s = stats();

	for (unsigned i = 0; i < REGIONS; i++) {
		const struct model_region *r = &regions[i];
		if (!r->used)
			continue;
		count++;
		bytes += r->pinned;
		kept += !r->live;
		kept_bytes += r->live ? 0 : r->pinned;
	}
	AGREE(s.regions == count, "%" PRIu64 " regions; the model: %" PRIu64, s.regions, count);
	AGREE(s.bytes == bytes, "%" PRIu64 " bytes; the model: %" PRIu64, s.bytes, bytes);
	AGREE(s.kept_regions == kept, "%" PRIu64 " kept; the model: %" PRIu64, s.kept_regions,
	      kept);
	AGREE(s.kept_bytes == kept_bytes, "%" PRIu64 " bytes kept; the model: %" PRIu64,
	      s.kept_bytes, kept_bytes);
	AGREE(s.missed_invalidations == 0, "a free was missed");
}

/* Everything that could be cached is asked for, and every pin has its descriptor. */
static void compare_everything(void)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < PLACES; i++)
		get(places[i].base + places[i].size / 2, 1, true);
	for (unsigned i = 0; i < REGIONS; i++)
		while (regions[i].used && regions[i].holds)
			put(&regions[i]);
	for (unsigned i = 0; i < REGIONS; i++)
		used += regions[i].used;
	AGREE(fake_open_exports() == used, "%u exports; the model: %" PRIu64, fake_open_exports(),
	      used);
	compare_books();
}

/* ---- the run ---- */

/* Packed at 512 bytes, some across page boundaries; and mappings right behind each other. */
static void lay_out(void)
{
	uint64_t at = BASE + KIB(60);

	for (unsigned i = 0; i < SMALL; i++) {
		places[i].base = at;
		places[i].size = i % 5 == 4 ? KIB(64) * (1 + i % 3) + 512 : 100 + 77 * (i % 7);
		at = (at + places[i].size + 511) & ~UINT64_C(511);
	}
	for (unsigned i = 0; i < MAPPINGS; i++) {
		places[SMALL + i].base = BASE + GIB(1) + MIB(2) * i;
		places[SMALL + i].size = MIB(2);
	}
}

static struct model_region *some_held_region(void)
{
	unsigned start = roll(REGIONS);

	for (unsigned i = 0; i < REGIONS; i++) {
		struct model_region *r = &regions[(start + i) % REGIONS];
		if (r->used && r->holds)
			return r;
	}
	return NULL;
}

static void get_something(void)
{
	const struct allocation *a = &places[roll(PLACES)];
	uint64_t from = roll((uint32_t)a->size), length;

	switch (roll(6)) {
	case 0: /* perhaps past the end, perhaps into the next mapping */
		length = 1 + roll((uint32_t)a->size * 2);
		break;
	case 1: /* exactly to the end */
		length = a->size - from;
		break;
	default:
		length = 1 + roll((uint32_t)(a->size - from));
	}
	get(a->base + from, length, roll(5) == 0);
}

static void one_operation(void)
{
	unsigned place = roll(PLACES);
	struct model_region *held = some_held_region();
	uint32_t what = roll(100);

	if (what < 40)
		get_something();
	else if (what < 62)
		held ? put(held) : get_something();
	else if (what < 85)
		places[place].id ? release(&places[place], roll(6) == 0)
				 : allocate(&places[place], true);
	else if (what < 88)
		invalidate(places[place].base + roll((uint32_t)places[place].size),
			   roll(2) ? 0 : 1 + roll((uint32_t)KIB(200)));
	else if (what < 90)
		make_volatile(place);
	else if (what < 92)
		make_trusted(place);
	else if (what < 97)
		replace_unseen(place);
	else if (what < 98)
		flush();
	else if (what < 99)
		end_context(roll(CONTEXTS));
	else
		compare_everything();
}

START_TEST(cache_and_model_agree)
{
	const char *given = getenv("MODEL_SEED"), *ops = getenv("MODEL_OPS");
	unsigned long count = ops ? strtoul(ops, NULL, 0) : 60000;
	uint64_t seed = 0;

	if (given)
		seed = strtoull(given, NULL, 0);
	else
		ck_assert_int_eq(getrandom(&seed, sizeof(seed), 0), (int)sizeof(seed));
	dice = seed | 1;
	printf("%lu operations, MODEL_SEED=0x%" PRIx64 "\n", count, seed);
	fflush(stdout);
	lay_out();
	for (unsigned long i = 0; i < count; i++) {
		one_operation();
		compare_books();
	}
	compare_everything();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: against a model");
	TCase *tc = cache_case(suite, "model");

	tcase_add_test(tc, cache_and_model_agree);
	return run_suite(suite);
}
