/* SPDX-License-Identifier: MIT */
/* The table of regions, and their hold counts. */
#define _GNU_SOURCE
#include "cache/base/config.h"
#include "cache/base/process.h"
#include "cache/region.h"
#include "cache/base/table.h"

_Static_assert(sizeof(struct pindown_region) == 32, "two in a cache line");
_Static_assert(sizeof(struct pd_details) == 96, "together 128");
_Static_assert(sizeof(struct pd_brief) == 8, "eight in a cache line");
_Static_assert(PD_STRIPES + 1 <= PD_TABLE_MOST_COLUMNS, "hold counts and objects");

struct pindown_region *pd_regions;
struct pd_details *pd_details;
struct pd_brief *pd_briefs;
uint32_t *pd_holds[PD_STRIPES];
uint32_t *pd_objects_of;
uint32_t pd_region_limit, pd_put_limit;
bool pd_debugging;

static struct pd_table table = {
	.record_bytes = sizeof(struct pindown_region),
	.columns = PD_STRIPES + 1,
};
static struct pd_table more = {.record_bytes = sizeof(struct pd_details)};
static struct pd_table briefs = {.record_bytes = sizeof(struct pd_brief)};
struct pd_table pd_object_table = {.record_bytes = PD_OBJECT_BYTES, .columns = PD_STRIPES};
/*
 * There are as many object records as regions. If that is too few, objects/attach.c evicts for
 * more.
 */
static struct pd_table *const tables[] = {&table, &more, &briefs, &pd_object_table};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

static uint32_t free_list;
static struct pd_resting resting; /* for PINDOWN_DEBUG */
static uint32_t
	abandoned; /* in a child: up to here the records are the parent's and never used again */

/* The table stays where it is for good: readers find it without asking the table. */
static void __attribute__((noinline, cold)) publish_table(void)
{
	for (unsigned s = 0; s < PD_STRIPES; s++)
		pd_holds[s] = table.column[s];
	pd_objects_of = table.column[PD_STRIPES];
	pd_regions = (struct pindown_region *)(void *)table.records;
	pd_details = (struct pd_details *)(void *)more.records;
	pd_briefs = (struct pd_brief *)(void *)briefs.records;
	/*
	 * In a child all of them are PD_FREE and have no pages, so that hits find none: see
	 * base/process.h.
	 */
	pd_wipe_in_children(pd_briefs, briefs.capacity * sizeof(struct pd_brief));
	/*
	 * Release: with the limit all of the above is there, also in a child that is forked
	 * meanwhile.
	 */
	__atomic_store_n(&pd_region_limit, table.capacity - 1, __ATOMIC_RELEASE);
	pd_debugging = pd_config()->debug;
	pd_put_limit = pd_debugging ? 0 : pd_region_limit;
}

/*
 * Slow: a thread's first hold, and holds of threads that share a stripe or can't do without
 * atomics.
 */
void pd_hold_shared(uint32_t *const *counts, struct pd_thread *self, uint32_t number,
		    uint32_t change)
{
	if (!self->stripe_asked) {
		pd_thread_claim_stripe(self);
		if (self->stripe != PD_STRIPE_SHARED && PD_CAN_ASYM)
			self->holds = pd_holds[self->stripe];
	}
	if (self->holds) {
		pd_hold_own(counts[self->stripe], number, change);
		return;
	}
	if (self->stripe == PD_STRIPE_SHARED)
		pd_thread_use_shared_stripe();
	/* As the light side's store, with its barrier in it: pairs with pd_holds_any(). */
	__atomic_fetch_add(&counts[self->stripe][number], change, __ATOMIC_SEQ_CST);
}

/*
 * Relaxed, as two threads may store their answers at the same time: an outdated count only means
 * one more comparison.
 */
bool pd_region_stands(struct pindown_region *region)
{
	uint32_t value;

	if (pd_region_word_stands(region))
		return true;
	if (!pd_kmod_mappings_stand(&pd_details_of(region)->pin, &value))
		return false;
	__atomic_store_n(&region->word_value, value, __ATOMIC_RELAXED);
	return true;
}

/* 0: one of the tables has no room. */
static uint32_t next_of_all(void)
{
	uint32_t number = pd_table_next(&table);

	if (!number)
		return 0;
	if (pd_table_next(&more)) {
		if (pd_table_next(&briefs))
			return number;
		pd_table_take_back(&more);
	}
	pd_table_take_back(&table);
	return 0;
}

/* As many as the configuration asks for, or else a million. Fewer if address space is limited. */
static uint32_t records_wanted(void)
{
	const uint64_t usual = 1u << 20, least = 1u << 12, most = 1u << 24;
	uint64_t asked = pd_config()->max_regions, records = least;

	if (!asked)
		return (uint32_t)usual;
	while (records <= asked && records < most)
		records *= 2;
	return (uint32_t)records;
}

uint32_t pd_region_alloc(void)
{
	uint32_t number = free_list;

	if (number) {
		free_list = pd_details[number].victim;
		pd_details[number].victim = 0;
		return number;
	}
	if (!table.capacity && !pd_tables_reserve(tables, TABLES, records_wanted()))
		return 0;
	number = next_of_all();
	if (number && !pd_region_limit)
		publish_table();
	return number;
}

void pd_region_free(uint32_t number)
{
	struct pd_details *details = &pd_details[number];

	details->dmabuf_users = 0;
	pd_region_set_flags(&pd_regions[number], 0);
	/* Release, for hold_if(): a late hit that sees it free has nothing more to look at. */
	__atomic_store_n(&pd_briefs[number].state, PD_FREE, __ATOMIC_RELEASE);
	if (pd_debugging)
		number = pd_let_rest(&resting, number);
	if (!number)
		return;
	pd_details[number].victim = free_list;
	free_list = number;
}

uint32_t pd_region_capacity(void)
{
	uint32_t records =
		table.capacity ? table.capacity : pd_tables_plan(tables, TABLES, records_wanted());

	return records - 1 - abandoned;
}

void pd_region_each_pin(void (*fn)(struct pd_pin *pin))
{
	for (uint32_t n = 1; pd_region_limit && n <= more.used; n++)
		fn(&pd_details[n].pin);
}

uint32_t pd_region_high_water(void)
{
	return table.used;
}

/* Lock held. Free records are not used again under their numbers. */
static void forget_free(void)
{
	free_list = 0;
	resting = (struct pd_resting){.next = 0};
}

/*
 * A reader that comes late sees zeroed records: PD_FREE. The hold counts of free records sum to
 * zero but their stripes may not each be zero; dropping all of them at once keeps the sum.
 */
void pd_region_trim(void)
{
	/* A child may still put its parent's regions: their records must stay what they are. */
	if (abandoned)
		return;
	pd_table_clear(&table);
	pd_table_clear(&more);
	pd_table_clear(&briefs);
	forget_free();
}

/*
 * Another thread may have been about to take a record, and has taken one in some of the tables.
 * Which of the others were the parent's regions can't be told any more: treat all as such.
 */
void pd_region_fork_child(void)
{
	table.used = more.used = briefs.used;
	forget_free();
	abandoned = table.used;
	for (uint32_t n = 1; pd_region_limit && n <= table.used; n++)
		__atomic_store_n(&pd_briefs[n].state, PD_ABANDONED, __ATOMIC_RELAXED);
}
