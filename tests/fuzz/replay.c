// SPDX-License-Identifier: MIT
/*
 * replay FILE...: runs the fuzzer's function once on each file, within the memory that a trace of
 * its length may use. For compilers without libFuzzer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "fuzz_trace.h"

static unsigned char data[1 << 22];

static void replay(const char *name)
{
	FILE *file = fopen(name, "r");
	size_t size;

	if (!file) {
		perror(name);
		exit(1);
	}
	size = fread(data, 1, sizeof(data), file);
	fclose(file);
	LLVMFuzzerTestOneInput(data, size);
}

int main(int argc, char **argv)
{
	struct rusage use;

	/* Its messages are expected. */
	if (!freopen("/dev/null", "w", stderr))
		return 1;
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	getrusage(RUSAGE_SELF, &use);
	printf("%d inputs, %ld KiB at most\n", argc - 1, use.ru_maxrss);
	return 0;
}
