/* SPDX-License-Identifier: MIT */
/*
 * The dynamic loader as a program sees it, CUDA apart: results that depend on the caller of dlsym
 * or dlopen, error texts, look-ups of missing names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

void who(void);
void *versioned_malloc(void);
void *open_neighbour(const char *name);

static void show(const char *what, const void *found)
{
	const char *error = dlerror();

	printf("%s: %s%s%s\n", what, found != NULL ? "found" : "not found",
	       error != NULL ? ", " : "", error != NULL ? error : "");
}

static void show_lookups(void)
{
	void *self = dlopen(NULL, RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

	show("who, by default", dlsym(RTLD_DEFAULT, "who"));
	show("who, next", dlsym(RTLD_NEXT, "who"));
	show("who, in libc", dlsym(libc, "who"));
	show("malloc, of a version", dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5"));
	show("malloc, of a version from a library", versioned_malloc());
	show("malloc, of no version", dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_0.0"));
	show("a name that begins like CUDA's", dlsym(RTLD_DEFAULT, "curl_easy_init"));
	show("a name that CUDA does not have", dlsym(RTLD_DEFAULT, "cuThisIsNot"));
	show("the empty name", dlsym(RTLD_DEFAULT, ""));
	show("main", dlsym(self, "main"));
	printf("dlsym is %s\n",
	       dlsym(RTLD_DEFAULT, "dlsym") == (void *)dlsym ? "itself" : "another");
}

/* Like show(), without the object at the beginning of the error text. */
static void show_but_object(const char *what, const void *found)
{
	const char *error = dlerror(), *rest = error != NULL ? strstr(error, ": ") : NULL;

	printf("%s: %s%s\n", what, found != NULL ? "found" : "not found", rest != NULL ? rest : "");
}

/*
 * No CUDA driver is loaded, and no preload may pretend that there is one. (The error text names the
 * searched object. A preloaded library that has the name and hides it can't make the loader say
 * that it searched the program.)
 */
static void show_cuda_absent(void)
{
	show_but_object("cuMemAlloc_v2", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	show_but_object("cuMemFree_v2 next", dlsym(RTLD_NEXT, "cuMemFree_v2"));
	show_but_object("cuGetProcAddress_v2", dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
	show("cuInit", dlsym(RTLD_DEFAULT, "cuInit"));
	show("libcuda, if loaded", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void show_opening(void)
{
	const char *(*whose)(void);
	void *inner;

	show("a library that is nowhere", dlopen("libnowhere-at-all.so.7", RTLD_NOW));
	show("bad flags", dlopen("libc.so.6", 0));
	show("the neighbour, from the program", dlopen("libwho-inner.so", RTLD_NOW));
	inner = open_neighbour("libwho-inner.so");
	show("the neighbour, from the library", inner);
	if (inner == NULL)
		return;
	whose = (const char *(*)(void))dlsym(inner, "whose");
	printf("its name: %s\n", whose != NULL ? whose() : "none");
	printf("closed: %d\n", dlclose(inner));
}

static int count_library(struct dl_phdr_info *info, size_t size, void *argument)
{
	(void)size;
	if (strstr(info->dlpi_name, "libwho") != NULL)
		++*(int *)argument;
	return 0;
}

/* Each thread has its own dlerror. */
static void *fail_in_thread(void *argument)
{
	(void)argument;
	dlsym(RTLD_DEFAULT, "of_another_thread");
	return NULL;
}

int main(void)
{
	int libraries = 0;
	pthread_t thread;

	errno = 4711;
	who();
	show_lookups();
	show_cuda_absent();
	show_opening();
	if (pthread_create(&thread, NULL, fail_in_thread, NULL) == 0)
		pthread_join(thread, NULL);
	show("no error of another thread's", "");
	dl_iterate_phdr(count_library, &libraries);
	printf("libraries of the chain: %d\n", libraries);
	return 0;
}
