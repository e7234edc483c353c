/* SPDX-License-Identifier: MIT */
/*
 * A library that is opened with RTLD_DEEPBIND finds a name in a library of its own, not in the
 * program. This file is built as the program (DEEP_PROGRAM), as the library that defines the name
 * (DEEP_OWN), and as the plugin that uses it.
 *
 * With a second argument the program opens the plugin in a thread with the minimum stack and with a
 * cancellation pending, on which dlopen does not act.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *deep_who(void);

#if defined(DEEP_PROGRAM)

EXPORT const char *deep_who(void)
{
	return "the program";
}

static void *plugin;

static void *open_narrowly(void *name)
{
	pthread_cancel(pthread_self());
	plugin = dlopen(name, RTLD_NOW | RTLD_DEEPBIND);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return NULL;
}

static long pages(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long size = 0;

	if (file != NULL) {
		if (fscanf(file, "%ld", &size) != 1)
			size = 0;
		fclose(file);
	}
	return size;
}

/* errno may be anything before a call. */
static void *open_it(const char *name)
{
	errno = EINTR;
	return dlopen(name, RTLD_NOW | RTLD_DEEPBIND);
}

/*
 * To open a library, pindown maps its file and reads it. It must unmap it again: opening the
 * library many times takes no more memory than opening it once.
 */
static const char *growth(const char *name)
{
	enum { TIMES = 100 };
	long before = 0;

	for (int i = 0; i <= TIMES; i++) {
		void *opened = open_it(name);

		if (opened != NULL)
			dlclose(opened);
		if (i == 0)
			before = pages();
	}
	return pages() - before < TIMES / 2 ? "stays" : "grows";
}

static void open_in_thread(char *name)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
	if (pthread_create(&thread, &attributes, open_narrowly, name) == 0)
		pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	const char *(*ask)(void);

	/* The loader has read it already, and a thread may be changing it. */
	environ = NULL;
	if (argc > 2)
		open_in_thread(argv[1]);
	else if (argc > 1)
		plugin = open_it(argv[1]);
	ask = plugin != NULL ? dlsym(plugin, "deep_ask") : NULL;
	if (ask == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	printf("defined by %s\n", ask());
	if (argc == 2) {
		dlclose(plugin);
		printf("memory %s\n", growth(argv[1]));
	}
	return 0;
}

#elif defined(DEEP_OWN)

EXPORT const char *deep_who(void)
{
	return "the library";
}

#else

EXPORT const char *deep_ask(void);

EXPORT const char *deep_ask(void)
{
	return deep_who();
}

#endif
