/* SPDX-License-Identifier: MIT */
/* What the tests of fork share. */
#ifndef FORK_TEST_H
#define FORK_TEST_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/cache_test.h"

#define AT(i) (BASE + MIB(16) * (i))

/* What hook/ does in a program. */
static inline void handle_forks(void)
{
	fake_handle_forks();
	ck_assert_int_eq(pthread_atfork(pdn_fork_prepare, pdn_fork_parent, pdn_fork_child), 0);
}

static inline void begin_with_fork_handlers(void)
{
	cache_begin();
	handle_forks();
}

/*
 * A child can't report to Check, and another thread may have held Check's lock at the fork. So a
 * failed expectation is the child's exit status.
 */
#define EXPECT(condition)                          \
	do {                                       \
		if (!(condition))                  \
			_exit(__LINE__ % 200 + 1); \
	} while (0)

static inline void reap(pid_t child)
{
	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		      "child: wait status 0x%x, expectation in line 200k + %d", status,
		      WEXITSTATUS(status) - 1);
}

static inline pid_t start_child(void (*fn)(void *), void *arg)
{
	pid_t child = fork();

	if (child == 0) {
		fn(arg);
		_exit(0);
	}
	ck_assert_int_gt(child, 0);
	return child;
}

static inline void in_child(void (*fn)(void *), void *arg)
{
	reap(start_child(fn, arg));
}

/* For a child whose parent had not used GPU memory: it may pin. */
static inline void uses_the_cache(void *arg)
{
	pindown_region *region = NULL;
	struct pindown_stats before, s;

	(void)arg;
	EXPECT(pindown_stats(&before, sizeof(before), -1) == PINDOWN_OK);
	for (unsigned i = 0; i < 3; i++) {
		EXPECT(pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK);
		EXPECT(pindown_region_is_live(region));
		EXPECT(is_cached(AT(0), 1));
		EXPECT(watched_free(AT(0)) == FAKE_SUCCESS);
		EXPECT(!is_cached(AT(0), 1));
		EXPECT(!pindown_region_is_live(region));
		pindown_put(region);
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
		EXPECT(!is_cached(AT(0), 1));
	}
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK);
	EXPECT(s.pins - before.pins == 3 && s.pins - s.unpins == s.regions);
	EXPECT(s.regions <= before.regions);
}

/*
 * For a child whose parent had used GPU memory: it pins nothing, finds nothing, and frees as if
 * pindown were not there.
 */
static inline void is_off(void *arg)
{
	pindown_region *region = NULL;
	struct pindown_stats before, s;

	(void)arg;
	EXPECT(pindown_stats(&before, sizeof(before), -1) == PINDOWN_OK);
	EXPECT(pindown_get(AT(0), 1, 0, &region) == PINDOWN_ERR_NO_CUDA);
	EXPECT(pindown_get(AT(0), 1, PINDOWN_GET_CACHED, &region) == PINDOWN_ERR_NO_CUDA);
	EXPECT(!region);
	EXPECT(pindown_flush() == 0);
	EXPECT(pindown_invalidate(AT(0), GIB(1)) == 0);
	EXPECT(watched_free(AT(0)) == FAKE_SUCCESS);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	EXPECT(pindown_get(AT(0), 1, 0, &region) == PINDOWN_ERR_NO_CUDA);
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK);
	EXPECT(s.regions == 0 && s.bytes == 0 && s.kept_regions == 0 && s.kept_bytes == 0);
	EXPECT(s.pins == 0 && s.unpins == 0);
	/* A hit that a signal handler has interrupted to fork is counted in the child, too. */
	EXPECT(s.hits == before.hits && s.misses == before.misses);
	EXPECT(s.objects == 0 && s.dmabufs == 0);
	EXPECT(fake_descriptors_here() == 0);
}

/* A case of this suite with the handlers registered. */
static inline TCase *fork_case(Suite *suite, const char *name)
{
	return suite_case(suite, name, begin_with_fork_handlers, cache_end);
}

#endif
