/* SPDX-License-Identifier: MIT */
/*
 * For all tests that are linked with it, and with --wrap for both functions: a thread that lets go
 * of the cache's lock must have it, and one that takes it must not. Without this look, a lock that
 * is not taken shows itself only where two threads happen to meet.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/support/lock_balance.h"

void __real_pdn_lock(void);
void __real_pdn_unlock(void);
void __wrap_pdn_lock(void);
void __wrap_pdn_unlock(void);

static __thread bool has_it;
__thread unsigned locks_taken;

static void must_be(bool right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "the cache's lock is %s\n", what);
	abort();
}

void __wrap_pdn_lock(void)
{
	must_be(!has_it, "taken by a thread that has it");
	__real_pdn_lock();
	has_it = true;
	locks_taken++;
}

void __wrap_pdn_unlock(void)
{
	must_be(has_it, "let go by a thread that has not taken it");
	has_it = false;
	__real_pdn_unlock();
}
