/* SPDX-License-Identifier: MIT */
/*
 * Registers memory, makes the call that each case names, and checks the regions that are left. Each
 * case runs twice: with the region idle, and with the region held over the call. Only a call that
 * ends the whole context may end the region of a bystander.
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

struct pindown_api pindown_api;
static int passed, failed, skipped;

static bool find_pindown(void)
{
	pindown_api.get = dlsym(RTLD_DEFAULT, "pindown_get");
	pindown_api.put = dlsym(RTLD_DEFAULT, "pindown_put");
	pindown_api.stats = dlsym(RTLD_DEFAULT, "pindown_stats");
	pindown_api.flush = dlsym(RTLD_DEFAULT, "pindown_flush");
	pindown_api.is_live = dlsym(RTLD_DEFAULT, "pindown_region_is_live");
	pindown_api.is_volatile = dlsym(RTLD_DEFAULT, "pindown_region_is_volatile");
	pindown_api.buffer_id = dlsym(RTLD_DEFAULT, "pindown_region_buffer_id");
	pindown_api.strerror = dlsym(RTLD_DEFAULT, "pindown_strerror");
	return pindown_api.get != NULL && pindown_api.put != NULL && pindown_api.stats != NULL &&
	       pindown_api.flush != NULL && pindown_api.is_live != NULL &&
	       pindown_api.buffer_id != NULL && pindown_api.strerror != NULL;
}

struct pindown_stats regions_stats(void)
{
	struct pindown_stats now;

	memset(&now, 0, sizeof(now));
	pindown_api.stats(&now, sizeof(now), -1);
	return now;
}

static int count_descriptors(const char *word)
{
	DIR *entries = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[256];
	int count = 0;

	while (entries != NULL && (entry = readdir(entries)) != NULL) {
		ssize_t length =
			readlinkat(dirfd(entries), entry->d_name, target, sizeof(target) - 1);

		target[length > 0 ? length : 0] = '\0';
		count += length > 0 && strstr(target, word) != NULL;
	}
	if (entries != NULL)
		closedir(entries);
	return count;
}

int regions_open_descriptors(void)
{
	return count_descriptors("");
}

/* The number of pins of the guest's simulated GPU; -1: it does not exist. */
static int pins_of_guest(void)
{
	FILE *counts = fopen("/proc/sim_gpu", "re");
	int pins = -1;

	if (counts != NULL) {
		if (fscanf(counts, "pins %d", &pins) != 1)
			pins = -1;
		fclose(counts);
	}
	return pins;
}

/*
 * Counts exports: the simulated driver is asked; those of a real driver are known by their names.
 */
int regions_open_exports(void)
{
	unsigned (*of_device)(int) = (unsigned (*)(int))dlsym(RTLD_DEFAULT, "sim_open_exports");
	int pins = pins_of_guest();

	if (pins >= 0)
		return pins;
	return of_device != NULL ? (int)(of_device(0) + of_device(1)) : count_descriptors("dmabuf");
}

/* The first failure of the case that is running. */
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

static bool is_backend(const char *name)
{
	return strcmp(regions_stats().backend, name) == 0;
}

static bool pins_are_known(void)
{
	return is_backend("dmabuf") || pins_of_guest() >= 0;
}

/* ---- one case ------------------------------------------------------------------------------- */

struct before {
	int exports; /* before any pin */
	uint64_t regions, missed;
	unsigned long long id;
};

static bool is_cached(CUdeviceptr at, size_t size)
{
	pindown_region *region;

	if (pindown_api.get(at, size, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
		return false;
	pindown_api.put(region);
	return true;
}

static void expect_gone(const struct regions_case *what, const struct before *before,
			pindown_region *held)
{
	int bystanders = what->alone ? 0 : 1, again;
	pindown_region *region = NULL;

	/* Before the next get, which would check a volatile region. */
	expect(regions_stats().regions == before->regions + bystanders + (held != NULL),
	       "%d regions are left after the call, not %d", (int)regions_stats().regions,
	       (int)before->regions + bystanders + (held != NULL));
	expect(!is_cached(s.at, s.size), "it is still found");
	if (held != NULL) {
		expect(regions_stats().kept_regions == 1,
		       "%d regions are kept for their holder, not 1",
		       (int)regions_stats().kept_regions);
		expect(!pindown_api.is_live(held), "its holder sees it as live");
		pindown_api.put(held);
	}
	expect(regions_stats().kept_regions == 0, "it is kept after the last put");
	expect(regions_stats().regions == before->regions + bystanders,
	       "%d regions are left, not %d", (int)regions_stats().regions,
	       (int)before->regions + bystanders);
	expect(!pins_are_known() || regions_open_exports() == before->exports + bystanders,
	       "there are %d pins, not %d", regions_open_exports(), before->exports + bystanders);
	again = pindown_api.get(s.at, s.size, 0, &region);
	if (again == PINDOWN_OK) { /* other memory may be there by now, or a part of it */
		expect(what->lingers || pindown_api.buffer_id(region) != before->id,
		       "it can be registered again");
		pindown_api.put(region);
	}
}

static void expect_kept(const struct before *before, pindown_region *held, int bystanders)
{
	expect(is_cached(s.at, s.size), "it is no longer found");
	expect(held == NULL || pindown_api.is_live(held), "its holder does not see it as live");
	pindown_api.put(held);
	expect(regions_stats().regions == before->regions + 1 + bystanders,
	       "%d regions are left, not %d", (int)regions_stats().regions,
	       (int)before->regions + 1 + bystanders);
}

static void expect_usable(const struct before *before, pindown_region *held)
{
	pindown_region *region = NULL;
	int again = pindown_api.get(s.at, s.size, 0, &region);

	expect(again == PINDOWN_OK, "it can't be registered: %s", pindown_api.strerror(again));
	if (again == PINDOWN_OK) {
		expect(pindown_api.buffer_id(region) == before->id, "another buffer is registered");
		pindown_api.put(region);
	}
	pindown_api.put(held);
}

/* Both the memory and the bystander exist: registers both, makes the call, checks. */
static void register_and_call(const struct regions_case *what, CUdeviceptr bystander, bool hold)
{
	pindown_region *region = NULL, *beside = NULL;
	struct before before = {.exports = regions_open_exports(),
				.regions = regions_stats().regions,
				.missed = regions_stats().missed_invalidations};
	int result = pindown_api.get(s.at, s.size, 0, &region);

	int refusal = what->fate == REFUSED			   ? what->refusal
		      : what->unexportable && is_backend("dmabuf") ? PINDOWN_ERR_DRIVER
								   : PINDOWN_OK;

	if (refusal != PINDOWN_OK) {
		expect(result == refusal, "pindown_get answers %d (%s), not %d", result,
		       pindown_api.strerror(result), refusal);
		if (result == PINDOWN_OK)
			pindown_api.put(region);
		expect(what->end(), "its call failed");
		return;
	}
	expect(result == PINDOWN_OK, "it can't be registered: %s", pindown_api.strerror(result));
	if (result != PINDOWN_OK) {
		what->end();
		return;
	}
	expect(pindown_api.is_volatile(region) == what->is_volatile, "it is %svolatile",
	       what->is_volatile ? "not " : "");
	before.id = pindown_api.buffer_id(region);
	expect(pindown_api.get(bystander, MIB, 0, &beside) == PINDOWN_OK,
	       "the bystander can't be registered");
	pindown_api.put(beside);
	if (!hold) {
		pindown_api.put(region);
		region = NULL;
	}
	expect(what->end(), "its call failed");
	if (what->fate == GONE)
		expect_gone(what, &before, region);
	else if (what->fate == KEPT)
		expect_kept(&before, region, 1);
	else
		expect_usable(&before, region);
	expect(what->alone || is_cached(bystander, MIB), "the bystander's region is gone");
	expect(regions_stats().missed_invalidations == before.missed,
	       "a missed invalidation was counted");
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
	pindown_api.flush();
	expect(regions_stats().regions == 0, "%d regions are left in the end",
	       (int)regions_stats().regions);
	printf("%s %s, %s%s%s\n", complaint[0] ? "FAIL" : "ok  ", what->name,
	       hold ? "held" : "idle", complaint[0] ? ": " : "", complaint);
	if (complaint[0] != '\0')
		failed++;
	else
		passed++;
}

/* Each argument is a part of a name: only these cases run; with a '-' before it, all others. */
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

static void run_process_cases(const struct regions_process_case *cases, int argc, char **argv)
{
	const char *wrong;

	for (; cases->name != NULL; cases++) {
		if (!is_wanted(cases->name, argc, argv))
			continue;
		wrong = cases->run();
		pindown_api.flush();
		printf("%s %s%s%s\n", wrong ? "FAIL" : "ok  ", cases->name, wrong ? ": " : "",
		       wrong ? wrong : "");
		failed += wrong != NULL;
		passed += wrong == NULL;
	}
}

/* ---- the program ---------------------------------------------------------------------------- */

static bool ready(void)
{
	return OK(cuInit(0)) && OK(cuDeviceGet(&s.device, 0)) &&
	       OK(cuDevicePrimaryCtxRetain(&s.primary, s.device)) && OK(cuCtxSetCurrent(s.primary));
}

/* The other process of the IPC cases: prints a handle, and stays until its input ends. */
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
	run_process_cases(regions_process_cases, argc, argv);
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed != 0;
}
