/* SPDX-License-Identifier: MIT */
/* For tests in which a thread is cancelled, or ends itself, inside the cache. */
#ifndef CANCEL_TEST_H
#define CANCEL_TEST_H

#include "tests/unit/support/objects_test.h"
#include "tests/unit/support/sanitizers.h"

/*
 * AddressSanitizer does not see that the stack frames of a cancelled thread are gone, and reports
 * errors in code that is called there later. It can be told, but not in the middle of the cache.
 */
#if UNDER_ASAN
void __asan_handle_no_return(void);
#define IS_FOLLOWED false
#else
#define __asan_handle_no_return() ((void)0)
#define IS_FOLLOWED		  true
#endif

/* What the thread does, and what it holds; the test puts that when the thread has ended. */
extern void (*act)(void);
extern pindown_region *region;
extern pindown_object *object;

/* Things to do. */
void attach(void);
void invalidate(void);
void flush(void);
void end_owner(void);
void recheck(void);

#endif
