// SPDX-License-Identifier: MIT
/*
 * stacks: the cost of a watched call eight functions deep, in ns; for the cost of its call stack.
 */
#include "calls.h"

enum { BATCH = 256, BATCHES = 301, DEEP = 8 };

static void free_batch(void)
{
	for (unsigned i = 0; i < BATCH; i++)
		must(cuMemFree_v2(0x10000 + 65536ull * i), "cuMemFree");
}

/* The barriers prevent a loop or a tail call. */
__attribute__((noinline)) static void go_deeper(unsigned more)
{
	__asm__ volatile("" ::: "memory");
	if (more)
		go_deeper(more - 1);
	else
		free_batch();
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	static double times[BATCHES];

	open_driver();
	go_deeper(DEEP);
	for (unsigned i = 0; i < BATCHES; i++) {
		double begin = now_ns();

		go_deeper(DEEP);
		times[i] = (now_ns() - begin) / BATCH;
	}
	print_measure("free, eight functions deep", median(times, BATCHES));
	return 0;
}
