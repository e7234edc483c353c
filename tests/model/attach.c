/* SPDX-License-Identifier: MIT */
/* Attach and detach, on the cache and on the model: the allowed results. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <string.h>

#include "cache/hit/index.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "model.h"

struct making making;
struct create_script create_script;
bool in_detach, detach_when_told;

enum { OWN_ERROR = 95 };

/* ---- create ---- */

static enum create_fate fate_of_next(void)
{
	if (!create_script.times)
		return CREATE_WORKS;
	create_script.times--;
	return create_script.fate;
}

/* Code within create asks for the object that is being created. */
static void attach_the_same(const struct region *r)
{
	pindown_object *untouched = (pindown_object *)&making, *real = untouched;
	struct pindown_key key = key_of(making.key);
	int result;

	AGREE(get_begins(r->base, 1, 0) == r, "a region that is held is not found");
	result = pindown_attach(consumers[making.consumer].id, r->base, 1, 0, &key, NULL, &real);
	AGREE(result == PINDOWN_ERR_BUSY && real == untouched,
	      "attach of what is just being made: %s", pindown_strerror(result));
}

static void befall(struct region *r, enum create_fate fate)
{
	switch (fate) {
	case CREATE_FREES:
		if (memory_at(r->base))
			op_free((uint32_t[MAX_NUMBERS]){place_of(r->base)});
		break;
	case CREATE_REPLACES:
		replace_memory(r->base);
		break;
	case CREATE_FLUSHES:
		op_flush((uint32_t[MAX_NUMBERS]){0});
		break;
	case CREATE_ENDS_OWNER:
		op_end_owner((uint32_t[MAX_NUMBERS]){making.consumer, making.key % OWNERS});
		break;
	case CREATE_REMOVES:
		op_consumer_remove((uint32_t[MAX_NUMBERS]){making.consumer});
		break;
	case CREATE_ATTACHES:
		if (r->live && !making.region)
			attach_the_same(r);
		break;
	default:
		break;
	}
}

/* Can nobody ask for the object any more, because its memory has ended or its consumer has gone? */
static void expect_in_vain(struct object *o)
{
	const struct region *r = o->region;

	expect_destroy(o, 1u << (r->live ? PINDOWN_REASON_OWNER : r->reason));
	making.vain = o;
	if (!consumers[making.consumer].is_there)
		making.error = PINDOWN_ERR_INVALID;
	else if (making.region)
		making.error = PINDOWN_ERR_NOT_DEVICE;
	counts.made_in_vain++;
}

int saw_create(const struct pindown_object_request *what, void **data, void *arg)
{
	pindown_region *real = what->region;
	struct pindown_key wanted = key_of(making.key);
	struct region *r;
	enum create_fate fate = fate_of_next();

	AGREE(what->request == &making, "create is called for another request");
	AGREE(arg == &consumers[making.consumer] &&
		      memcmp(&what->key, &wanted, sizeof(wanted)) == 0,
	      "another object is made than was asked for");
	AGREE(!(making.flags & PINDOWN_GET_CACHED) && consumers[making.consumer].is_there,
	      "an object is made for nobody");
	r = making.region ? making.region : get_has(making.found, real);
	AGREE(r->real == real && r->live, "an object is made on another region");
	AGREE(!object_on(r, making.consumer, making.key, NULL), "an object is made again");
	settle_objects(); /* all objects that ended because of the pin are destroyed by now */
	r->making = !making.region;
	befall(r, fate);
	r->making = 0;
	if (fate == CREATE_FAILS) {
		making.error = PINDOWN_CREATE_FAILED(OWN_ERROR);
		return OWN_ERROR;
	}
	making.object = new_object(r, making.consumer, making.key);
	*data = making.object;
	if (!r->live || !consumers[making.consumer].is_there) {
		expect_in_vain(making.object);
		making.object = NULL;
	}
	counts.objects_made += making.object != NULL;
	return 0;
}

/*
 * The new object must be destroyed again. The attach is tried again with the memory that exists
 * now, if that makes sense.
 */
void made_in_vain(void)
{
	making.vain = NULL;
	if (!making.error)
		making.found = get_begins(making.addr, making.length, making.flags);
}

/* ---- attach ---- */

/* A region existed, and no object was created on it: checks the result. */
static int wanted_of(const struct region *r, const struct object *o)
{
	if (o)
		return PINDOWN_OK;
	if (!consumers[making.consumer].is_there)
		return PINDOWN_ERR_INVALID;
	AGREE(making.flags & PINDOWN_GET_CACHED || !r->live,
	      "attach: an object should have been made");
	return PINDOWN_ERR_NOT_DEVICE;
}

static struct object *judge_found(const struct region *r, int result)
{
	struct object *o = r->live ? object_on(r, making.consumer, making.key, making.real) : NULL;
	int wanted = wanted_of(r, o);

	AGREE(result == wanted, "attach: %s; the model: %s", pindown_strerror(result),
	      pindown_strerror(wanted));
	counts.objects_found += o != NULL;
	counts.objects_served += o && o->key != making.key;
	return o;
}

/* Nothing was cached, and nothing created. */
static void judge_not_found(int result)
{
	if (making.flags & PINDOWN_GET_CACHED) {
		AGREE(result == PINDOWN_ERR_NOT_DEVICE, "attach: %s; the model: not cached",
		      pindown_strerror(result));
	} else if (attempt.pinned) {
		AGREE(result == PINDOWN_ERR_INVALID && !consumers[making.consumer].is_there,
		      "attach: %s; it was pinned", pindown_strerror(result));
		get_has(NULL, &pdn_regions[pdn_index_find(making.addr)]);
	} else {
		get_judge(result);
	}
}

static struct object *judge(int result)
{
	AGREE(!making.vain, "an object that was made for nothing is not destroyed");
	if (making.object || making.error) {
		AGREE(result == making.error, "attach: %d; the model: %d", result, making.error);
		return making.object;
	}
	if (making.region || making.found)
		return judge_found(making.region ? making.region : making.found, result);
	judge_not_found(result);
	return NULL;
}

static void compare_object(const struct object *o)
{
	AGREE(pindown_object_is_live(o->real), "an attach has returned an object that is not live");
	AGREE(pindown_object_data(o->real) == o, "another object's data");
	AGREE(pindown_object_region(o->real) == o->region->real, "another region's object");
}

static void finish(int result, pindown_object *real, const pindown_object *untouched)
{
	struct object *o;

	making.real = real;
	o = judge(result);
	attempt.on = false;
	making.region = NULL;
	AGREE((o != NULL) == (real != untouched), "an object is written, or not");
	if (!o)
		return;
	AGREE(!o->real || o->real == real, "another object is found");
	o->real = real;
	object_hold(o);
	compare_object(o);
}

/* n: place, offset, length, flags, consumer, key. */
void op_attach(const uint32_t n[])
{
	uint64_t addr = place_base(n[0]) + n[1];
	pindown_object *untouched = (pindown_object *)&attempt, *real = untouched;
	unsigned consumer = n[4] % CONSUMERS, which = n[5] % KEYS;
	struct pindown_key key = key_of(which);
	int result;

	making = (struct making){
		.addr = addr, .length = n[2], .flags = n[3], .consumer = consumer, .key = which};
	if (get_is_bad(n[2], n[3]) || consumers[consumer].id < 1)
		making.error = PINDOWN_ERR_INVALID;
	else if (is_off)
		making.error = PINDOWN_ERR_NO_CUDA;
	else
		making.found = get_begins(addr, n[2], n[3]);
	result = pindown_attach(consumers[consumer].id, addr, n[2], n[3], &key, &making, &real);
	finish(result, real, untouched);
}

/* n: which of the held regions, flags, consumer, key. */
void op_attach_region(const uint32_t n[])
{
	struct region *r = nth_held(n[0]);
	pindown_object *untouched = (pindown_object *)&attempt, *real = untouched;
	unsigned consumer = n[2] % CONSUMERS, which = n[3] % KEYS;
	struct pindown_key key = key_of(which);
	int result;

	making =
		(struct making){.region = r, .flags = n[1] % 4, .consumer = consumer, .key = which};
	if (!r || consumers[consumer].id < 1)
		making.error = PINDOWN_ERR_INVALID;
	result = pindown_attach_region(consumers[consumer].id, r ? r->real : NULL, 0, 0,
				       making.flags, &key, &making, &real);
	finish(result, real, untouched);
}

/* n: times, fate. */
void op_creates(const uint32_t n[])
{
	create_script = (struct create_script){.times = n[0],
					       .fate = (enum create_fate)(n[1] % CREATE_FATES)};
}

/* ---- detach ---- */

struct object *nth_held_object(uint32_t n)
{
	unsigned held = 0;

	for (unsigned i = 0; i < object_count; i++)
		held += objects[i]->holds > 0;
	if (!held)
		return NULL;
	n %= held;
	for (unsigned i = 0;; i++)
		if (objects[i]->holds && n-- == 0)
			return objects[i];
}

static void detach(struct object *o)
{
	pindown_object *real = o->real;

	object_let_go(o);
	pindown_detach(real);
}

/* n: which. */
void op_detach(const uint32_t n[])
{
	struct object *o = nth_held_object(n[0]);

	if (!o) {
		pindown_detach(NULL);
		return;
	}
	AGREE(pindown_object_is_live(o->real) == (o->state == OBJECT_LIVE), "detach: live or not");
	AGREE(o->state == OBJECT_ABANDONED ||
		      pindown_object_data(o->real) == (o->state == OBJECT_REVOKED ? NULL : o),
	      "detach: data or none");
	in_detach = true;
	detach(o);
	in_detach = false;
}

/* From a subscriber: detaches an object that is held on an ended region. */
void detach_one_of(const struct region *r)
{
	for (unsigned i = 0; i < object_count; i++)
		if (objects[i]->region == r && objects[i]->holds) {
			detach(objects[i]);
			return;
		}
}

/* n: on. */
void op_detach_when_told(const uint32_t n[])
{
	detach_when_told = n[0];
}
