/* SPDX-License-Identifier: MIT */
/* The table of regions, and their hold counts. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/environment/config.h"
#include "cache/base/process/process.h"
#include "cache/hit/region.h"
#include "cache/base/memory/table.h"

_Static_assert(sizeof(struct pindown_region) == 64, "a cache line");
_Static_assert(sizeof(struct pdn_backing) == 16, "four in a cache line");
_Static_assert(sizeof(union pdn_kind_data) == 16, "four in a cache line");
_Static_assert(PDN_MAX_DEVICES <= INT16_MAX, "their numbers fit");
_Static_assert(sizeof(struct pdn_brief) == 8, "eight in a cache line");
_Static_assert(PDN_STRIPES_AT_FIRST + 3 <= PDN_TABLE_MAX_COLUMNS, "hold counts and lists");

struct pindown_region *pdn_regions;
struct pdn_brief *pdn_briefs;
struct pdn_backing *pdn_backings;
union pdn_kind_data *pdn_kind_data;
uint32_t *pdn_holds[PDN_STRIPES], *pdn_object_holds[PDN_STRIPES];
uint32_t *pdn_objects_of, *pdn_object_trees;
uint32_t pdn_region_limit, pdn_put_limit;
bool pdn_debugging;

/* Columns of the table. The stripes are the last, side by side with the briefs behind them. */
enum { OBJECTS_OF, OBJECT_TREES, STRIPES };

/*
 * The shared stripe, and pdn_objects_of, which gets of objects read. Most processes use one more
 * stripe.
 */
#define COLUMNS_AT_FIRST (1u << (STRIPES + PDN_STRIPE_SHARED) | 1u << OBJECTS_OF)

static struct pdn_table table = {
	.record_bytes = sizeof(struct pindown_region),
	.columns = STRIPES + PDN_STRIPES_AT_FIRST,
	.unused = ~COLUMNS_AT_FIRST,
	.unwanted = ~COLUMNS_AT_FIRST,
};
static struct pdn_table briefs, backings, kind_data;
struct pdn_table pdn_object_table;
/*
 * Their numbers are those of regions, but for the last one. There are as many object records as
 * regions. If that is too few, objects/attach.c evicts for more.
 */
static struct pdn_table *const tables[] = {&table, &briefs, &backings, &kind_data,
					   &pdn_object_table};
#define TABLES	   (sizeof(tables) / sizeof(tables[0]))
#define OF_REGIONS (TABLES - 1)

/* Here, and not where they are defined: the library's file has less data. */
static void __attribute__((noinline, cold)) size_tables(void)
{
	briefs.record_bytes = sizeof(struct pdn_brief);
	briefs.is_for_hits = true;
	/* Not all regions have something in these two. */
	backings.record_bytes = sizeof(struct pdn_backing);
	kind_data.record_bytes = sizeof(union pdn_kind_data);
	backings.is_sparse = kind_data.is_sparse = true;
	pdn_object_table.record_bytes = PDN_OBJECT_BYTES;
	pdn_object_table.columns = PDN_STRIPES_AT_FIRST + 3;
}

static uint32_t free_list;
static struct pdn_resting resting; /* for PINDOWN_DEBUG */

/* The table stays where it is for good: readers find it without asking the table. */
static void __attribute__((noinline, cold)) publish_table(void)
{
	memcpy(pdn_holds, &table.column[STRIPES], PDN_STRIPES_AT_FIRST * sizeof(pdn_holds[0]));
	pdn_objects_of = table.column[OBJECTS_OF];
	pdn_object_trees = table.column[OBJECT_TREES];
	pdn_regions = (struct pindown_region *)(void *)table.records;
	pdn_briefs = (struct pdn_brief *)(void *)briefs.records;
	pdn_backings = (struct pdn_backing *)(void *)backings.records;
	pdn_kind_data = (union pdn_kind_data *)(void *)kind_data.records;
	/*
	 * In a child all briefs are PDN_FREE, so that hits find none: see base/process/process.h.
	 * The hold counts, which mean nothing there, are 0. So a fork copies no page tables of
	 * either.
	 */
	pdn_wipe_in_children(pdn_holds[0], (size_t)((char *)(pdn_briefs + briefs.capacity) -
						    (char *)pdn_holds[0]));
	/*
	 * Release: with the limit all of the above is there, also in a child that is forked
	 * meanwhile.
	 */
	__atomic_store_n(&pdn_region_limit, table.capacity - 1, __ATOMIC_RELEASE);
	pdn_debugging = pdn_config()->debug;
	pdn_put_limit = pdn_debugging ? 0 : pdn_region_limit;
}

/*
 * How many threads have wanted memory for a stripe, and at which of them the system is asked again.
 * Each refusal doubles that number, so that a process with many threads does not ask for each of
 * them. Relaxed: it makes no difference if a thread asks too early or too late.
 */
static uint32_t asked_for_stripes, ask_from;

static bool is_worth_asking(void)
{
	return __atomic_fetch_add(&asked_for_stripes, 1, __ATOMIC_RELAXED) >=
	       __atomic_load_n(&ask_from, __ATOMIC_RELAXED);
}

static void note_refusal(void)
{
	__atomic_store_n(&ask_from, 2 * __atomic_load_n(&asked_for_stripes, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
}

/* Not where address space is limited: the program may need it. */
static char *memory_for_stripe(size_t bytes)
{
	char *at = pdn_address_space_share() == UINT64_MAX ? pdn_reserve(bytes) : NULL;

	if (!at || pdn_make_usable(at, bytes))
		return at;
	pdn_unreserve(at, bytes);
	return NULL;
}

/* No column of the table. The counts of regions and of objects lie side by side. */
static bool give_counts(uint32_t stripe)
{
	size_t bytes = table.capacity * sizeof(uint32_t);
	char *at = memory_for_stripe(2 * bytes);

	if (!at)
		return false;
	/* Few counts are ever written in most processes, and a fork is to copy none. */
	pdn_prefer_small(at, 2 * bytes);
	pdn_wipe_in_children(at, 2 * bytes);
	/* Release: pairs with pdn_holds_any(), which finds zeroes there. */
	__atomic_store_n(&pdn_object_holds[stripe], (uint32_t *)(void *)(at + bytes),
			 __ATOMIC_RELEASE);
	__atomic_store_n(&pdn_holds[stripe], (uint32_t *)(void *)at, __ATOMIC_RELEASE);
	return true;
}

static bool has_memory(uint32_t stripe)
{
	if (stripe >= PDN_STRIPES_AT_FIRST)
		return pdn_holds[stripe] != NULL;
	return !(__atomic_load_n(&table.unused, __ATOMIC_RELAXED) >> (STRIPES + stripe) & 1);
}

/* The stripe is this thread's. */
static bool give_memory(uint32_t stripe)
{
	bool given;

	if (has_memory(stripe))
		return true;
	if (!is_worth_asking())
		return false;
	given = stripe < PDN_STRIPES_AT_FIRST ? pdn_table_use_column(&table, STRIPES + stripe)
					      : give_counts(stripe);
	if (!given)
		note_refusal();
	return given;
}

static void claim_stripe(struct pdn_thread *self)
{
	uint32_t stripe = pdn_stripe_take();

	if (stripe == PDN_STRIPE_SHARED)
		return;
	if (!give_memory(stripe)) {
		self->stripe_asked = true;
		pdn_stripe_return(stripe);
		return;
	}
	pdn_stripe_use(self, stripe);
	if (PDN_ASYMMETRIC)
		self->holds = pdn_holds[stripe];
}

/*
 * Lock held, as for all sums that must be exact: none is made in between. The counts are of threads
 * that have ended. Two at a time, as most are 0.
 */
static void share_counts(uint32_t *const *counts, uint32_t stripe, uint32_t used)
{
	uint32_t *from = counts[stripe], *to = counts[PDN_STRIPE_SHARED];
	uint64_t two;

	for (uint32_t n = 0; from && n <= used; n += 2) {
		memcpy(&two, &from[n], sizeof(two));
		for (uint32_t i = n; two && i < n + 2; i++) {
			__atomic_fetch_add(&to[i], from[i], __ATOMIC_SEQ_CST);
			__atomic_store_n(&from[i], 0, __ATOMIC_SEQ_CST);
		}
	}
}

/*
 * As many times what a sum pays for a stripe. A page that was never touched costs a fault. With few
 * regions it is less than what the thread has cost.
 */
static uint32_t cost_of_sharing(void)
{
	return table.used <= 4096 ? 0 : table.used / 64 + table.used / 1024 * 64;
}

/*
 * Lock held. Stripes of threads that have ended make each sum longer, until it would have cost as
 * much to move their counts into the shared stripe.
 */
static void __attribute__((noinline)) share_orphans(void)
{
	static uint64_t paid;
	const unsigned at_a_time = 16;
	uint32_t stripe = PDN_STRIPE_SHARED;

	paid += __atomic_load_n(&pdn_stripe_orphans, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < at_a_time && paid > cost_of_sharing() &&
			     (stripe = pdn_stripe_take_orphan()) != PDN_STRIPE_SHARED;
	     i++) {
		paid -= cost_of_sharing() + 1;
		pdn_stripe_use_shared();
		share_counts(pdn_holds, stripe, table.used);
		share_counts(pdn_object_holds, stripe, pdn_object_table.used);
		pdn_stripe_return_orphan(stripe);
	}
}

/*
 * Slow: a thread's first hold, and holds of threads that share a stripe or can't do without
 * atomics. A thread that shares one looks at each hold whether another has become free.
 */
void pdn_hold_shared(uint32_t *const *counts, struct pdn_thread *self, uint32_t number,
		     uint32_t change)
{
	if (self->stripe == PDN_STRIPE_SHARED && !self->stripe_asked)
		claim_stripe(self);
	if (self->holds) {
		pdn_hold_own(counts[self->stripe], number, change);
		return;
	}
	if (self->stripe == PDN_STRIPE_SHARED)
		pdn_stripe_use_shared();
	/* As the light side's store, with its barrier in it: pairs with pdn_holds_any(). */
	__atomic_fetch_add(&counts[self->stripe][number], change, __ATOMIC_SEQ_CST);
}

/*
 * Relaxed, as two threads may store their answers at the same time: an outdated count only means
 * one more comparison.
 */
bool pdn_region_stands(struct pindown_region *region)
{
	struct pdn_pin pin;
	uint32_t value;

	if (pdn_region_word_stands(region))
		return true;
	pin = pdn_region_pin(region);
	if (!pdn_kmod_mappings_stand(&pin, &value))
		return false;
	__atomic_store_n(&region->word_value, value, __ATOMIC_RELAXED);
	return true;
}

/* ---- what the record of a region says ------------------------------------------------------- */

/*
 * Relaxed: while a holder without the lock asks, another one may open or close the descriptor. That
 * holder needs the handle only, which stays.
 */
void pdn_region_add_to_pin(const struct pindown_region *region, struct pdn_pin *pin)
{
	unsigned flags = pdn_region_flags(region);

	pin->spans = flags & PDN_REGION_SPANS;
	pin->fell_back = flags & PDN_REGION_FELL_BACK;
	pin->pcie = flags & PDN_REGION_PCIE;
	if (flags & PDN_REGION_BACKED) {
		const struct pdn_backing *had = &pdn_backings[pdn_region_number(region)];

		pin->fd = (int)__atomic_load_n(&had->descriptor, __ATOMIC_RELAXED) - 1;
		pin->fd_identity = __atomic_load_n(&had->fd_identity, __ATOMIC_RELAXED);
		pin->handle = __atomic_load_n(&had->handle, __ATOMIC_RELAXED);
	}
}

uint64_t __attribute__((noinline, cold)) pdn_region_piece_base(const struct pindown_region *region)
{
	return pdn_kind_data_of(region)->pin_base;
}

struct pdn_pin __attribute__((noinline)) pdn_region_pin(const struct pindown_region *region)
{
	struct pdn_pin pin;

	pdn_region_copy_pin(region, &pin);
	return pin;
}

static struct pdn_backing backing_of(const struct pdn_pin *pin)
{
	return (struct pdn_backing){
		.fd_identity = pin->fd < 0 ? 0 : pin->fd_identity,
		.descriptor = (uint32_t)(pin->fd + 1),
		.handle = pin->handle,
	};
}

/*
 * The flag comes last: a child that is forked here finds the descriptor in a flight. Relaxed: pairs
 * with pdn_region_add_to_pin().
 */
void pdn_region_set_dmabuf(struct pindown_region *region, const struct pdn_pin *pin)
{
	unsigned flags = pdn_region_flags(region) & ~PDN_REGION_PCIE;
	struct pdn_backing *has = &pdn_backings[pdn_region_number(region)];
	struct pdn_backing now = backing_of(pin);

	__atomic_store_n(&has->fd_identity, now.fd_identity, __ATOMIC_RELAXED);
	__atomic_store_n(&has->handle, now.handle, __ATOMIC_RELAXED);
	__atomic_store_n(&has->descriptor, now.descriptor, __ATOMIC_RELAXED);
	pdn_region_set_flags(region, flags | PDN_REGION_BACKED | (pin->pcie ? PDN_REGION_PCIE : 0));
}

void pdn_region_drop_dmabuf(struct pindown_region *region)
{
	/* Release: a child that is forked here finds it in a flight, or the region has it still. */
	if (pdn_region_flags(region) & PDN_REGION_BACKED)
		__atomic_store_n(&pdn_backings[pdn_region_number(region)].descriptor, 0,
				 __ATOMIC_RELEASE);
}

static unsigned flags_of(const struct pdn_allocation *what, const struct pdn_pin *pin)
{
	return (what->mappings_hash ? PDN_REGION_SPANS : 0) |
	       (what->is_window ? PDN_REGION_WINDOW : 0) | (what->pool ? PDN_REGION_POOL : 0) |
	       (pin->fell_back ? PDN_REGION_FELL_BACK : 0) | (pin->pcie ? PDN_REGION_PCIE : 0) |
	       (pin->fd >= 0 || pin->handle ? PDN_REGION_BACKED : 0) |
	       (pin->base != (what->memory.base & -(uint64_t)PINDOWN_PAGE_SIZE) ? PDN_REGION_PIECE
										: 0);
}

/* Stores what the record has no room for. A window or a mapping never has the flag PIECE. */
static void fill_kind_data(union pdn_kind_data *data, const struct pdn_allocation *what,
			   unsigned flags)
{
	if (flags & PDN_REGION_SPANS) {
		data->mappings_hash = what->mappings_hash;
	} else if (flags & PDN_REGION_WINDOW && what->memory.context) {
		data->whole_base = what->whole_base;
		data->whole_end = what->whole_end;
	} else if (flags & PDN_REGION_PIECE) {
		data->pin_base = what->pin_base;
	}
}

void pdn_region_fill(struct pindown_region *region, const struct pdn_allocation *what,
		     const struct pdn_pin *pin, unsigned flags)
{
	uint32_t number = pdn_region_number(region);

	flags |= flags_of(what, pin);
	region->device = (int16_t)what->memory.device;
	region->buffer_id = what->buffer_id;
	region->owner = what->pool ? what->pool : what->memory.context;
	region->reason = 0;
	if (flags & PDN_REGION_BACKED)
		pdn_backings[number] = backing_of(pin);
	fill_kind_data(&pdn_kind_data[number], what, flags);
	__atomic_store_n(&region->word, pin->word, __ATOMIC_RELAXED);
	__atomic_store_n(&region->word_value, pin->word_value, __ATOMIC_RELAXED);
	__atomic_store_n(&region->base, what->memory.base, __ATOMIC_RELAXED);
	__atomic_store_n(&region->end, what->memory.end, __ATOMIC_RELAXED);
	pdn_region_set_flags(region, flags);
}

/* ---- records -------------------------------------------------------------------------------- */

/* As many as the configuration asks for, or else a million. Fewer if address space is limited. */
static uint32_t records_wanted(void)
{
	const uint64_t usual = 1u << 20, least = 1u << 12, most = 1u << 24;
	uint64_t asked = pdn_config()->max_regions, records = least;

	if (!asked)
		return (uint32_t)usual;
	while (records <= asked && records < most)
		records *= 2;
	return (uint32_t)records;
}

static bool __attribute__((noinline, cold)) reserve_tables(void)
{
	size_tables();
	return pdn_tables_reserve(tables, TABLES, records_wanted());
}

uint32_t pdn_region_alloc(void)
{
	uint32_t number = free_list;

	if (__builtin_expect(__atomic_load_n(&pdn_stripe_orphans, __ATOMIC_RELAXED) != 0, 0))
		share_orphans();
	if (number) {
		free_list = pdn_regions[number].next;
		pdn_regions[number].next = 0;
		return number;
	}
	if (!table.capacity && !reserve_tables())
		return 0;
	number = pdn_tables_next(tables, OF_REGIONS);
	if (number && !pdn_region_limit)
		publish_table();
	return number;
}

static inline void clear(uint32_t number)
{
	struct pindown_region *region = &pdn_regions[number];

	region->dmabuf_users = 0;
	pdn_region_set_flags(region, 0);
	/* Release, for hold_if(): a late hit that sees it free has nothing more to look at. */
	__atomic_store_n(&pdn_briefs[number].state, PDN_FREE, __ATOMIC_RELEASE);
}

/* With PINDOWN_DEBUG a record is used again later. */
void pdn_region_free(uint32_t number)
{
	clear(number);
	if (pdn_debugging)
		number = pdn_misuse_delay_reuse(&resting, number);
	if (!number)
		return;
	pdn_regions[number].next = free_list;
	free_list = number;
}

bool pdn_object_trees_begin(void)
{
	return pdn_table_use_column(&table, OBJECT_TREES);
}

uint32_t pdn_region_capacity(void)
{
	uint32_t records = table.capacity;

	if (!records) {
		size_tables();
		records = pdn_tables_plan(tables, TABLES, records_wanted());
	}
	return records - 1;
}

/* Of records that were being filled in a flight may have the pin. */
void pdn_region_each_pin(void (*fn)(struct pdn_pin *pin))
{
	for (uint32_t n = 1; pdn_region_limit && n <= table.used; n++) {
		struct pindown_region *region = &pdn_regions[n];
		struct pdn_pin pin;

		if (!(pdn_region_flags(region) & PDN_REGION_BACKED))
			continue;
		pin = pdn_region_pin(region);
		fn(&pin);
		pdn_region_drop_dmabuf(region);
	}
}

uint32_t pdn_region_high_water(void)
{
	/* Relaxed: without the lock, see past.c. */
	return __atomic_load_n(&table.used, __ATOMIC_RELAXED);
}

/* Those that are no columns of the table. */
static void clear_stripes(void)
{
	for (unsigned s = PDN_STRIPES_AT_FIRST; s < PDN_STRIPES; s++)
		if (pdn_holds[s])
			pdn_advise(pdn_holds[s], table.capacity * sizeof(uint32_t), MADV_DONTNEED);
}

/*
 * A reader that comes late sees zeroed records: PDN_FREE. The hold counts of free records sum to
 * zero but their stripes may not each be zero; dropping all of them at once keeps the sum.
 */
void pdn_region_trim(void)
{
	/* A child may still put its parent's regions: their records must stay what they are. */
	if (pdn_process_is_off())
		return;
	clear_stripes();
	pdn_table_clear(&table);
	pdn_table_clear(&briefs);
	pdn_table_clear(&backings);
	pdn_table_clear(&kind_data);
	free_list = 0;
	resting = (struct pdn_resting){.next = 0};
}

/*
 * The kernel has done that where it can. A region that this thread was in the middle of may have
 * got another state since.
 */
void pdn_regions_forget(void)
{
	for (uint32_t n = 1; pdn_region_limit && n <= table.used; n++)
		__atomic_store_n(&pdn_briefs[n].state, PDN_FREE, __ATOMIC_RELAXED);
}
