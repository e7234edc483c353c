/* SPDX-License-Identifier: MIT */
/*
 * What the tests of consumer objects share: a consumer that keeps books of what it has made, and
 * complains when it is called too late.
 */
#ifndef OBJECTS_TEST_H
#define OBJECTS_TEST_H

#include "tests/unit/support/cache_test.h"

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

/* The test's own, and their consumer. */
extern struct books books;
extern int consumer;

/* A consumer of these books: its callbacks, and its id. */
int books_create(pindown_region *region, const struct pindown_key *key, void *request, void **data,
		 void *arg);
int books_destroy(const struct pindown_object_end *what, void *arg);
int books_open(struct books *books);

/*
 * A case with the test's own books open and memory at AT(0) to AT(3). Whatever the test has done: in the end
 * everything made is destroyed once, and never after the unpin.
 */
TCase *objects_case(Suite *suite, const char *name);
void open_books(void);
void close_books(void);

pindown_object *must_attach(int consumer, uint64_t addr, const struct pindown_key *key);
void attach_and_detach(int consumer, uint64_t addr, const struct pindown_key *key);
struct made *made_by(pindown_object *object);

/* So many were destroyed, the last one for this reason. */
void destroyed(unsigned times, int reason, int in_use);

#endif
