/* SPDX-License-Identifier: MIT */
/*
 * The operations, each on the cache and on the model. Every operation has a meaning in every state,
 * if only that nothing happens: so a sequence may be shortened anywhere.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "cache/room/evict.h"
#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "model.h"

bool put_when_told, in_put;

/* ---- get and put ---- */

static void op_get(const uint32_t n[])
{
	perform_get(place_base(n[0]) + n[1], n[2], n[3]);
}

static void op_put(const uint32_t n[])
{
	struct region *r = nth_held(n[0]);

	if (!r) {
		pindown_put(NULL);
		return;
	}
	AGREE(pindown_region_is_live(r->real) == r->live, "put: live or not");
	r->holds--;
	in_put = true;
	pindown_put(r->real);
	in_put = false;
}

/*
 * n: place, offset, length, flags, count, and the bytes from the begin of a range to that of the
 * next.
 */
static void op_getv(const uint32_t n[])
{
	struct pindown_range ranges[MAX_VECTOR];
	size_t count = n[4] % (MAX_VECTOR + 1);

	for (size_t i = 0; i < count; i++)
		ranges[i] = (struct pindown_range){place_base(n[0]) + n[1] + i * n[5], n[2]};
	perform_getv(ranges, count, n[3]);
}

/* n: the first of the held regions, how many, how far the next one is in the list of them. */
static void op_putv(const uint32_t n[])
{
	pindown_region *real[MAX_VECTOR];
	size_t count = 0;

	for (size_t i = 0; i < n[1] % (MAX_VECTOR + 1); i++) {
		struct region *r = nth_held(n[0] + (uint32_t)i * n[2]);

		if (!r)
			break;
		AGREE(pindown_region_is_live(r->real) == r->live, "putv: live or not");
		r->holds--;
		real[count++] = r->real;
	}
	in_put = true;
	pindown_putv(real, count);
	in_put = false;
}

/* ---- memory comes and goes ---- */

static void report_allocation(uint64_t base, uint64_t end)
{
	expect_end_of_changed(base, end);
	expect_end_of_reused(base, end);
	pdn_allocated(base, end - base);
	volatile_cut(base, end);
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && regions[i]->base < end && base < regions[i]->end &&
		    !volatile_any(regions[i]->base, regions[i]->end))
			regions[i]->is_volatile = false;
}

static bool is_owner(enum kind kind, uint32_t owner)
{
	return kind == POOL ? owner < POOLS : kind <= HOST && owner < CONTEXTS;
}

/* n: place, offset, size, kind, owner, seen. */
static void op_allocate(const uint32_t n[])
{
	struct memory *m = &memory[n[0]];

	if (m->id || !n[2] || (uint64_t)n[1] + n[2] > place_size(n[0]) ||
	    !is_owner((enum kind)n[3], n[4]) || (n[3] == MAPPED && n[2] != place_size(n[0])))
		return;
	*m = (struct memory){.base = place_base(n[0]) + n[1],
			     .end = place_base(n[0]) + n[1] + n[2],
			     .id = memory_new_id(),
			     .kind = (enum kind)n[3],
			     .owner = n[4]};
	if (n[5])
		report_allocation(m->base, m->end);
}

static void expect_end_of(const struct ending *what, unsigned reasons)
{
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && is_ended(regions[i], what))
			expect_end(regions[i], reasons);
}

static void expect_end_between(uint64_t begin, uint64_t end, unsigned reasons)
{
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && regions[i]->base < end && begin < regions[i]->end)
			expect_end(regions[i], reasons);
}

/*
 * An unmap names all of the mapping, a free the beginning of the allocation, whose end the driver
 * knows. Regions may be left there of memory that was freed unseen.
 */
void op_free(const uint32_t n[])
{
	struct memory *m = &memory[n[0]];
	bool is_mapping = n[0] >= FIRST_MAPPING, in_order = n[2] && !is_mapping;
	int reason = in_order ? PINDOWN_REASON_ORDERED : PINDOWN_REASON_FREED;
	struct ending what = {.begin = m->id ? m->base : place_base(n[0])};
	pdn_guard guard;

	what.end = is_mapping ? what.begin + MIB(2) : m->id ? m->end : what.begin + 1;
	expect_end_between(what.begin, what.end, 1u << reason);
	expect_end_of_replaced(&what, reason);
	guard = in_order ? pdn_end_in_order(what.begin)
			 : pdn_end_range(what.begin, is_mapping ? MIB(2) : 0);
	if (!n[1])
		m->id = 0;
	pdn_ended(guard);
}

/* n: first mapping, how many, refused. */
static void op_unmap(const uint32_t n[])
{
	unsigned first = FIRST_MAPPING + n[0] % MAPPINGS, count = n[1];
	uint64_t begin = place_base(first);
	pdn_guard guard;

	if (!count || first + count > PLACES)
		return;
	expect_end_between(begin, begin + count * MIB(2), 1u << PINDOWN_REASON_FREED);
	expect_end_of_replaced(&(struct ending){.begin = begin, .end = begin + count * MIB(2)},
			       PINDOWN_REASON_FREED);
	guard = pdn_end_range(begin, count * MIB(2));
	for (unsigned i = first; !n[2] && i < first + count; i++)
		memory[i].id = 0;
	pdn_ended(guard);
}

static void op_allocated(const uint32_t n[])
{
	if (memory[n[0]].id)
		report_allocation(memory[n[0]].base, memory[n[0]].end);
}

static void op_free_unseen(const uint32_t n[])
{
	memory[n[0]].id = 0;
}

void replace_memory(uint64_t addr)
{
	const struct memory *m = memory_at(addr);
	unsigned place = m ? (unsigned)(m - memory) : PLACES;
	struct memory old;

	if (!m)
		return;
	old = *m;
	op_free((uint32_t[MAX_NUMBERS]){place});
	op_allocate((uint32_t[MAX_NUMBERS]){place, (uint32_t)(old.base - place_base(place)),
					    (uint32_t)(old.end - old.base), old.kind, old.owner,
					    1});
}

/* ---- wider ends ---- */

/* n: context, refused. */
static void op_context(const uint32_t n[])
{
	void *context = context_handle(n[0] % CONTEXTS);
	pdn_guard guard;

	expect_end_of(&(struct ending){.context = context}, 1u << PINDOWN_REASON_CONTEXT);
	expect_end_of_replaced(&(struct ending){.context = context}, PINDOWN_REASON_CONTEXT);
	guard = pdn_end_context(context);
	for (unsigned i = 0; !n[1] && i < PLACES; i++)
		if (memory[i].kind == LINEAR && context_handle(memory[i].owner) == context)
			memory[i].id = 0;
	pdn_ended(guard);
}

static void op_device(const uint32_t n[])
{
	int device = (int)(n[0] % DEVICES);
	pdn_guard guard;

	expect_end_of(&(struct ending){.of_device = true, .device = device},
		      1u << PINDOWN_REASON_CONTEXT);
	expect_end_of_replaced(&(struct ending){.of_device = true, .device = device},
			       PINDOWN_REASON_CONTEXT);
	guard = pdn_end_device(device);
	for (unsigned i = 0; !n[1] && i < PLACES; i++)
		if (memory[i].kind == LINEAR && memory_device(&memory[i]) == device)
			memory[i].id = 0;
	pdn_ended(guard);
}

/* A checkpoint: afterwards the memory exists again, with the same ids. */
static void op_all(const uint32_t n[])
{
	(void)n;
	expect_end_between(0, UINT64_MAX, 1u << PINDOWN_REASON_CONTEXT);
	expect_end_of_replaced(&(struct ending){.end = UINT64_MAX}, PINDOWN_REASON_CONTEXT);
	pdn_ended(pdn_end_all());
}

/*
 * ---- calls of middleware ----------------------------------------------------------------------
 */

static int expected_ends(void)
{
	int n = 0;

	for (unsigned i = 0; i < region_count; i++)
		n += regions[i]->must_be_told;
	return n;
}

/* n: place, offset, length. */
static void op_invalidate(const uint32_t n[])
{
	uint64_t addr = place_base(n[0]) + n[1];
	int expected, result;

	expect_end_between(addr, addr + (n[2] ? n[2] : 1), 1u << PINDOWN_REASON_FLUSHED);
	expected = expected_ends();
	result = pindown_invalidate(addr, n[2]);
	AGREE(result == expected, "invalidate: %d; the model: %d", result, expected);
}

static void op_invalidate_context(const uint32_t n[])
{
	void *context = context_handle(n[0] % CONTEXTS);
	int expected, result;

	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && regions[i]->context == context)
			expect_end(regions[i], 1u << PINDOWN_REASON_FLUSHED);
	expected = expected_ends();
	result = pindown_invalidate_context(context);
	AGREE(result == expected, "invalidate_context: %d; the model: %d", result, expected);
}

void op_flush(const uint32_t n[])
{
	int expected, result;

	(void)n;
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && !is_used(regions[i]))
			expect_end(regions[i], 1u << PINDOWN_REASON_FLUSHED);
	expected = expected_ends();
	result = pindown_flush();
	AGREE(result == expected, "flush: %d; the model: %d", result, expected);
}

/* ---- trust ---- */

/* n: place, offset, length. */
static void op_volatile(const uint32_t n[])
{
	uint64_t begin = place_base(n[0]) + n[1], end = begin + (n[2] ? n[2] : 1);

	volatile_add(begin, end);
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && regions[i]->base < end && begin < regions[i]->end)
			regions[i]->is_volatile = true;
	pdn_volatile(begin, n[2]);
}

/* n: place, offset, length: any memory there. */
static void op_allocated_part(const uint32_t n[])
{
	uint64_t begin = place_base(n[0]) + n[1];

	report_allocation(begin, begin + (n[2] ? n[2] : 1));
}

/* n: 0: everything; else a pool. */
static void op_recheck(const uint32_t n[])
{
	void *pool = n[0] ? pool_handle((n[0] - 1) % POOLS) : NULL;

	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && (!pool || regions[i]->pool == pool) && !is_true(regions[i]))
			expect_end(regions[i], 1u << PINDOWN_REASON_STALE);
	pdn_recheck(pool);
}

/* ---- limits and failures ---- */

/* n: regions, bytes in KiB; 0: no limit. The cache reads them again for each pin. */
static void op_budget(const uint32_t n[])
{
	struct pdn_config *config = (struct pdn_config *)(uintptr_t)pdn_config();

	max_regions = n[0] ? n[0] : MAX_REGIONS;
	max_bytes = KIB(n[1]);
	config->max_regions = max_regions;
	config->max_bytes = max_bytes;
}

/* n: device, KiB; 0: no limit. */
static void op_space(const uint32_t n[])
{
	pin_space[n[0] % DEVICES] = n[1] ? KIB(n[1]) : UINT64_MAX;
}

static void op_pins(const uint32_t n[])
{
	script = (struct script){.times = n[0], .fate = (enum pin_fate)(n[1] % PIN_FATES)};
}

/* n: KiB. */
static void op_give_back(const uint32_t n[])
{
	attempt = (struct attempt){.on = true, .giving = true, .bytes = KIB(n[0])};
	pdn_give_back(attempt.bytes, -1);
	AGREE(attempt.given >= attempt.bytes || !any_idle(-1), "less was unpinned than possible");
	attempt.on = false;
}

static void op_put_when_told(const uint32_t n[])
{
	put_when_told = n[0];
}

/* ---- fork ---- */

/*
 * The child has no regions, and gets none if its parent had some. A put of its parent's holders is
 * ignored there; the child checks that.
 */
static void forget_parents(void)
{
	is_off = used_gpu;
	for (unsigned i = 0; i < region_count; i++) {
		regions[i]->abandoned = true;
		regions[i]->awaits = false;
		regions[i]->live = false;
		regions[i]->objects = regions[i]->held_objects = 0;
	}
	abandon_objects();
	volatile_cut(0, UINT64_MAX);
	memset(&counts, 0, sizeof(counts));
	pins_abandoned();
	settle_accounts(true);
}

/* Passes on the whole status, so that a child's death is its parent's, too. */
static void wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) != child)
		;
	if (WIFSIGNALED(status))
		disagree("a forked child was killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status))
		_exit(1);
}

static void be_child(struct op *this_op, uint32_t count)
{
	forget_parents();
	if (!is_replay) {
		this_op->n[1] = 1;
		for (uint32_t i = 0; i < count; i++)
			one_random_operation();
		end_round();
	}
	_exit(0);
}

/*
 * n: the number of the child's operations, and whether (in a replay) the sequence continues in the
 * child.
 */
static void op_fork(const uint32_t n[])
{
	uint64_t at = this_log->count;
	struct op *this_op = is_replay ? NULL : &this_log->ops[at - 1];
	pid_t child;

	if (in_child)
		return;
	pdn_fork_prepare();
	child = fork();
	if (child == 0) {
		in_child = true;
		pdn_fork_child();
		if (n[1] && is_replay) {
			forget_parents();
			return;
		}
		be_child(this_op, n[0]);
	}
	pdn_fork_parent();
	AGREE(child > 0, "fork fails here");
	wait_for(child);
	if (n[1] && is_replay)
		_exit(0);
	if (this_op)
		this_op->n[1] = 0;
	this_log->count = at;
	this_log->forks++;
}

/* ---- the table ---- */

const struct op_kind op_kinds[OP_CODES] = {
	[OP_GET] = {"get", {"place", "offset", "length", "flags"}, op_get},
	[OP_GETV] = {"getv", {"place", "offset", "length", "flags", "count", "step"}, op_getv},
	[OP_PUT] = {"put", {"which"}, op_put},
	[OP_PUTV] = {"putv", {"which", "count", "step"}, op_putv},
	[OP_ALLOCATE] = {"allocate",
			 {"place", "offset", "size", "kind", "owner", "seen"},
			 op_allocate},
	[OP_FREE] = {"free", {"place", "refused", "in-order"}, op_free},
	[OP_UNMAP] = {"unmap", {"mapping", "count", "refused"}, op_unmap},
	[OP_ALLOCATED] = {"allocated-again", {"place"}, op_allocated},
	[OP_FREE_UNSEEN] = {"free-unseen", {"place"}, op_free_unseen},
	[OP_CONTEXT] = {"end-context", {"context", "refused"}, op_context},
	[OP_DEVICE] = {"end-device", {"device", "refused"}, op_device},
	[OP_ALL] = {"end-all", {0}, op_all},
	[OP_INVALIDATE] = {"invalidate", {"place", "offset", "length"}, op_invalidate},
	[OP_INVALIDATE_CONTEXT] = {"invalidate-context", {"context"}, op_invalidate_context},
	[OP_FLUSH] = {"flush", {0}, op_flush},
	[OP_VOLATILE] = {"volatile", {"place", "offset", "length"}, op_volatile},
	[OP_ALLOCATED_PART] = {"allocated-part", {"place", "offset", "length"}, op_allocated_part},
	[OP_RECHECK] = {"recheck", {"pool"}, op_recheck},
	[OP_BUDGET] = {"budget", {"regions", "kib"}, op_budget},
	[OP_SPACE] = {"pin-space", {"device", "kib"}, op_space},
	[OP_PINS] = {"next-pins", {"times", "fate"}, op_pins},
	[OP_GIVE_BACK] = {"give-back", {"kib"}, op_give_back},
	[OP_PUT_WHEN_TOLD] = {"put-when-told", {"on"}, op_put_when_told},
	[OP_ATTACH] = {"attach",
		       {"place", "offset", "length", "flags", "consumer", "key"},
		       op_attach},
	[OP_ATTACH_REGION] = {"attach-region",
			      {"which", "flags", "consumer", "key"},
			      op_attach_region},
	[OP_DETACH] = {"detach", {"which"}, op_detach},
	[OP_END_OWNER] = {"end-owner", {"consumer", "owner"}, op_end_owner},
	[OP_CONSUMER_ADD] = {"consumer-add", {"consumer"}, op_consumer_add},
	[OP_CONSUMER_REMOVE] = {"consumer-remove", {"consumer"}, op_consumer_remove},
	[OP_HELD] = {"held", {"keep-warn-revoke"}, op_held},
	[OP_CREATES] = {"next-creates", {"times", "fate"}, op_creates},
	[OP_DETACH_WHEN_TOLD] = {"detach-when-told", {"on"}, op_detach_when_told},
	[OP_FORK] = {"fork", {"operations", "goes-on-in-child"}, op_fork},
};

void perform(const struct op *op)
{
	static unsigned turn;

	op_kinds[op->code].perform(op->n);
	settle_accounts(++turn % 64 == 0);
}
