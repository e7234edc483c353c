/* SPDX-License-Identifier: MIT */
/*
 * Registers memory, makes the call that each case names, and looks at what is left. Each case runs
 * twice: with the region idle, and with the region held over the call. A bystander's region must
 * never be touched by any call but one that ends the whole context.
 */
#define _GNU_SOURCE
#include "regions.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024u * 1024u)

struct scene s;

static struct {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_stats) stats;
	__typeof__(&pindown_flush) flush;
	__typeof__(&pindown_region_is_live) is_live;
	__typeof__(&pindown_region_buffer_id) buffer_id;
	__typeof__(&pindown_strerror) strerror;
} pindown;

static int passed, failed, skipped;

static bool find_pindown(void)
{
	pindown.get = dlsym(RTLD_DEFAULT, "pindown_get");
	pindown.put = dlsym(RTLD_DEFAULT, "pindown_put");
	pindown.stats = dlsym(RTLD_DEFAULT, "pindown_stats");
	pindown.flush = dlsym(RTLD_DEFAULT, "pindown_flush");
	pindown.is_live = dlsym(RTLD_DEFAULT, "pindown_region_is_live");
	pindown.buffer_id = dlsym(RTLD_DEFAULT, "pindown_region_buffer_id");
	pindown.strerror = dlsym(RTLD_DEFAULT, "pindown_strerror");
	return pindown.get != NULL && pindown.put != NULL && pindown.stats != NULL &&
	       pindown.flush != NULL && pindown.is_live != NULL && pindown.buffer_id != NULL &&
	       pindown.strerror != NULL;
}

static struct pindown_stats stats(void)
{
	struct pindown_stats now;

	memset(&now, 0, sizeof(now));
	pindown.stats(&now, sizeof(now), -1);
	return now;
}

/* A pin of the dma-buf backend is an open descriptor: counted where nobody can be mistaken. */
static int open_descriptors(void)
{
	DIR *entries = opendir("/proc/self/fd");
	int count = 0;

	while (entries != NULL && readdir(entries) != NULL)
		count++;
	if (entries != NULL)
		closedir(entries);
	return count;
}

/* What is wrong with the case that is running; only the first thing counts. */
static char complaint[256];

static void expect(bool right, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void expect(bool right, const char *format, ...)
{
	va_list arguments;

	if (right || complaint[0] != '\0')
		return;
	va_start(arguments, format);
	vsnprintf(complaint, sizeof(complaint), format, arguments);
	va_end(arguments);
}

/* ---- one case ------------------------------------------------------------------------------- */

struct before {
	int descriptors; /* without any pins */
	uint64_t regions, missed;
	unsigned long long id;
};

static bool is_cached(CUdeviceptr at, size_t size)
{
	pindown_region *region;

	if (pindown.get(at, size, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
		return false;
	pindown.put(region);
	return true;
}

static void expect_gone(const struct before *before, pindown_region *held, int bystanders)
{
	pindown_region *region = NULL;
	int again;

	expect(!is_cached(s.at, s.size), "it is still found");
	if (held != NULL) {
		expect(stats().kept_regions == 1, "%d regions are kept for their holder, not 1",
		       (int)stats().kept_regions);
		expect(!pindown.is_live(held), "its holder is told that it is live");
		pindown.put(held);
	}
	expect(stats().kept_regions == 0, "it is kept after the last put");
	expect(stats().regions == before->regions + bystanders, "%d regions are left, not %d",
	       (int)stats().regions, (int)before->regions + bystanders);
	expect(open_descriptors() == before->descriptors + bystanders,
	       "%d descriptors are open, not %d", open_descriptors(),
	       before->descriptors + bystanders);
	again = pindown.get(s.at, s.size, 0, &region);
	if (again == PINDOWN_OK) { /* other memory may be there by now, or part of it */
		expect(pindown.buffer_id(region) != before->id, "it can be registered again");
		pindown.put(region);
		pindown.flush();
	}
}

static void expect_kept(const struct before *before, pindown_region *held, int bystanders)
{
	expect(is_cached(s.at, s.size), "it is no longer found");
	expect(held == NULL || pindown.is_live(held), "its holder is told that it is not live");
	pindown.put(held);
	expect(stats().regions == before->regions + 1 + bystanders, "%d regions are left, not %d",
	       (int)stats().regions, (int)before->regions + 1 + bystanders);
}

static void expect_usable(const struct before *before, pindown_region *held)
{
	pindown_region *region = NULL;
	int again = pindown.get(s.at, s.size, 0, &region);

	expect(again == PINDOWN_OK, "it can't be registered: %s", pindown.strerror(again));
	if (again == PINDOWN_OK) {
		expect(pindown.buffer_id(region) == before->id, "another buffer is registered");
		pindown.put(region);
	}
	pindown.put(held);
}

/* The memory is there, and so is the bystander's; register both, make the call, look. */
static void register_and_call(const struct regions_case *what, CUdeviceptr bystander, bool hold)
{
	pindown_region *region = NULL, *beside = NULL;
	struct before before = {.regions = stats().regions, .missed = stats().missed_invalidations};
	int result = pindown.get(s.at, s.size, 0, &region);

	if (what->fate == REFUSED) {
		expect(result == what->refusal, "pindown_get answers %d (%s), not %d", result,
		       pindown.strerror(result), what->refusal);
		if (result == PINDOWN_OK)
			pindown.put(region);
		expect(what->end(), "its call failed");
		return;
	}
	expect(result == PINDOWN_OK, "it can't be registered: %s", pindown.strerror(result));
	if (result != PINDOWN_OK) {
		what->end();
		return;
	}
	before.id = pindown.buffer_id(region);
	expect(pindown.get(bystander, MIB, 0, &beside) == PINDOWN_OK,
	       "the bystander can't be registered");
	pindown.put(beside);
	if (!hold) {
		pindown.put(region);
		region = NULL;
	}
	before.descriptors = open_descriptors() - 2; /* the region's and the bystander's */
	expect(what->end(), "its call failed");
	if (what->fate == GONE)
		expect_gone(&before, region, what->alone ? 0 : 1);
	else if (what->fate == KEPT)
		expect_kept(&before, region, 1);
	else
		expect_usable(&before, region);
	expect(what->alone || is_cached(bystander, MIB), "the bystander's region is gone");
	expect(stats().missed_invalidations == before.missed, "a missed invalidation was counted");
}

static void run_once(const struct regions_case *what, bool hold)
{
	CUdevice device = s.device;
	CUcontext primary = s.primary;
	CUdeviceptr bystander = 0;

	complaint[0] = '\0';
	memset(&s, 0, sizeof(s));
	s.device = device;
	s.primary = primary;
	if (!OK(cuMemAlloc_v2(&bystander, 8 * MIB)) || !what->begin()) {
		printf("skip %s: this driver can't make such memory\n", what->name);
		skipped++;
		cuMemFree_v2(bystander);
		return;
	}
	register_and_call(what, bystander, hold);
	if (what->clean != NULL)
		what->clean();
	cuCtxSetCurrent(s.primary);
	if (!what->alone)
		cuMemFree_v2(bystander);
	pindown.flush();
	expect(stats().regions == 0, "%d regions are left in the end", (int)stats().regions);
	printf("%s %s, %s%s%s\n", complaint[0] ? "FAIL" : "ok  ", what->name,
	       hold ? "held" : "idle", complaint[0] ? ": " : "", complaint);
	if (complaint[0] != '\0')
		failed++;
	else
		passed++;
}

/* Arguments are parts of names: only such cases; with a '-' before it, all but such. */
static bool is_wanted(const char *name, int argc, char **argv)
{
	bool all = true, named = false;
	int i;

	for (i = 1; i < argc; i++) {
		if (argv[i][0] == '-' && strstr(name, argv[i] + 1) != NULL)
			return false;
		all &= argv[i][0] == '-';
		named |= strstr(name, argv[i]) != NULL;
	}
	return all || named;
}

static void run_cases(const struct regions_case *cases, int argc, char **argv)
{
	for (; cases->name != NULL; cases++) {
		if (!is_wanted(cases->name, argc, argv))
			continue;
		run_once(cases, false);
		if (cases->fate != REFUSED)
			run_once(cases, true);
	}
}

/* ---- the program ---------------------------------------------------------------------------- */

static bool ready(void)
{
	return OK(cuInit(0)) && OK(cuDeviceGet(&s.device, 0)) &&
	       OK(cuDevicePrimaryCtxRetain(&s.primary, s.device)) && OK(cuCtxSetCurrent(s.primary));
}

/* As the other process of the IPC cases: hand out a handle, stay until told to go. */
static int export_memory(void)
{
	CUipcMemHandle handle;
	CUdeviceptr at;
	char byte;

	if (!OK(cuMemAlloc_v2(&at, 4 * MIB)) || !OK(cuIpcGetMemHandle(&handle, at)) ||
	    write(STDOUT_FILENO, &handle, sizeof(handle)) != sizeof(handle))
		return 1;
	return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!ready()) {
		printf("no GPU that can be used\n");
		return 1;
	}
	if (argc > 1 && strcmp(argv[1], "export") == 0)
		return export_memory();
	if (!find_pindown()) {
		printf("libpindown.so is not preloaded\n");
		return 1;
	}
	run_cases(regions_memory_cases, argc, argv);
	run_cases(regions_owner_cases, argc, argv);
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed != 0;
}
