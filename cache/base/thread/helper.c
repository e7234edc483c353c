/* SPDX-License-Identifier: MIT */
/* Starting threads of pindown's own. */
#define _GNU_SOURCE
#include "cache/base/thread/helper.h"

#include <errno.h>
#include <signal.h>

#include "cache/base/thread/pthread.h"

bool pdn_helper_start(void *(*run)(void *), void *arg)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int saved = errno;
	bool started;

	if (!pdn_pthread.create || pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	started = pdn_pthread.create(&thread, &attributes, run, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (started)
		pdn_pthread.setname_np(thread, "pindown");
	errno = saved;
	return started;
}
