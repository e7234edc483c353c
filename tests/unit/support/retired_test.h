/* SPDX-License-Identifier: MIT */
/*
 * For tests of retired addresses (cache/retire/retired.h) on the simulated driver: a consumer whose
 * objects may end while they are held, as a card's registrations, and hook/'s part of cuMemFree.
 */
#ifndef RETIRED_TEST_H
#define RETIRED_TEST_H

#include "cache/retire/handed_out.h"
#include "cache/retire/retired.h"
#include "cache/retire/turns.h"
#include "tests/unit/support/sim_test.h"

/* What the card knows of a registration. It is never freed, so that a test can look at it. */
struct registration {
	struct registration *older;
	uint64_t base, id; /* of the memory */
	unsigned ended;	   /* times; atomic */
	bool in_time;	   /* it ended while its memory was still there */
};

extern int retired_consumer;

/* Called in each destroy, after it has been noted. */
/* What ends in this thread may be memory that another one frees: in_time is not found out. */
extern __thread bool retired_by_another;
extern void (*on_end)(const struct registration *ended);

/* Test cases on a driver that has been started. In the end nothing is reserved. */
TCase *retired_case(Suite *suite, const char *name);
void retired_begin(void);

/* As the program does, with what hook/ does around the calls; alloc() is as calls of others. */
CUdeviceptr program_alloc(uint64_t size);
CUresult program_free(CUdeviceptr p);

/* A registration of this memory, which must succeed, and what the card knows of it. */
pindown_object *hold(CUdeviceptr p);
struct registration *registration_of(pindown_object *object);

static inline bool is_reserved(CUdeviceptr at, uint64_t size)
{
	return sim_is_reserved(at, size);
}

/* Memory of this size, registered, freed, and still held. */
struct retired {
	CUdeviceptr p;
	pindown_object *object;
	struct registration *registration;
};
struct retired retire(uint64_t size);

#endif
