/* SPDX-License-Identifier: MIT */
/* Chooses the next operation: by chance, but without meaningless ones. */
#define _GNU_SOURCE
#include "model.h"

static uint64_t dice;

void dice_reset(uint64_t seed)
{
	/* splitmix64: neighbouring seeds give unrelated values */
	seed += 0x9e3779b97f4a7c15u;
	seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
	seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
	dice = (seed ^ (seed >> 31)) | 1;
}

uint32_t roll(uint32_t sides)
{
	/* xorshift64 */
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (uint32_t)((dice >> 32) * sides >> 32);
}

static bool one_in(uint32_t n)
{
	return roll(n) == 0;
}

static uint32_t some_place(void)
{
	uint32_t what = roll(100);

	if (what < 40)
		return roll(SMALL);
	if (what < 70)
		return SMALL + roll(MEDIUM);
	if (what < 72)
		return SMALL + MEDIUM + roll(LARGE);
	return FIRST_MAPPING + roll(MAPPINGS);
}

static uint32_t place_with_memory(void)
{
	uint32_t place = some_place();

	for (unsigned i = 0; i < 4 && !memory[place].id; i++)
		place = some_place();
	return place;
}

static struct op allocation(uint32_t place)
{
	uint32_t whole = (uint32_t)place_size(place), unit = 512, offset = 0, size, kind;

	if (place >= SMALL)
		unit = place < SMALL + MEDIUM ? 4096 : (uint32_t)MIB(2);
	size = unit * (1 + roll(whole / unit));
	if (!one_in(3))
		size = unit * (1 + roll(size / unit)); /* mostly small */
	if (place < FIRST_MAPPING && size < whole)
		offset = unit * roll((whole - size) / unit + 1);
	kind = place >= FIRST_MAPPING ? MAPPED : one_in(40) ? MANAGED + roll(2) : roll(3) == 0;
	return (struct op){OP_ALLOCATE,
			   {place, offset, place >= FIRST_MAPPING ? whole : size, kind,
			    kind == POOL ? roll(POOLS) : roll(CONTEXTS), !one_in(20)}};
}

static uint32_t some_flags(void)
{
	return (one_in(8) ? PINDOWN_GET_CACHED : 0) | (one_in(8) ? PINDOWN_GET_NOWAIT : 0);
}

/* Mostly within an allocation; sometimes to its end, past it, or where there is none. */
static struct op some_get(void)
{
	uint32_t place = one_in(10) ? some_place() : place_with_memory();
	uint32_t flags = some_flags(), from, length;
	const struct memory *m = &memory[place];
	uint32_t size = (uint32_t)(m->id ? m->end - m->base : place_size(place));
	uint32_t offset = m->id ? (uint32_t)(m->base - place_base(place)) : 0;

	if (region_count && one_in(3)) { /* a region that is cached already */
		const struct region *r = regions[roll(region_count)];

		from = roll((uint32_t)(r->end - r->base));
		length = 1 + roll((uint32_t)(r->end - r->base) - from);
		place = place_of(r->base);
		return (struct op){
			OP_GET,
			{place, (uint32_t)(r->base - place_base(place)) + from, length, flags}};
	}
	from = one_in(3) ? 0 : roll(size);
	switch (roll(10)) {
	case 0:
		length = 1 + roll(size * 2);
		break;
	case 1:
		length = size - from;
		break;
	default:
		length = 1 + roll(size - from);
	}
	if (one_in(200))
		flags = 4;
	else if (one_in(200))
		length = 0;
	return (struct op){OP_GET, {place, offset + from, length, flags}};
}

/* Ranges in one region, in neighbours, and in mappings side by side. */
static struct op some_getv(void)
{
	static const uint32_t steps[] = {
		0, 1, 4096, (uint32_t)KIB(24), (uint32_t)MIB(1), (uint32_t)MIB(2)};
	struct op op = some_get();

	op.code = OP_GETV;
	if (!one_in(3)) /* short ones, so that several are cached */
		op.n[2] = op.n[2] % KIB(64);
	op.n[4] = roll(MAX_VECTOR + 1);
	op.n[5] = steps[roll(sizeof(steps) / sizeof(steps[0]))];
	return op;
}

static struct op some_free(uint32_t place)
{
	if (place >= FIRST_MAPPING && one_in(2)) {
		uint32_t first = place - FIRST_MAPPING;

		return (struct op){OP_UNMAP, {first, 1 + roll(MAPPINGS - first), one_in(10)}};
	}
	return (struct op){OP_FREE, {place, one_in(8), one_in(3)}};
}

/* A range that may reach over several mappings. */
static struct op window(void)
{
	uint32_t size = (uint32_t)MIB(2);

	return (struct op){OP_GET,
			   {FIRST_MAPPING + roll(MAPPINGS), roll(size), 1 + roll(2 * size), 0}};
}

/* Mappings stay longer than other memory, so that some are side by side. */
static struct op come_or_go(void)
{
	uint32_t place = some_place();

	if (place >= FIRST_MAPPING && memory[place].id && !one_in(3))
		return window();
	return memory[place].id ? some_free(place) : allocation(place);
}

/*
 * Where the cache checks by itself, it must notice; elsewhere it can't know, and must be notified
 * later. From then on it checks each hit, so only some rounds have that.
 */
static struct op unseen(void)
{
	uint32_t place = some_place();
	const struct memory *m = &memory[place];

	if (!m->id)
		return allocation(place);
	if (checks_all || volatile_any(m->base, m->end) || (may_miss && one_in(8)))
		return (struct op){OP_FREE_UNSEEN, {place}};
	return (struct op){
		OP_VOLATILE,
		{place, (uint32_t)(m->base - place_base(place)), (uint32_t)(m->end - m->base)}};
}

static struct op with_range(uint32_t code)
{
	uint32_t place = some_place(), whole = (uint32_t)place_size(place);
	uint32_t offset = one_in(2) ? 0 : roll(whole);
	uint32_t length = one_in(3) ? whole - offset : roll(whole - offset);

	return (struct op){code, {place, offset, one_in(6) ? 0 : length}};
}

static struct op some_budget(void)
{
	return (struct op){OP_BUDGET,
			   {one_in(2) ? 0 : 1 + roll(20), one_in(2) ? 0 : 64 * (1 + roll(200))}};
}

/* The range of a get; or a range that is cached already. */
static struct op some_attach(void)
{
	const struct object *o = object_count ? objects[roll(object_count)] : NULL;
	uint32_t consumer = roll(CONSUMERS), key = roll(KEYS);
	struct op op = some_get();

	if (o && o->region && !one_in(3)) {
		uint32_t place = place_of(o->region->base);

		op.n[0] = place;
		op.n[1] = (uint32_t)(o->region->base - place_base(place));
		op.n[2] = 1 + roll((uint32_t)(o->region->end - o->region->base));
		consumer = o->consumer;
		key = one_in(3) ? key : o->key;
	}
	return (struct op){OP_ATTACH, {op.n[0], op.n[1], op.n[2], op.n[3], consumer, key}};
}

static struct op about_consumers(void)
{
	uint32_t what = roll(100), consumer = roll(CONSUMERS);

	if (what < 35)
		return (struct op){OP_ATTACH_REGION,
				   {roll(MAX_REGIONS), some_flags(), consumer, roll(KEYS)}};
	if (!consumers[consumer].is_there && what < 75)
		return (struct op){OP_CONSUMER_ADD, {consumer}};
	if (what < 60)
		return (struct op){OP_END_OWNER, {consumer, roll(OWNERS)}};
	if (what < 85)
		return (struct op){OP_CREATES, {1 + roll(3), roll(CREATE_FATES)}};
	if (what < 92)
		return (struct op){OP_HELD, {roll(3)}};
	if (what < 97)
		return (struct op){OP_DETACH_WHEN_TOLD, {roll(2)}};
	return (struct op){OP_CONSUMER_REMOVE, {consumer}};
}

struct op next_op(void)
{
	uint32_t what = roll(1000);

	if (what < 240)
		return some_get();
	if (what < 270)
		return some_getv();
	if (what < 400)
		return some_attach();
	if (what < 560)
		return (struct op){OP_PUT, {roll(MAX_REGIONS)}};
	if (what < 580)
		return (struct op){OP_PUTV, {roll(MAX_REGIONS), roll(MAX_VECTOR + 1), roll(3)}};
	if (what < 680)
		return (struct op){OP_DETACH, {roll(MAX_REGIONS)}};
	if (what < 700)
		return about_consumers();
	if (what < 860)
		return come_or_go();
	if (what < 890)
		return unseen();
	if (what < 920)
		return with_range(OP_INVALIDATE);
	if (what < 930)
		return with_range(OP_VOLATILE);
	if (what < 940)
		return with_range(OP_ALLOCATED_PART);
	if (what < 948)
		return some_budget();
	if (what < 954)
		return (struct op){OP_SPACE, {roll(DEVICES), one_in(2) ? 0 : 64 * (1 + roll(200))}};
	if (what < 969)
		return (struct op){OP_PINS, {1 + roll(3), roll(PIN_FATES)}};
	if (what < 974)
		return (struct op){OP_RECHECK, {roll(POOLS + 1)}};
	if (what < 979)
		return (struct op){OP_GIVE_BACK, {1 + roll(8192)}};
	if (what < 983)
		return (struct op){OP_PUT_WHEN_TOLD, {roll(2)}};
	if (what < 988)
		return (struct op){OP_ALLOCATED, {some_place()}};
	if (what < 991)
		return (struct op){OP_CONTEXT, {roll(CONTEXTS), one_in(6)}};
	if (what < 993)
		return (struct op){OP_INVALIDATE_CONTEXT, {roll(CONTEXTS)}};
	if (what < 995)
		return (struct op){OP_FLUSH, {0}};
	if (one_in(100))
		return (struct op){OP_FORK, {1 + roll(60), 0}};
	if (one_in(8))
		return one_in(2) ? (struct op){OP_DEVICE, {roll(DEVICES), one_in(6)}}
				 : (struct op){OP_ALL, {0}};
	return some_get();
}
