/* SPDX-License-Identifier: MIT */
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
 * Hit ratio and pin time against the budget, a line for each policy; results are sorted by budget as the
 * user gave them. false after one line on standard error.
 */
bool replay_svg(const char *path, const struct replay_result *results, unsigned count);

#endif
