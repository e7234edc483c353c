// SPDX-License-Identifier: MIT
/*
 * resident: a process that allocates and frees device memory from two threads and never registers
 * any, and then prints its resident memory in KiB: the pages of libpindown.so, and all anonymous
 * pages (of which a run without the preload has some, too).
 */
#include "bench.h"
#include "calls.h"

#include <pthread.h>
#include <string.h>

static void *allocate_and_free(void *arg)
{
	CUdeviceptr addr;
	unsigned i;

	(void)arg;
	use_context();
	for (i = 0; i < 1000; i++) {
		if (cuMemAlloc_v2(&addr, 65536) != 0 || cuMemFree_v2(addr) != 0)
			stop("cuMemAlloc or cuMemFree failed", (int)i);
	}
	return NULL;
}

/* Is this line of smaps the head of a mapping? Then its file; "" for anonymous memory. */
static const char *mapped_here(char *line)
{
	char *path, *space = strchr(line, ' ');

	if (!space || !memchr(line, '-', (size_t)(space - line)))
		return NULL;
	path = strpbrk(line, "/[");
	line[strcspn(line, "\n")] = 0;
	return path ? path : "";
}

static void count_pages(double *library, double *anonymous)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	bool of_library = false, of_nobody = false;
	char line[4096];
	const char *path;
	double kib;

	if (!smaps)
		stop("can't read /proc/self/smaps", 0);
	while (fgets(line, sizeof(line), smaps)) {
		path = mapped_here(line);
		if (path) {
			of_library = strstr(path, "libpindown.so") != NULL;
			of_nobody = path[0] != '/';
		} else if (sscanf(line, "Rss: %lf kB", &kib) == 1) {
			*library += of_library ? kib : 0;
			*anonymous += of_nobody ? kib : 0;
		}
	}
	fclose(smaps);
}

int main(void)
{
	double library = 0, anonymous = 0;
	pthread_t thread;

	open_driver();
	allocate_and_free(NULL);
	if (pthread_create(&thread, NULL, allocate_and_free, NULL) != 0)
		stop("no thread", 0);
	pthread_join(thread, NULL);
	count_pages(&library, &anonymous);
	print_measure("resident library, KiB", library);
	print_measure("resident anonymous, KiB", anonymous);
	return 0;
}
