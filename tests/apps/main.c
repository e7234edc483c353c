/* SPDX-License-Identifier: MIT */
/* The main program: registers handlers of fork() first of all, then runs its group. */
#include "app.h"

#include <pthread.h>

static void call(const char *when)
{
	if (app_at_fork)
		app_at_fork(when);
}

static void in_prepare(void)
{
	call("early prepare");
}

static void in_parent(void)
{
	call("early parent");
}

static void in_child(void)
{
	call("early child");
}

/*
 * Runs before the constructor of any library, so that all other handlers are registered later:
 * these handlers run next to the fork.
 */
static void register_early(void)
{
	pthread_atfork(in_prepare, in_parent, in_child);
}
__attribute__((section(".preinit_array"),
	       used)) static void (*const before_all)(void) = register_early;

int main(int argc, char **argv)
{
	return app_main(argc, argv, 1);
}
