/* SPDX-License-Identifier: MIT */
/* The thread that gives BAR space back when pindown.ko asks this process for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>

#include "cache/backend/backend.h"
#include "cache/base/descriptor.h"
#include "cache/backend/kmod_reclaim.h"
#include "cache/base/log.h"

#include "kmod/pindown_ioctl.h"

PDN_WEAK_EVENT(space_wanted, (uint64_t bytes));

static bool answering;
static int wish_fd;
static uint64_t wish_identity;
static const struct pindown_state *wish_state;

/* The kernel writes `wanted_bytes` before it raises `wanted`. */
static void answer_one(void)
{
	/* Acquire: pairs with the kernel's release, so that the bytes are those of this request. */
	uint32_t wanted = __atomic_load_n(&wish_state->wanted, __ATOMIC_ACQUIRE);
	struct pindown_answer answer = {.size = sizeof(answer), .wanted = wanted};

	PDN_NOTIFY(space_wanted, __atomic_load_n(&wish_state->wanted_bytes, __ATOMIC_RELAXED));
	ioctl(wish_fd, PINDOWN_IOC_ANSWER, &answer);
}

int pdn_wish_look_ms = 10000;

/*
 * Runs until the process ends or the descriptor is no longer the device's, as after the program has
 * closed it. A poll() under way keeps the device open, and all that the module has pinned; so it
 * ends now and then.
 */
static void *answer_wishes(void *unused)
{
	struct pollfd asked = {.fd = wish_fd, .events = POLLIN};

	(void)unused;
	while (pdn_descriptor_is(wish_fd, wish_identity)) {
		int n = poll(&asked, 1, pdn_wish_look_ms);

		if (n == 0 || (n < 0 && errno == EINTR))
			continue;
		if (n < 0 || asked.revents & (POLLNVAL | POLLERR | POLLHUP))
			break;
		if (pdn_descriptor_is(wish_fd, wish_identity))
			answer_one();
	}
	return NULL;
}

/*
 * The thread blocks all signals: the program's are for the program's own threads. Its stack is as
 * large as theirs: the thread-local data of all libraries is in there, and callbacks run on it.
 */
static bool start_thread(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	bool started;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	started = pthread_create(&thread, &attributes, answer_wishes, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (started)
		pthread_setname_np(thread, "pindown");
	return started;
}

void pdn_kmod_answer_wishes(int fd, uint64_t identity, const struct pindown_state *state)
{
	static bool said;
	int saved = errno;

	/* Only the first caller continues; its thread sees what it stores before the start. */
	if (__atomic_exchange_n(&answering, true, __ATOMIC_ACQ_REL))
		return;
	wish_fd = fd;
	wish_identity = identity;
	wish_state = state;
	if (!start_thread())
		pdn_log_once(&said, PDN_LOG_INFO,
			     "idle regions are not given up to other processes: no thread can be "
			     "started");
	errno = saved;
}

void pdn_kmod_reclaim_fork_child(void)
{
	answering = false;
}
