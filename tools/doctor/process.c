// SPDX-License-Identifier: MIT
/* pindown doctor: checks limits of processes, and whether a preload works. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/system/preload.h"

/* ---- limits --------------------------------------------------------------------------------- */

enum { FEW_FILES = 4096, LITTLE_LOCKED = 64 << 20 };

/* Reads the soft limit, as in "Max open files    1024    4096    files". */
static bool limit_of(const char *limits, const char *name, unsigned long long *value)
{
	const char *line = limits ? strstr(limits, name) : NULL;
	char text[32];

	if (!line || sscanf(line + strlen(name), "%31s", text) != 1)
		return false;
	if (strcmp(text, "unlimited") == 0)
		*value = ULLONG_MAX;
	else if (sscanf(text, "%llu", value) != 1)
		return false;
	return true;
}

static void about_limits(struct doctor *doctor)
{
	char *limits = tree_read("proc/self/limits");
	unsigned long long locked, files;

	if (limit_of(limits, "Max locked memory", &locked)) {
		if (locked == ULLONG_MAX)
			found(doctor, GOOD, "locked memory", NULL, "unlimited");
		else if (!doctor->has_rdma)
			found(doctor, NOTE, "locked memory", NULL,
			      "at most %s, and there is no RDMA device that needs more",
			      bytes_text(locked).text);
		else
			found(doctor, locked < LITTLE_LOCKED ? PROBLEM : NOTE, "locked memory",
			      "RDMA libraries register host memory too: ulimit -l unlimited, or "
			      "memlock in /etc/security/limits.conf, or --ulimit memlock=-1 for a "
			      "container",
			      "at most %s", bytes_text(locked).text);
	}
	if (limit_of(limits, "Max open files", &files)) {
		if (files >= FEW_FILES)
			found(doctor, GOOD, "open files", NULL, "%s",
			      files == ULLONG_MAX ? "unlimited" : count_text(files).text);
		else
			found(doctor, NOTE, "open files",
			      "a region pinned by dma-buf holds a descriptor until ibv_reg_mr has "
			      "registered it, and regions get at most half of them: ulimit -n "
			      "65536 if programs pin many regions or open many files",
			      "at most %s", count_text(files).text);
	}
	release(limits);
}

/* ---- the preload ---------------------------------------------------------------------------- */

/* Why the library can't be loaded, or NULL. Tried in a child process: a library stays loaded. */
static char *why_not_loadable(const char *library)
{
	char why[512] = "";
	ssize_t length = 0;
	int pipe_ends[2], status;
	pid_t child;

	if (pipe2(pipe_ends, O_CLOEXEC) != 0)
		return NULL;
	child = fork();
	if (child == 0) {
		const char *error = dlopen(library, RTLD_NOW) ? NULL : dlerror();

		if (error && write(pipe_ends[1], error, strnlen(error, sizeof(why) - 1)) < 0)
			_exit(2);
		_exit(error ? 1 : 0);
	}
	close(pipe_ends[1]);
	if (child > 0) {
		length = read(pipe_ends[0], why, sizeof(why) - 1);
		waitpid(child, &status, 0);
	}
	close(pipe_ends[0]);
	return length > 0 ? text_of("%.*s", (int)length, why) : NULL;
}

static void about_library(struct doctor *doctor)
{
	char library[PATH_MAX], *why;

	if (!preload_find(library, sizeof(library))) {
		found(doctor, PROBLEM, "libpindown.so",
		      "install it beside pindown, or in ../lib from there",
		      "is not where pindown looks for it");
		return;
	}
	why = why_not_loadable(library);
	if (why)
		found(doctor, PROBLEM, "libpindown.so", "build it for this system's C library",
		      "can't be loaded: %s", why);
	else
		found(doctor, GOOD, "libpindown.so", NULL, "%s", library);
	release(why);
}

/* The path of libpindown.so in a list separated by colons or blanks, or NULL. */
static char *find_in_list(const char *list)
{
	while (list && *list) {
		size_t length = strcspn(list, ": \n\t");

		if (memmem(list, length, "libpindown.so", 13))
			return text_of("%.*s", (int)length, list);
		list += length;
		list += *list != '\0';
	}
	return NULL;
}

static bool is_mapped(void)
{
	char *maps = tree_read("proc/self/maps");
	bool mapped = maps && strstr(maps, "/libpindown.so");

	release(maps);
	return mapped;
}

static void about_preload(struct doctor *doctor)
{
	char *ours = find_in_list(getenv("LD_PRELOAD")), *system = tree_read("etc/ld.so.preload");
	char *for_all = find_in_list(system);

	if (is_mapped())
		found(doctor, GOOD, "LD_PRELOAD", NULL, "this process has loaded libpindown.so%s",
		      for_all ? ", as every program does by /etc/ld.so.preload" : "");
	else if (ours && access(ours, R_OK) != 0)
		found(doctor, PROBLEM, "LD_PRELOAD",
		      "give a path that is valid here, also in a container; pindown run finds it",
		      "names %s, which does not exist", ours);
	else if (ours)
		found(doctor, PROBLEM, "LD_PRELOAD",
		      "read the loader's messages when a program starts",
		      "names %s, but it is not loaded", ours);
	else
		found(doctor, GOOD, "LD_PRELOAD", NULL, "not set here: pindown run sets it");
	release(ours);
	release(system);
	release(for_all);
}

void examine_process(struct doctor *doctor)
{
	about_limits(doctor);
	if (!tree_is_live())
		return;
	about_library(doctor);
	about_preload(doctor);
}
