/* SPDX-License-Identifier: MIT */
/*
 * Says whether pindown finds that the program's calls are bound to it, so that it sees each free.
 * Knows pindown, and nothing of CUDA.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "cache/pindown.h"

int main(void)
{
	__typeof__(&pindown_stats) ask =
		(__typeof__(&pindown_stats))dlsym(RTLD_DEFAULT, "pindown_stats");
	struct pindown_stats stats = {0};

	if (!ask || ask(&stats, sizeof(stats), -1) != 0) {
		puts("no pindown");
		return 1;
	}
	puts(stats.intercepting ? "all calls are seen" : "calls may be missed");
	return 0;
}
