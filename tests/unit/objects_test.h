/* SPDX-License-Identifier: MIT */
/*
 * What the tests of consumer objects share: a consumer that keeps books of what it has made, and
 * complains when it is called too late.
 */
#ifndef OBJECTS_TEST_H
#define OBJECTS_TEST_H

#include "cache_test.h"

#define AT(i) (BASE + MIB(16) * (i))
#define KEY(pd, access) \
	(&(const struct pindown_key){.owner = (uint64_t)(pd), .word = {(uint64_t)(access)}})

/* What a consumer has made: never freed, so that what became of it can be looked at. */
struct made {
	uint64_t owner, access, base, id;
	void *request;
	unsigned destroyed; /* times */
	int reason, in_use;
};

#define MADE_MOST 65536

struct books {
	struct made made[MADE_MOST];
	unsigned places;				     /* atomic: used of `made` */
	unsigned creates, destroys;			     /* atomic: that succeeded */
	int fail;					     /* creates answer this */
	void (*in_create)(struct books *, pindown_region *); /* a step of the test's */
	void (*in_destroy)(struct books *, const struct pindown_object_end *);
	bool pin_is_gone; /* a destroy came after the unpin: never */
};

static inline int books_create(pindown_region *region, const struct pindown_key *key, void *request,
			       void **data, void *arg)
{
	struct books *books = arg;
	int fail = __atomic_load_n(&books->fail, __ATOMIC_RELAXED);
	unsigned n = __atomic_fetch_add(&books->places, 1, __ATOMIC_SEQ_CST);
	struct made *made = &books->made[n % MADE_MOST];

	*made = (struct made){.owner = key->owner,
			      .access = key->word[0],
			      .base = pindown_region_base(region),
			      .id = pindown_region_buffer_id(region),
			      .request = request};
	if (books->in_create)
		books->in_create(books, region);
	if (fail)
		return fail;
	__atomic_fetch_add(&books->creates, 1, __ATOMIC_SEQ_CST);
	*data = made;
	return 0;
}

static inline int books_destroy(const struct pindown_object_end *what, void *arg)
{
	struct books *books = arg;
	struct made *made = what->data;

	if (!fake_open_exports_of(made->id))
		books->pin_is_gone = true;
	made->reason = what->reason;
	made->in_use = what->in_use;
	made->destroyed++;
	if (books->in_destroy)
		books->in_destroy(books, what);
	__atomic_fetch_add(&books->destroys, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static inline int books_open(struct books *books)
{
	const struct pindown_consumer consumer = {
		.name = "books", .create = books_create, .destroy = books_destroy, .arg = books};
	int id = pindown_consumer_add(&consumer, sizeof(consumer));

	ck_assert_int_gt(id, 0);
	return id;
}

static inline pindown_object *must_attach(int consumer, uint64_t addr,
					  const struct pindown_key *key)
{
	pindown_object *object = NULL;
	int result = pindown_attach(consumer, addr, 1, 0, key, NULL, &object);

	ck_assert_msg(result == PINDOWN_OK, "attach at 0x%jx: %d, %s", (uintmax_t)addr, result,
		      pindown_strerror(result));
	ck_assert_ptr_nonnull(object);
	return object;
}

static inline void attach_and_detach(int consumer, uint64_t addr, const struct pindown_key *key)
{
	pindown_detach(must_attach(consumer, addr, key));
}

static inline struct made *made_by(pindown_object *object)
{
	return pindown_object_data(object);
}

#endif
