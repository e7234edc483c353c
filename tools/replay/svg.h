/* SPDX-License-Identifier: MIT */
/* The results of `pindown replay`, and their picture. */
#ifndef REPLAY_SVG_H
#define REPLAY_SVG_H

#include <stdbool.h>
#include <stdint.h>

struct replay_result {
	uint64_t max_bytes;
	const char *policy;
	uint64_t gets, hits, evictions, pin_ns;
};

/*
 * Draws hit ratio and pin time against the budget, with a line for each policy. Results are in the order
 * in which the user gave the budgets. False, after one line on standard error, when it fails.
 */
bool replay_svg(const char *path, const struct replay_result *results, unsigned count);

#endif
