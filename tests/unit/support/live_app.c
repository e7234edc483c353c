/* SPDX-License-Identifier: MIT */
/*
 * A program for check-top: it reads commands, one letter a line, and answers each with a line.
 *
 *	c  use CUDA            a  allocate 2 MiB and get (registers)   h  1000 hits on it
 *	t  300 hits from each of 250 threads, which stay     f  free it    u  get an unknown address
 *	o  a consumer's object on it, which is held
 *	m  free it without pindown's knowledge, and allocate again
 *	d  print its descriptors     k  a child that uses CUDA and reads commands, until its q
 *	e  its environment is in a change: an address with nothing there
 *	r  set 3 refused pins in its page, as there is no module here that refuses any
 *	x  execute itself      s  execute /bin/sleep     _  _exit     q  exit
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "cache/show/format.h"
#include "hook/cuda/abi.h"
#include "tests/sim/sim.h"

enum { SIZE = 2 << 20, THREADS = 250 };

static CUdeviceptr memory;
static __typeof__(&pindown_get) get;
static __typeof__(&pindown_put) put;

static void use_cuda(void)
{
	CUcontext context;

	if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
	    cuCtxSetCurrent(context) != CUDA_SUCCESS)
		_exit(9);
}

static int make_object(const struct pindown_object_request *what, void **data, void *arg)
{
	(void)what, (void)arg;
	*data = NULL;
	return 0;
}

static int destroy_object(const struct pindown_object_end *what, void *arg)
{
	(void)what, (void)arg;
	return 0;
}

static void hold_object(void)
{
	static const struct pindown_consumer ops = {
		.name = "live", .create = make_object, .destroy = destroy_object};
	static const struct pindown_key key = {.owner = 1};
	__typeof__(&pindown_consumer_add) add = NULL;
	__typeof__(&pindown_attach) attach = NULL;
	pindown_object *object;

	*(void **)&add = dlsym(RTLD_DEFAULT, "pindown_consumer_add");
	*(void **)&attach = dlsym(RTLD_DEFAULT, "pindown_attach");
	if (!add || !attach ||
	    attach(add(&ops, sizeof(ops)), memory, 1, 0, &key, NULL, &object) != PINDOWN_OK)
		_exit(5);
}

/* The process's file in /dev/shm says where its page is. */
static bool note_refusals(void)
{
	struct pdn_top_page head, *page = (void *)-1;
	char pattern[64];
	glob_t found;
	FILE *file = NULL;

	snprintf(pattern, sizeof(pattern), "/dev/shm/" PDN_TOP_PREFIX "%d.*", (int)getpid());
	if (glob(pattern, 0, NULL, &found) == 0)
		file = fopen(found.gl_pathv[0], "re");
	if (file && fread(&head, sizeof(head), 1, file) == 1)
		page = shmat(head.segment, NULL, 0);
	if (file)
		fclose(file);
	globfree(&found);
	if (page == (void *)-1)
		return false;
	page->stats.fallbacks = 3;
	return shmdt(page) == 0;
}

static void hit(unsigned times)
{
	pindown_region *region;

	while (times--)
		if (get && get(memory, 1, 0, &region) == PINDOWN_OK)
			put(region);
}

static void *hit_and_stay(void *barrier)
{
	hit(300);
	pthread_barrier_wait(barrier);
	pause();
	return NULL;
}

static void hit_from_threads(void)
{
	static pthread_barrier_t barrier;
	pthread_attr_t small;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&thread, &small, hit_and_stay, &barrier) != 0)
			_exit(8);
	pthread_barrier_wait(&barrier);
}

static void free_unseen(void)
{
	__typeof__(&sim_free_unseen) unseen = NULL;

	*(void **)&unseen = dlsym(RTLD_DEFAULT, "sim_free_unseen");
	if (!unseen || unseen(memory) != 0 || cuMemAlloc_v2(&memory, SIZE) != CUDA_SUCCESS)
		_exit(3);
}

static void print_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	unsigned count = 0;

	while (folder && (entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	printf("%u descriptors, the next is %d\n", count - 1, dup(0));
}

int main(int argc, char **argv)
{
	char line[80];
	pindown_region *region;

	(void)argc;
	*(void **)&get = dlsym(RTLD_DEFAULT, "pindown_get");
	*(void **)&put = dlsym(RTLD_DEFAULT, "pindown_put");
	/* a child, or a program that it executes, continues to read the commands */
	setvbuf(stdin, NULL, _IONBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		switch (line[0]) {
		case 'c':
			use_cuda();
			break;
		case 'a':
			if (cuMemAlloc_v2(&memory, SIZE) != CUDA_SUCCESS)
				return 7;
			hit(1);
			break;
		case 'h':
			hit(1000);
			break;
		case 't':
			hit_from_threads();
			break;
		case 'f':
			if (cuMemFree_v2(memory) != CUDA_SUCCESS)
				return 6;
			break;
		case 'o':
			hold_object();
			break;
		case 'm':
			free_unseen();
			break;
		case 'u':
			if (get)
				get(0x1000, 1, 0, &region);
			break;
		case 'd':
			print_descriptors();
			break;
		case 'e':
			environ = (char **)8;
			break;
		case 'r':
			if (!note_refusals())
				return 8;
			break;
		case 'k':
			if (fork() != 0) {
				wait(NULL);
			} else {
				printf("%d\n", (int)getpid());
				fflush(stdout);
				continue;
			}
			break;
		case 'x':
			fflush(stdout);
			execv("/proc/self/exe", argv);
			return 5;
		case 's':
			puts("sleeps");
			fflush(stdout);
			execl("/bin/sleep", "sleep", "600", NULL);
			return 5;
		case '_':
			_exit(0);
		case 'q':
			exit(0);
		}
		if (line[0] != 'd')
			puts("done");
		fflush(stdout);
	}
	return 4;
}
