/* SPDX-License-Identifier: MIT */
/*
 * For check-tsan. As a program: loads a library and lets two threads race in a function of it. As
 * that library (TSAN_LIBRARY): the function.
 */
#include <string.h>

#ifdef TSAN_LIBRARY
void noisy(char *at, int value);
void noisy(char *at, int value)
{
	memset(at, value, 64);
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static char shared[64];
static void (*noisy)(char *, int);

static void *other(void *unused)
{
	noisy(shared, 1);
	return unused;
}

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	pthread_t thread;

	if (library == NULL)
		return 2;
	*(void **)&noisy = dlsym(library, "noisy");
	if (pthread_create(&thread, NULL, other, NULL) != 0)
		return 3;
	noisy(shared, 2);
	pthread_join(thread, NULL);
	puts("done");
	return 0;
}
#endif
