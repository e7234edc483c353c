/* SPDX-License-Identifier: MIT */
/*
 * What the tests of consumer objects share: a consumer that records what it has made, and complains
 * when it is called too late.
 */
#ifndef OBJECTS_TEST_H
#define OBJECTS_TEST_H

#include "tests/unit/support/cache_test.h"

#define AT(i) (BASE + MIB(16) * (i))
#define KEY(pd, access) \
	(&(const struct pindown_key){.owner = (uint64_t)(pd), .word = {(uint64_t)(access)}})

/*
 * An object that a consumer has made. It is never freed, so that a test can see what became of it.
 */
struct made {
	uint64_t owner, access, base, id;
	uint64_t addr, length; /* what was asked for */
	void *request;
	unsigned destroyed; /* times */
	int reason, in_use;
};

#define MADE_MOST 65536

struct books {
	struct made made[MADE_MOST];
	unsigned places;	    /* atomic: used places of `made` */
	unsigned creates, destroys; /* atomic: successful calls */
	/* create returns this; 0: it succeeds */
	int fail;
	void (*in_create)(struct books *, pindown_region *); /* the test's own step */
	void (*in_destroy)(struct books *, const struct pindown_object_end *);
	bool pin_is_gone; /* a destroy came after the unpin, which must never happen */
};

/* The books of the test and the consumer that keeps them. */
extern struct books books;
extern int consumer;

/* The callbacks of a consumer that keeps these books; books_open() returns its id. */
int books_create(const struct pindown_object_request *what, void **data, void *arg);
int books_destroy(const struct pindown_object_end *what, void *arg);
int books_open(struct books *books);

/*
 * A test case with the books open and memory at AT(0) to AT(3). Whatever the test does: in the end,
 * each object made has been destroyed once, and never after its region's unpin.
 */
TCase *objects_case(Suite *suite, const char *name);
void open_books(void);
void close_books(void);

pindown_object *must_attach(int consumer, uint64_t addr, const struct pindown_key *key);
void attach_and_detach(int consumer, uint64_t addr, const struct pindown_key *key);
struct made *made_by(pindown_object *object);

/* Asserts that this many objects were destroyed, the last one for this reason. */
void destroyed(unsigned times, int reason, int in_use);

#endif
