/* SPDX-License-Identifier: MIT */
/* For tests that wait for what another thread, another process or the kernel does. */
#ifndef PATIENCE_H
#define PATIENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* How long the threads of a test wait for each other, also on a slow machine. */
#define PATIENCE_NS 60000000000u

static inline uint64_t patience_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Is there time left for another look, after a short nap? `begun` is 0 before the first. */
static inline bool patience_lasts(uint64_t *begun, uint64_t ns)
{
	const struct timespec nap = {.tv_nsec = 500000};

	if (!*begun)
		*begun = patience_now();
	nanosleep(&nap, NULL);
	return patience_now() - *begun < ns;
}

/* Looks at the condition again and again. False: it has not become true in this time. */
#define becomes_true(ns, condition)                                              \
	({                                                                       \
		uint64_t begun_ = 0;                                             \
		bool is_true_;                                                   \
		while (!(is_true_ = (condition)) && patience_lasts(&begun_, ns)) \
			;                                                        \
		is_true_;                                                        \
	})

#endif
