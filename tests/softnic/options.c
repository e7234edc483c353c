/* SPDX-License-Identifier: MIT */
/* The environment variables that softnic.h lists. */
#include <stdio.h>
#include <stdlib.h>

#include "softnic.h"

static struct options options;

static unsigned number(const char *name, unsigned otherwise, unsigned most)
{
	const char *text = getenv(name);
	char *end;
	unsigned long value;

	if (!text || !*text)
		return otherwise;
	value = strtoul(text, &end, 10);
	if (*end || value > most) {
		fprintf(stderr, "softnic: %s=%s is not a number up to %u\n", name, text, most);
		exit(2);
	}
	return value;
}

static void read_environment(void)
{
	options.devices = number("SOFTNIC_DEVICES", 1, 8);
	options.max_mr = number("SOFTNIC_MAX_MR", 0, 1 << 30);
	options.enomem_every = number("SOFTNIC_ENOMEM_EVERY", 0, 1 << 30);
	options.slow_ns_per_page = number("SOFTNIC_SLOW_NS_PER_PAGE", 0, 1000000000);
	options.no_dmabuf = number("SOFTNIC_NO_DMABUF", 0, 1);
	options.no_peermem = number("SOFTNIC_NO_PEERMEM", 0, 1);
	options.log = getenv("SOFTNIC_LOG");
	options.fabric = getenv("SOFTNIC_FABRIC");
	if (!options.fabric)
		options.fabric = "";
}

const struct options *softnic_options(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_environment);
	return &options;
}
