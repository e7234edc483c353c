/* SPDX-License-Identifier: MIT */
/*
 * The answers to look-ups under the preload: a wrapper for each function that the table knows, and
 * the driver's own answer for all others. The program starts itself again, with the preload and a
 * driver made for this test (table_driver.c): once with pindown as it is, and once with it switched
 * off.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "cache/pindown.h"

static unsigned passed, failed;
static bool on; /* PINDOWN is not 0 */
static void *driver;
static typeof(cuGetProcAddress_v2) *ask;

static void check(bool well, const char *what)
{
	if (well) {
		passed++;
		return;
	}
	failed++;
	printf("not so%s: %s\n", on ? "" : " (PINDOWN=0)", what);
}

/* ---- whose function is that? ----------------------------------------------------------------- */

static bool is_from(const void *function, const char *object)
{
	Dl_info info;

	return function && dladdr(function, &info) && strstr(info.dli_fname, object);
}

/* Watched: a wrapper, or the driver's own function when pindown is switched off. */
static bool is_watched(const void *function)
{
	return is_from(function, on ? "libpindown.so" : "libcuda.so.1");
}

static bool is_drivers(const void *function)
{
	return is_from(function, "libcuda.so.1");
}

static void *asked(const char *name, int version, unsigned flags)
{
	void *function = NULL;

	return ask(name, &function, version, flags, NULL) == CUDA_SUCCESS ? function : NULL;
}

/* ---- before a driver is loaded --------------------------------------------------------------- */

static void without_driver(void)
{
	const char *message;

	dlerror();
	check(!dlsym(RTLD_DEFAULT, "cuMemFree_v2"),
	      "no driver: RTLD_DEFAULT finds no cuMemFree_v2");
	message = dlerror();
	check(message && strstr(message, "cuMemFree_v2"), "and the message names it");
	check(!dlsym(RTLD_NEXT, "cuMemFree_v2"), "no driver: RTLD_NEXT finds none");
	check(!dlsym(dlopen(NULL, RTLD_LAZY), "cuMemFree_v2"),
	      "no driver: nor has the program one");
	check(dlsym(RTLD_DEFAULT, "strlen") != NULL, "other names are found");
	dlerror();
}

/* A library that asks is not kept by its question. */
static void from_a_library_that_goes(const char *folder)
{
	char path[4096];
	void *library, *(*next)(const char *);
	const char *message;

	snprintf(path, sizeof(path), "%s/libtable_third.so", folder);
	library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	next = library ? dlsym(library, "table_other_next") : NULL;
	dlerror();
	check(next && !next("cuMemFree_v2"), "no driver: a library finds none by RTLD_NEXT");
	message = dlerror();
	check(message && strstr(message, "libtable_third.so"), "and the message names the library");
	check(library && !dlclose(library) && !dlopen(path, RTLD_LAZY | RTLD_NOLOAD),
	      "which can be unloaded then");
	dlerror();
}

/*
 * The first call of the driver in this process. If it waits for the loader's lock, alarm() ends the
 * process.
 */
static void within_constructor(const char *folder)
{
	char path[4096];
	const CUresult *answer;
	void *library;

	snprintf(path, sizeof(path), "%s/libtable_waits.so", folder);
	alarm(30);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	alarm(0);
	answer = library ? dlsym(library, "table_waited") : NULL;
	check(answer && *answer == (CUresult)1002,
	      "a thread that a constructor waits for can call");
}

/* ---- dlsym ----------------------------------------------------------------------------------- */

static void by_dlsym(void)
{
	void *function = dlsym(driver, "cuMemFree_v2");
	const char *message = dlerror();
	void *libc = dlopen("libc.so.6", RTLD_LAZY);

	check(is_watched(function), "dlsym answers with a wrapper");
	check(!message, "and dlerror() reports nothing");
	check(dlsym(driver, "cuMemFree_v2") == function, "the same one each time");
	check(((typeof(cuMemFree_v2) *)function)(1) == (CUresult)1002,
	      "which calls what was asked for");
	function = dlsym(driver, "cuMemFree");
	check(((typeof(cuMemFree) *)function)(1) == (CUresult)1001, "the 32-bit form is another");
	check(is_drivers(dlsym(driver, "cuInit")), "an unwatched function is the driver's own");
	check(!dlsym(driver, "cuMemAlloc_v2"), "a function that the driver lacks is not found");
	message = dlerror();
	check(message && strstr(message, "cuMemAlloc_v2") && strstr(message, "libcuda"),
	      "and the message says so");
	check(!dlsym(RTLD_DEFAULT, "cuMemFree_v2"),
	      "the program has none, as the driver is not global");
	function = dlsym(libc, "dlsym");
	check(function == dlsym(RTLD_DEFAULT, "dlsym"),
	      "dlsym by the C library's handle is the same");
	if (function)
		check(is_watched(((typeof(dlsym) *)function)(driver, "cuMemFree_v2")),
		      "and answers the same");
	errno = 77;
	dlsym(driver, "cuCtxCreate_v3");
	check(errno == 77, "errno is kept");
}

static void by_driver_itself(void)
{
	void *(*finds)(const char *) = dlsym(driver, "table_driver_finds");

	check(is_drivers(finds("cuMemFree_v2")), "the driver finds its own functions");
}

static void *from_library(const char *folder, const char *name)
{
	char path[4096];
	void *library;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	return library ? dlsym(library, "cuMemFreeAsync") : NULL;
}

/*
 * Functions of that name that are not the driver's. pindown has a wrapper for one of them; the next
 * one is passed on as it is.
 */
static void by_other_libraries(const char *folder)
{
	void *drivers = dlsym(driver, "cuMemFreeAsync");
	void *second = from_library(folder, "libtable_second.so");
	void *third = from_library(folder, "libtable_third.so");

	check(is_watched(drivers), "the driver's is watched");
	check(second && ((typeof(cuMemFreeAsync) *)second)(1, NULL) == CUDA_ERROR_UNKNOWN,
	      "a second definition is not taken for the first");
	check(is_from(third, "libtable_third.so"), "a third one is passed on");
	check(dlsym(driver, "cuMemFreeAsync") == drivers, "and the driver's is the same as before");
}

/* ---- cuGetProcAddress ------------------------------------------------------------------------ */

static void by_version(void)
{
	check(is_watched(asked("cuMemFree", 3020, 0)), "cuMemFree as of 3.2 is watched");
	check(asked("cuMemFree", 13000, 0) == asked("cuMemFree", 3020, 0),
	      "and as of 13.0 the same");
	check(asked("cuMemFree", 2000, 0) == dlsym(driver, "cuMemFree"),
	      "as of 2.0 the 32-bit form");
	check(asked("cuMemFree", 3000, 0) == dlsym(driver, "cuMemFree"), "as of 3.0 too");
	check(asked("cuMemFree", 13000, 0) == dlsym(driver, "cuMemFree_v2"),
	      "dlsym gives the same one");
	check(is_watched(asked("cuCtxCreate", 12050, 0)),
	      "a form with other parameters is watched");
	check(((typeof(cuCtxCreate_v4) *)asked("cuCtxCreate", 12050, 0))(NULL, NULL, 0, 0) ==
		      (CUresult)1006,
	      "and is the one of its version");
	check(is_watched(asked("cuGraphInstantiate", 12000, 0)),
	      "a name that leads to a function of another name is watched");
	check(asked("cuGraphInstantiate", 12000, 0) == dlsym(driver, "cuGraphInstantiateWithFlags"),
	      "as that function");
}

static void by_flags(void)
{
	void *legacy = asked("cuMemFreeAsync", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
	void *thread =
		asked("cuMemFreeAsync", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);

	check(is_watched(legacy) && is_watched(thread), "both meanings of stream 0 are watched");
	check(legacy == asked("cuMemFreeAsync", 12000, 0), "the legacy one is the usual one");
	check(((typeof(cuMemFreeAsync) *)legacy)(1, NULL) == (CUresult)1003 &&
		      ((typeof(cuMemFreeAsync) *)thread)(1, NULL) == (CUresult)1004,
	      "and each is itself");
	check(asked("cuMemFree", 12000, 2) == asked("cuMemFree", 12000, 0),
	      "a call without a stream is the same for both");
}

static void of_another_age(void)
{
	int *age = dlsym(driver, "table_driver_age");

	*age = 12000;
	check(((typeof(cuCtxCreate_v3) *)asked("cuCtxCreate", 12050, 0))(NULL, NULL, 0, 0, 0) ==
		      (CUresult)1005,
	      "an older driver's function is called as what it is");
	*age = 14000;
	check(is_drivers(asked("cuMemFree", 14000, 0)), "a newer driver's function is not masked");
	check(((CUresult(*)(int, int, int))asked("cuMemFree", 15000, 0))(1, 2, 3) == (CUresult)6,
	      "and is called with parameters that pindown does not know");
	check(is_watched(asked("cuMemFree", 13000, 0)), "the older one still is watched");
	*age = 13000;
}

static void of_itself(void)
{
	typeof(cuGetProcAddress) *v1 = asked("cuGetProcAddress", 11030, 0);
	typeof(cuGetProcAddress_v2) *v2 = asked("cuGetProcAddress", 12000, 0);
	void *function = NULL;

	check(is_watched(v1) && is_watched(v2),
	      "cuGetProcAddress answers for itself, in both versions");
	check((void *)v1 != (void *)v2, "which are two");
	check(!v1("cuMemFree", &function, 12000, 0) && is_watched(function),
	      "the first one answers so");
	check(!v2("cuMemFree", &function, 12000, 0, NULL) && is_watched(function),
	      "and the second");
}

static void of_nothing(void)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	void *function = &status;

	check(ask("", &function, 12000, 0, NULL) == CUDA_ERROR_NOT_FOUND && !function,
	      "no name: what the driver says");
	check(ask("cuNoSuch", &function, 12000, 0, &status) == CUDA_SUCCESS &&
		      status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
	      "an unknown name too");
	check(ask(NULL, &function, 12000, 0, &status) == CUDA_ERROR_INVALID_VALUE,
	      "NULL for a name");
	check(ask("cuMemFree", NULL, 12000, 0, &status) == CUDA_ERROR_INVALID_VALUE,
	      "NULL for the answer");
	check(is_drivers(asked("cuInit", 12000, 0)), "an unwatched function is the driver's own");
}

/* ---- many at once ---------------------------------------------------------------------------- */

static void *look_often(void *unused)
{
	void *first = NULL, *found;

	(void)unused;
	for (int i = 0; i < 1000; i++) {
		found = i % 2 ? dlsym(driver, "cuCtxCreate_v4") : asked("cuCtxCreate", 13000, 0);
		if (first && found != first)
			return NULL;
		first = found;
	}
	return first;
}

static void by_many(void)
{
	pthread_t thread[4];
	void *found[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, look_often, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], &found[i]);
	check(found[0] && found[0] == found[1] && found[0] == found[2] && found[0] == found[3],
	      "threads that look up at once are told the same");
}

/* ---- functions that are newer than the table ------------------------------------------------ */

/* Does pindown trust that it sees every free? Switched off, it never says that it does not. */
static bool trusts(void)
{
	__typeof__(&pindown_stats) ask_stats = dlsym(RTLD_DEFAULT, "pindown_stats");
	struct pindown_stats stats;

	memset(&stats, 0, sizeof(stats));
	return ask_stats(&stats, sizeof(stats), -1) == 0 && !stats.distrusted &&
	       stats.intercepting == on;
}

static void by_newer_name(void)
{
	void *(*finds)(const char *) = dlsym(driver, "table_driver_finds");

	dlsym(driver, "cuMemFree_v3");
	check(trusts(), "a newer version that the driver lacks does not count");
	dlsym(driver, "cuArrayDestroy_v9");
	check(trusts(), "a newer version of a call about arrays frees nothing that is registered");
	dlsym(driver, "cuStreamDestroy_v9");
	check(trusts(), "nor does one of a call that ends only a capture");
	dlsym(driver, "cuMemFreeAll");
	dlsym(driver, "cuInit");
	check(trusts(), "nor does one of a call that is not watched");
	finds("cuMemFreeAsync_v9");
	check(trusts(), "nor one that the driver finds for itself");
	check(is_drivers(dlsym(driver, "cuMemFreeAsync_v9")),
	      "a newer version is the driver's own");
	check(trusts() == !on, "and from then on nothing is trusted");
	dlsym(driver, "cuMemFreeAsync_v9");
}

static void by_newer_answer(void)
{
	int *age = dlsym(driver, "table_driver_age");

	*age = 14000;
	check(is_watched(asked("cuMemFree", 13000, 0)) && trusts(),
	      "the known one of a new driver");
	check(is_drivers(asked("cuMemFree", 14000, 0)), "a newer one is the driver's own");
	check(trusts() == !on, "and from then on nothing is trusted");
}

/* ---- libraries that come and go -------------------------------------------------------------- */

static const char *own_folder;

/* The wrappers that the program has been given call it. */
static void by_closed_driver(void)
{
	check(dlclose(driver) == 0, "the driver can be closed");
	check(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != NULL, "and stays loaded");
}

/*
 * A library that another one brings along has no search list of its own: what RTLD_NEXT leads to,
 * only the loader can tell.
 */
static void by_brought_library(void)
{
	void *library, *(*next)(const char *);
	char path[4096];

	snprintf(path, sizeof(path), "%s/libtable_brings.so", own_folder);
	library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	next = library ? dlsym(library, "table_other_next") : NULL;
	check(trusts(), "a library that is brought along is trusted as long as it asks nothing");
	check(next && is_drivers(next("cuMemFree_v2")), "RTLD_NEXT leads to the driver's own");
	check(trusts() == !on, "and from then on nothing is trusted");
}

/* ---- the runs -------------------------------------------------------------------------------- */

static int run_newer(void (*look)(void))
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	ask = dlsym(driver, "cuGetProcAddress_v2");
	check(trusts(), "there is trust in the beginning");
	look();
	printf("%u %u\n", passed, failed);
	return 0;
}

static int run_inside(const char *folder)
{
	on = strcmp(getenv("PINDOWN"), "0");
	if (!strcmp(getenv("TABLE_INSIDE"), "name"))
		return run_newer(by_newer_name);
	if (!strcmp(getenv("TABLE_INSIDE"), "answer"))
		return run_newer(by_newer_answer);
	own_folder = folder;
	if (!strcmp(getenv("TABLE_INSIDE"), "closed"))
		return run_newer(by_closed_driver);
	if (!strcmp(getenv("TABLE_INSIDE"), "brought"))
		return run_newer(by_brought_library);
	without_driver();
	from_a_library_that_goes(folder);
	within_constructor(folder);
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver) {
		printf("%s\n", dlerror());
		return 1;
	}
	ask = dlsym(driver, "cuGetProcAddress_v2");
	by_many();
	by_dlsym();
	by_driver_itself();
	by_version();
	by_flags();
	of_itself();
	of_nothing();
	check(trusts(), "all known functions are trusted");
	by_other_libraries(folder);
	check(trusts() == !on, "and nothing when a second definition was handed out");
	of_another_age();
	printf("%u %u\n", passed, failed);
	return 0;
}

/*
 * Reads the run's counts, and passes on what else it printed, except for the line that pindown must
 * print (NULL: none).
 */
static bool run(const char *self, const char *folder, const char *setting, const char *inside,
		const char *wanted)
{
	const char *before = getenv("SAN_PRELOAD");
	char command[8192], line[256];
	unsigned run_passed = 0, run_failed = 0;
	bool counted = false, told = !wanted;
	FILE *output;

	snprintf(command, sizeof(command),
		 "PINDOWN=%s TABLE_INSIDE=%s LD_LIBRARY_PATH='%s/table_driver' "
		 "LD_PRELOAD='%s%s%s/../libpindown.so' exec '%s' 2>&1",
		 setting, inside, folder, before ? before : "", before && *before ? ":" : "",
		 folder, self);
	output = popen(command, "r");
	if (!output)
		return false;
	while (fgets(line, sizeof(line), output)) {
		counted = sscanf(line, "%u %u", &run_passed, &run_failed) == 2;
		if (!told && strstr(line, wanted) == line)
			told = true;
		else if (!counted && !strncmp(line, "pindown: ", 9))
			failed++, printf("unexpected output: %s", line);
		else if (!counted)
			fputs(line, stdout);
	}
	passed += run_passed;
	failed += run_failed;
	check(told, wanted ? wanted : "");
	return pclose(output) == 0 && counted;
}

static const char second[] = "pindown: cuMemFreeAsync was found in two libraries, and calls of the "
			     "second go unseen; from now "
			     "on every hit is checked by buffer id\n";
static const char newer_name[] = "pindown: cuMemFreeAsync_v9 was looked up, which is newer than "
				 "this pindown, and calls of it go "
				 "unseen; from now on every hit is checked by buffer id\n";
static const char newer_answer[] =
	"pindown: cuGetProcAddress answers \"cuMemFree\" for CUDA 14.0 with a function that is "
	"newer than "
	"this pindown, and calls of it go unseen; from now on every hit is checked by buffer id\n";

int main(int argc, char **argv)
{
	char self[4096], folder[4096], brought[4200];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	(void)argc;
	(void)argv;
	if (length < 0)
		return 1;
	self[length] = '\0';
	memcpy(folder, self, (size_t)length + 1);
	if (getenv("TABLE_INSIDE"))
		return run_inside(dirname(folder));
	dirname(folder);
	snprintf(brought, sizeof(brought),
		 "pindown: %s/libtable_third.so has looked up cuMemFree_v2 by RTLD_NEXT from ",
		 folder);
	on = true;
	if (!run(self, folder, "1", "all", second) || !run(self, folder, "0", "all", NULL) ||
	    !run(self, folder, "1", "name", newer_name) || !run(self, folder, "0", "name", NULL) ||
	    !run(self, folder, "1", "answer", newer_answer) ||
	    !run(self, folder, "1", "closed", NULL) ||
	    !run(self, folder, "1", "brought", brought) ||
	    !run(self, folder, "0", "brought", NULL)) {
		printf("a run under the preload did not finish\n");
		failed++;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed != 0;
}
