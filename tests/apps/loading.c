/* SPDX-License-Identifier: MIT */
/*
 * loading PLUGIN: a thread opens a plugin that needs libcuda.so.1. While the loader relocates the
 * two, in a function of libwaits.so that chooses another one, the main thread asks pindown for
 * memory. libcuda.so.1 is listed by then, but not ready, and gone again if the dlopen() fails.
 * Then the program uses CUDA.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "tests/unit/support/asleep.h"

enum { NOBODY, LOADER, MAIN };

static __typeof__(pindown_get) *get;
static int has_come; /* who is in the middle of it */

static void wait_for(int who)
{
	while (__atomic_load_n(&has_come, __ATOMIC_ACQUIRE) != who)
		sched_yield();
}

__attribute__((visibility("default"))) void loading_now(void);

/* Until the main thread waits for the loader, or for this thread's end. */
void loading_now(void)
{
	__atomic_store_n(&has_come, LOADER, __ATOMIC_RELEASE);
	wait_for(MAIN);
	wait_until_asleep(getpid(), "S");
}

static void *open_it(void *plugin)
{
	return dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
}

static void ask(const char *when, uint64_t addr)
{
	pindown_region *region = NULL;

	printf("%s: %d\n", when, get(addr, 1, 0, &region));
}

/* What lies where the library was, if it has gone. */
static void use_its_place(void)
{
	for (int i = 0; i < 64; i++)
		memset(mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0),
		       0x5a, 1 << 18);
}

#define CUDA(name) ((name##_function *)dlsym(cuda, #name))
typedef int cuInit_function(unsigned);
typedef int cuCtxCreate_v2_function(void **, unsigned, int);
typedef int cuMemAlloc_v2_function(unsigned long long *, size_t);

static uint64_t some_memory(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
	unsigned long long addr = 0;

	return cuda && !CUDA(cuInit)(0) && !CUDA(cuCtxCreate_v2)(&context, 0, 0) &&
			       !CUDA(cuMemAlloc_v2)(&addr, 1 << 20)
		       ? addr
		       : 0;
}

int main(int argc, char **argv)
{
	pthread_t loader;
	void *opened;

	get = (__typeof__(get))dlsym(RTLD_DEFAULT, "pindown_get");
	if (argc != 2 || !get || pthread_create(&loader, NULL, open_it, argv[1]) != 0)
		return 2;
	wait_for(LOADER);
	__atomic_store_n(&has_come, MAIN, __ATOMIC_RELEASE);
	ask("meanwhile", (uintptr_t)&loader);
	pthread_join(loader, &opened);
	printf("the plugin is %s\n", opened ? "open" : "refused");
	use_its_place();
	ask("then", (uintptr_t)&loader);
	ask("with CUDA", some_memory());
	return 0;
}
