/* SPDX-License-Identifier: MIT */
/*
 * A child that is forked while the loader is busy: a thread that the child does not have may hold a
 * lock of the loader. The child uses CUDA, looks names up or closes a library, without any call of
 * the loader that needs this lock.
 *
 *	forked BUSY HOW LIBRARIES ROAD GROUP
 *
 * LIBRARIES, separated by commas, are opened before; the last one that is a plugin runs GROUP on
 * ROAD in the child. Additional roads of this program: absent, close, loads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/asleep.h"
#include "tests/unit/support/patience.h"

#define LIMIT 20 /* seconds for a child that waits for nobody */

extern char **environ;

static int argument_count;
static char **arguments;
static void *last_library;
static int (*app_main)(int argc, char **argv, int at);

/* ---- the child ------------------------------------------------------------------------------ */

static int say(const char *what, const void *found)
{
	printf("%s: %s\n", what, found != NULL ? "found" : "not found");
	return fflush(stdout);
}

static int look_for_what_is_absent(void)
{
	say("cuMemFree_v2", dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
	say("ibv_reg_mr", dlsym(RTLD_DEFAULT, "ibv_reg_mr"));
	return say("fork", dlsym(RTLD_DEFAULT, "fork"));
}

/* The parent has opened it twice. */
static int close_one(void)
{
	printf("closed: %d\n", dlclose(last_library));
	return fflush(stdout);
}

/*
 * The child opens and closes libraries of its own. This takes the loader's lock, so it is only done
 * where no thread holds it.
 */
static int load_others(void)
{
	void *driver;

	look_for_what_is_absent();
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	say("libcuda", driver);
	say("cuMemFree_v2 in it", dlsym(driver, "cuMemFree_v2"));
	printf("closed: %d\n", dlclose(driver));
	return look_for_what_is_absent();
}

static int act(void)
{
	const char *road = arguments[4];

	alarm(LIMIT);
	if (strcmp(road, "absent") == 0)
		return look_for_what_is_absent();
	if (strcmp(road, "close") == 0)
		return close_one();
	if (strcmp(road, "loads") == 0)
		return load_others();
	return app_main != NULL ? app_main(argument_count, arguments, 4) : 2;
}

/* ---- ways to a child ------------------------------------------------------------------------- */

static const char *how;
static pid_t (*fork_without_handlers)(void); /* _Fork(), since glibc 2.34 */

static void wait_for(pid_t child)
{
	int status = 0;

	if (child < 0 || waitpid(child, &status, 0) != child)
		printf("no child\n");
	else if (WIFSIGNALED(status))
		printf("the child was ended by signal %d\n", WTERMSIG(status));
	else
		printf("the child ended with %d\n", WEXITSTATUS(status));
	fflush(stdout);
}

/* A grandchild knows no more about the lock than the child does. */
static pid_t grandchild(void)
{
	pid_t child = fork();

	if (child != 0)
		return child;
	child = fork();
	if (child == 0)
		_exit(act());
	wait_for(child);
	_exit(0);
}

static pid_t spawn_shell(bool by_vfork)
{
	static char *const words[] = {"sh", "-c", "exit 6", NULL};
	pid_t child = -1;

	if (!by_vfork)
		return posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0 ? child : -1;
	child = vfork();
	if (child == 0) {
		execve("/bin/sh", words, environ);
		_exit(126);
	}
	return child;
}

static pid_t make_child(void)
{
	pid_t child;

	if (strcmp(how, "vfork") == 0 || strcmp(how, "spawn") == 0)
		return spawn_shell(how[0] == 'v');
	if (strcmp(how, "grandchild") == 0)
		return grandchild();
	if (strcmp(how, "clone") == 0)
		child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	else if (strcmp(how, "_Fork") == 0)
		child = fork_without_handlers();
	else
		child = fork();
	if (child == 0)
		_exit(act());
	return child;
}

static void make_children(int signal)
{
	(void)signal;
	wait_for(make_child());
}

/* ---- ways to keep the loader busy ------------------------------------------------------------ */

static pthread_barrier_t busy, done;

static void stay_busy(void)
{
	pthread_barrier_wait(&busy);
	pthread_barrier_wait(&done);
}

static int at_an_object(struct dl_phdr_info *info, size_t size, void *argument)
{
	(void)info, (void)size, (void)argument;
	stay_busy();
	return 1;
}

static void *iterate(void *argument)
{
	dl_iterate_phdr(at_an_object, argument);
	return NULL;
}

/* The library that is opened calls this in its constructor and destructor. */
__attribute__((visibility("default"))) void forked_in_constructor(void);
__attribute__((visibility("default"))) void forked_in_destructor(void);
static bool in_destructor;

void forked_in_constructor(void)
{
	if (!in_destructor)
		stay_busy();
}

void forked_in_destructor(void)
{
	if (in_destructor)
		stay_busy();
}

static void *open_and_close(void *slow)
{
	void *library = dlopen(slow, RTLD_NOW);

	if (library != NULL)
		dlclose(library);
	return NULL;
}

/*
 * The first use of CUDA, while standard error is a full pipe, from the program's start on: nothing
 * is printed into a pipe that takes its place later. A thread that writes to it blocks, and stays
 * blocked.
 */
static pid_t first_user;

static void *use_cuda_first(void *driver)
{
	__atomic_store_n(&first_user, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	return dlsym(driver, "cuMemFree_v2");
}

static void start_with_a_full_standard_error(void)
{
	char reader[12];
	int ends[2];

	if (pipe(ends) != 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0)
		exit(2);
	while (write(ends[1], "", 1) == 1)
		;
	if (fcntl(ends[1], F_SETFL, 0) != 0 || dup2(ends[1], STDERR_FILENO) < 0)
		exit(2);
	snprintf(reader, sizeof(reader), "%d", ends[0]);
	setenv("FORKED_READER", reader, 1);
	execv("/proc/self/exe", arguments);
	exit(2);
}

static void beside_the_first_use(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	pthread_t other;

	if (pthread_create(&other, NULL, use_cuda_first, driver) != 0)
		exit(2);
	if (!becomes_true(PATIENCE_NS, __atomic_load_n(&first_user, __ATOMIC_ACQUIRE) != 0))
		exit(2);
	wait_until_asleep(first_user, "S");
	make_children(0);
	close(atoi(getenv("FORKED_READER"))); /* a thread that waits for space gets an error */
	pthread_join(other, NULL);
}

static int in_my_own(struct dl_phdr_info *info, size_t size, void *argument)
{
	(void)info, (void)size, (void)argument;
	raise(SIGUSR1);
	return 1;
}

static void beside_a_busy_thread(void *(*thread)(void *))
{
	pthread_t other;

	pthread_barrier_init(&busy, NULL, 2);
	pthread_barrier_init(&done, NULL, 2);
	if (pthread_create(&other, NULL, thread, getenv("FORKED_SLOW")) != 0)
		exit(2);
	pthread_barrier_wait(&busy);
	make_children(0);
	pthread_barrier_wait(&done);
	pthread_join(other, NULL);
}

static int fork_while(const char *name)
{
	in_destructor = strcmp(name, "closing") == 0;
	if (strcmp(name, "iterating") == 0)
		beside_a_busy_thread(iterate);
	else if (strcmp(name, "opening") == 0 || in_destructor)
		beside_a_busy_thread(open_and_close);
	else if (strcmp(name, "beginning") == 0)
		beside_the_first_use();
	else if (strcmp(name, "myself") == 0) {
		signal(SIGUSR1, make_children);
		dl_iterate_phdr(in_my_own, NULL);
	} else if (strcmp(name, "idle") == 0)
		make_children(0);
	else
		return 2;
	return 0;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc != 6) {
		fprintf(stderr, "usage: %s BUSY HOW LIBRARIES ROAD GROUP\n", argv[0]);
		return 2;
	}
	argument_count = argc;
	arguments = argv;
	if (strcmp(argv[1], "beginning") == 0 && getenv("FORKED_READER") == NULL)
		start_with_a_full_standard_error();
	how = argv[2];
	fork_without_handlers = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
	if (fork_without_handlers == NULL)
		fork_without_handlers = fork;
	for (char *name = strtok(argv[3], ","); name != NULL; name = strtok(NULL, ",")) {
		void *library = dlopen(name, RTLD_NOW);

		if (library == NULL) {
			fprintf(stderr, "%s\n", dlerror());
			return 2;
		}
		last_library = library;
		app_main = (int (*)(int, char **, int))dlsym(library, "app_main");
	}
	return fork_while(argv[1]);
}
