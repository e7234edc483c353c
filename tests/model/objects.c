/* SPDX-License-Identifier: MIT */
/* Consumer objects: the model's list of them, and the checks of the cache's actions on them. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <string.h>

#include "cache/base/environment/config.h"
#include "model.h"

struct object *objects[MAX_OBJECTS];
unsigned object_count;
static struct object records[MAX_OBJECTS]; /* objects[] is a permutation of them */
static unsigned ending;			   /* those that must be destroyed, or else are kept */

struct consumer consumers[CONSUMERS];

void objects_reset(void)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		objects[i] = &records[i];
	object_count = ending = 0;
	memset(consumers, 0, sizeof(consumers));
}

/* ---- the list ---- */

/* Two rights, and a few ranges: some contain others, and some overlap. */
struct pindown_key key_of(unsigned key)
{
	static const struct {
		unsigned first, count;
	} ranges[KEYS / 8] = {{0, 2}, {1, 1}, {0, 4}, {1, 4}};
	unsigned which = key / 8;

	return (struct pindown_key){
		.owner = key % OWNERS,
		.word = {key / 2 % 4, PINDOWN_KEY_RANGE(ranges[which].first * PINDOWN_PAGE_SIZE,
							ranges[which].count * PINDOWN_PAGE_SIZE)}};
}

/* One consumer compares keys; one has rights; and one has a right, and ranges. */
struct pindown_consumer rules_of(unsigned consumer)
{
	return (struct pindown_consumer){.name = "model",
					 .create = saw_create,
					 .destroy = saw_destroy,
					 .arg = &consumers[consumer],
					 .rights = consumer == 1   ? 3
						   : consumer == 2 ? 2
								   : 0,
					 .flags = consumer == 2 ? PINDOWN_CONSUMER_RANGES : 0};
}

static bool reaches_over(uint64_t range, uint64_t other)
{
	uint64_t base = PINDOWN_KEY_RANGE_BASE(range), other_base = PINDOWN_KEY_RANGE_BASE(other);

	return base <= other_base && other_base + PINDOWN_KEY_RANGE_LENGTH(other) <=
					     base + PINDOWN_KEY_RANGE_LENGTH(range);
}

static bool serves(unsigned consumer, unsigned key, unsigned wanted)
{
	const struct pindown_consumer rules = rules_of(consumer);
	const struct pindown_key has = key_of(key), wants = key_of(wanted);
	uint64_t rights = has.word[0] & rules.rights, asked = wants.word[0] & rules.rights;
	bool is_wider = rules.flags && reaches_over(has.word[1], wants.word[1]);

	return has.owner == wants.owner && (has.word[1] == wants.word[1] || is_wider) &&
	       (has.word[0] & ~rules.rights) == (wants.word[0] & ~rules.rights) &&
	       (rights & asked) == asked;
}

struct object *object_on(const struct region *r, unsigned consumer, unsigned key,
			 const pindown_object *real)
{
	struct object *found = NULL;

	for (unsigned i = 0; i < object_count; i++) {
		struct object *o = objects[i];

		if (o->region != r || o->state != OBJECT_LIVE || o->consumer != consumer ||
		    !serves(consumer, o->key, key))
			continue;
		if (o->key == key)
			return o;
		if (!found || o->real == real)
			found = o;
	}
	return found;
}

struct object *new_object(struct region *r, unsigned consumer, unsigned key)
{
	struct object *o;

	AGREE(object_count < MAX_OBJECTS, "more than %d objects in the model", MAX_OBJECTS);
	o = objects[object_count++];
	*o = (struct object){.region = r, .consumer = consumer, .key = key};
	r->objects++;
	return o;
}

static void forget_object(const struct object *o)
{
	unsigned at = 0;

	while (objects[at] != o)
		at++;
	objects[at] = objects[--object_count];
	objects[object_count] = (struct object *)(uintptr_t)o;
}

void object_hold(struct object *o)
{
	if (o->holds++ == 0)
		o->region->held_objects++;
}

/* The last hold of a revoked object, or of a parent's, frees its record. */
void object_let_go(struct object *o)
{
	if (--o->holds)
		return;
	if (o->state == OBJECT_REVOKED || o->state == OBJECT_ABANDONED) {
		forget_object(o);
		return;
	}
	o->region->held_objects--;
	if (o->state == OBJECT_KEPT)
		expect_destroy(o,
			       1u << (o->region->live ? PINDOWN_REASON_OWNER : o->region->reason));
}

/* ---- expected actions ----------------------------------------------------------------------- */

void expect_destroy(struct object *o, unsigned reasons)
{
	o->state = OBJECT_ENDING;
	o->reasons = (uint8_t)reasons;
	ending++;
}

bool revokes(int reason)
{
	return pdn_config()->held == PDN_HELD_REVOKE &&
	       (reason == PINDOWN_REASON_FREED || reason == PINDOWN_REASON_CONTEXT ||
		reason == PINDOWN_REASON_STALE);
}

bool is_used(const struct region *r)
{
	return r->holds || r->making || r->held_objects;
}

/* Their end is being reported: held objects may stay, unless something revokes them. */
void expect_objects_end(struct region *r)
{
	for (unsigned i = 0; r->objects && i < object_count; i++)
		if (objects[i]->region == r &&
		    (objects[i]->state == OBJECT_LIVE || objects[i]->state == OBJECT_KEPT))
			expect_destroy(objects[i], 1u << r->reason);
}

/* Objects that were kept at a free in stream order, and must be revoked now. */
void expect_end_of_reused(uint64_t begin, uint64_t end)
{
	const struct ending what = {.begin = begin, .end = end};

	expect_end_of_replaced(&what, PINDOWN_REASON_FREED);
	for (unsigned i = 0; i < object_count; i++) {
		struct object *o = objects[i];

		if (o->state != OBJECT_KEPT || !o->region->awaits || o->region->base >= end ||
		    begin >= o->region->end)
			continue;
		o->revocable = true;
		counts.objects_reused++;
		expect_destroy(o, 1u << PINDOWN_REASON_ORDERED);
	}
}

/* The memory of regions that were replaced ends: that is the end of their objects. */
void expect_end_of_replaced(const struct ending *what, int reason)
{
	for (unsigned i = 0; i < region_count; i++) {
		struct region *r = regions[i];

		if (r->live || !r->awaits || r->reason != PINDOWN_REASON_EVICTED ||
		    !is_ended(r, what))
			continue;
		r->reason = (uint8_t)reason;
		r->awaits =
			reason == PINDOWN_REASON_ORDERED && pdn_config()->held == PDN_HELD_REVOKE;
		expect_objects_end(r);
	}
}

/* Returns the number of those that stay because they are held; they are not found any more. */
static int expect_theirs_to_end(unsigned consumer, const unsigned *owner)
{
	int held = 0;

	for (unsigned i = 0; i < object_count; i++) {
		struct object *o = objects[i];

		if ((o->state != OBJECT_LIVE && o->state != OBJECT_KEPT) ||
		    o->consumer != consumer || (owner && o->key % OWNERS != *owner))
			continue;
		if (owner && o->holds) {
			counts.objects_hidden += o->state == OBJECT_LIVE;
			o->state = OBJECT_KEPT;
			held++;
			continue;
		}
		o->revocable = true;
		expect_destroy(o, 1u << PINDOWN_REASON_OWNER);
	}
	return held;
}

/* ---- actions of the cache ------------------------------------------------------------------- */

int saw_destroy(const struct pindown_object_end *what, void *arg)
{
	struct object *o = what->data;
	struct pindown_key key;
	struct region *r;

	AGREE(o >= records && o < records + MAX_OBJECTS && o->state != OBJECT_ABANDONED,
	      "an object is destroyed that was never made");
	AGREE(o->state == OBJECT_ENDING, "an object is destroyed, and nothing has ended it");
	r = o->region;
	key = key_of(o->key);
	AGREE(memcmp(&key, &what->key, sizeof(key)) == 0 && arg == &consumers[o->consumer] &&
		      what->region == r->real,
	      "an object is destroyed as another one");
	AGREE(o->reasons & 1u << what->reason,
	      "an object is destroyed for reason %d; the model: 0x%x", what->reason, o->reasons);
	AGREE(!r->must_be_told, "an object is destroyed before its region's end is reported");
	AGREE(!r->unpinned, "an object is destroyed after the unpin");
	AGREE(what->in_use == (o->holds > 0),
	      "an object is destroyed: %sin use; the model: %u holds", what->in_use ? "" : "not ",
	      o->holds);
	AGREE(!o->holds || o->revocable || revokes(what->reason), "a held object is destroyed");
	ending--;
	r->objects--;
	counts.objects_revoked += o->holds > 0;
	counts.destroyed_at_last_detach += in_detach;
	o->region = NULL;
	o->state = OBJECT_REVOKED;
	if (o->holds)
		r->held_objects--;
	else
		forget_object(o);
	if (o == making.vain)
		made_in_vain();
	return (int)o->key % 2; /* the result is ignored: the object is gone */
}

/*
 * The operation that ended them is over: each object was destroyed if it had to be, and is kept
 * otherwise.
 */
void settle_objects(void)
{
	for (unsigned i = 0; ending && i < object_count; i++) {
		struct object *o = objects[i];

		if (o->state != OBJECT_ENDING)
			continue;
		AGREE(o->holds && !o->revocable && !revokes(o->region->reason),
		      "an object on 0x%" PRIx64 " was not destroyed", o->region->base);
		o->state = OBJECT_KEPT;
		ending--;
		counts.objects_kept++;
	}
}

/* In a forked child. */
void abandon_objects(void)
{
	for (unsigned i = object_count; i-- > 0;) {
		struct object *o = objects[i];

		o->region = NULL;
		o->state = OBJECT_ABANDONED;
		if (!o->holds)
			forget_object(o);
	}
	ending = 0;
}

uint64_t objects_now(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < object_count; i++)
		n += objects[i]->state == OBJECT_LIVE || objects[i]->state == OBJECT_KEPT;
	return n;
}

/* ---- owners and consumers ---- */

/* n: consumer. */
void op_consumer_add(const uint32_t n[])
{
	struct consumer *c = &consumers[n[0] % CONSUMERS];
	const struct pindown_consumer ops = rules_of(n[0] % CONSUMERS);
	int id;

	if (c->is_there)
		return;
	id = pindown_consumer_add(&ops, sizeof(ops));
	AGREE(id > 0 && id != c->id, "a new consumer has the id %d; its forerunner: %d", id, c->id);
	*c = (struct consumer){.id = id, .is_there = true};
}

/* n: consumer. */
void op_consumer_remove(const uint32_t n[])
{
	struct consumer *c = &consumers[n[0] % CONSUMERS];
	int wanted = c->is_there ? PINDOWN_OK : PINDOWN_ERR_INVALID, result;

	expect_theirs_to_end(n[0] % CONSUMERS, NULL);
	c->is_there = false;
	result = pindown_consumer_remove(c->id);
	AGREE(result == wanted, "consumer_remove: %d; the model: %d", result, wanted);
}

/* n: consumer, owner. */
void op_end_owner(const uint32_t n[])
{
	const struct consumer *c = &consumers[n[0] % CONSUMERS];
	unsigned owner = n[1] % OWNERS;
	int wanted, result;

	wanted = expect_theirs_to_end(n[0] % CONSUMERS, &owner);
	if (!c->is_there)
		wanted = PINDOWN_ERR_INVALID;
	result = pindown_end_owner(c->id, owner);
	AGREE(result == wanted, "end_owner: %d; the model: %d", result, wanted);
}

/* n: 0: keep, 1: warn, 2: revoke. */
void op_held(const uint32_t n[])
{
	((struct pdn_config *)(uintptr_t)pdn_config())->held = (enum pdn_held)(n[0] % 3);
}
