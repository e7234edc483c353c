/* SPDX-License-Identifier: MIT */
/* Starting threads of pindown's own. */
#define _GNU_SOURCE
#include "cache/base/helper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

bool pdn_helper_start(void *(*run)(void *), void *arg)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int saved = errno;
	bool started;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	started = pthread_create(&thread, &attributes, run, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (started)
		pthread_setname_np(thread, "pindown");
	errno = saved;
	return started;
}
