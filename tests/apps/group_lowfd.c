/* SPDX-License-Identifier: MIT */
/*
 * A program that relies on descriptor numbers: a daemon that closes all above 2 and expects the
 * lowest free number from open(), also after CUDA is in use. Only the driver may take numbers in
 * between.
 */
#define _GNU_SOURCE
#include "app.h"

#include <dirent.h>
#include <fcntl.h>

static void show_lowest(const char *when)
{
	int fd = open("/dev/null", O_RDONLY);

	app_say("lowest free descriptor %s: %d", when, fd);
	close(fd);
}

/* The descriptors among the lowest numbers. The trace has one of 1000 or above. */
static void show_count(const char *when)
{
	DIR *entries = opendir("/proc/self/fd");
	struct dirent *entry;
	int count = 0;

	while (entries != NULL && (entry = readdir(entries)) != NULL)
		count += atoi(entry->d_name) < 1000;
	if (entries != NULL)
		closedir(entries);
	app_say("low descriptors %s: %d", when, count);
}

int app_lowfd(int argc, char **argv)
{
	CUdeviceptr at = 0;
	CUdevice device;
	int fd;

	(void)argc, (void)argv;
	show_lowest("at the start");
	for (fd = 3; fd < 1024; fd++)
		close(fd);
	show_lowest("with all closed");
	device = app_begin();
	WATCHED(at, cuMemAlloc_v2, &at, 4 << 20);
	show_lowest("with memory");
	show_count("with memory");
	app_say("%s", app_write_and_read(at, 4 << 20, 29));
	WATCHED(at, cuMemFree_v2, at);
	show_lowest("without memory");
	app_end(device);
	show_count("at the end");
	return 0;
}
