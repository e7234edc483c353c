// SPDX-License-Identifier: MIT
/* The parts of pindown that fuzz.c gives its inputs to, but doctor: see target_doctor.c. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_trace.h"
#include "tools/command.h"

/* ---- the environment: lines "NAME=value" ---- */

enum { MAX_VARIABLES = 64 };

static void run_environment(const unsigned char *data, size_t size)
{
	char *text = malloc(size + 1), *environment[MAX_VARIABLES + 1], *rest = text, *line;
	struct pdn_config config, again;
	struct pdn_problems problems;
	unsigned count = 0;

	memcpy(text, data, size);
	text[size] = '\0';
	while (count < MAX_VARIABLES && (line = strsep(&rest, "\n")))
		environment[count++] = line;
	environment[count] = NULL;
	memset(&config, 0, sizeof(config));
	memset(&again, 0, sizeof(again));
	pdn_config_parse(&config, &problems, environment);
	pdn_config_parse(&again, &problems, environment);
	/* What it says follows from the text alone. */
	if (!config.trace != !again.trace || (config.trace && config.trace != config.trace_path))
		abort();
	config.trace = again.trace = NULL;
	if (memcmp(&config, &again, sizeof(config)) != 0)
		abort();
	free(text);
}

const struct target target_environment = {
	.name = "environment",
	.first = "PINDOWN_BACKEND=kmod\nPINDOWN_MAX_BYTES=8G\nPINDOWN_LOG=info\n"
		 "PINDOWN_TRACE=/tmp/%p.pdt\nPINDOWN_TRACE_STACKS=8\nPINDOWN_TOP=0\n"
		 "PINDOWN_DEBUG=1\nPINDOWN_VERBS=1\nPINDOWN_MAX_REGIONS=100",
	.run = run_environment,
};

/* ---- ELF files: pindown check ---- */

static void run_elf(const unsigned char *data, size_t size)
{
	static char check[] = "check", json[] = "--json";
	char name[40], *words[] = {check, name, NULL}, *more[] = {check, json, name, NULL};
	int fd = memfd_create("elf", 0);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	fchmod(fd, 0755);
	command_start(&command_check, 2, words);
	command_start(&command_check, 3, more);
	close(fd);
}

const struct target target_elf = {.name = "elf", .run = run_elf};

/* ---- traces: see fuzz_trace.c ---- */

static void run_trace(const unsigned char *data, size_t size)
{
	LLVMFuzzerTestOneInput(data, size);
}

const struct target target_trace = {.name = "trace", .run = run_trace};
