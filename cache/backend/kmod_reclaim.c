/* SPDX-License-Identifier: MIT */
/* The thread that gives BAR space back when pindown.ko asks this process for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include "cache/backend/backend.h"
#include "cache/base/process/descriptor.h"
#include "cache/base/thread/helper.h"
#include "cache/backend/kmod_reclaim.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"

#include "kmod/pindown_ioctl.h"

PDN_WEAK_EVENT(space_wanted, (uint64_t bytes, int device));

static bool answering;
static int wish_fd;
static uint64_t wish_identity;
static const struct pindown_state *wish_state;

/*
 * The devices' GPUs; zeroes: nothing has been pinned there. Each is stored once, or by two threads
 * that store the same. Relaxed: half of one names no GPU, and then nothing is given this time.
 */
static uint64_t gpus[PDN_MAX_DEVICES][2];

void pdn_kmod_note_gpu(int device, const uint8_t uuid[16])
{
	uint64_t halves[2];

	if (device < 0 || device >= PDN_MAX_DEVICES)
		return;
	memcpy(halves, uuid, sizeof(halves));
	for (unsigned i = 0; i < 2; i++)
		if (__atomic_load_n(&gpus[device][i], __ATOMIC_RELAXED) != halves[i])
			__atomic_store_n(&gpus[device][i], halves[i], __ATOMIC_RELAXED);
}

/* Regions of another GPU would help nobody. An older module does not say which it is. */
static void give(uint64_t bytes, const uint64_t gpu[2])
{
	if (!gpu[0] && !gpu[1]) {
		PDN_NOTIFY(space_wanted, bytes, -1);
		return;
	}
	for (int i = 0; i < PDN_MAX_DEVICES; i++)
		if (__atomic_load_n(&gpus[i][0], __ATOMIC_RELAXED) == gpu[0] &&
		    __atomic_load_n(&gpus[i][1], __ATOMIC_RELAXED) == gpu[1])
			PDN_NOTIFY(space_wanted, bytes, i);
}

/* The kernel writes what is wanted before it raises `wanted`. */
static void answer_one(void)
{
	/* Acquire: pairs with the kernel's release, so that the rest is of this request. */
	uint32_t wanted = __atomic_load_n(&wish_state->wanted, __ATOMIC_ACQUIRE);
	struct pindown_answer answer = {.size = sizeof(answer), .wanted = wanted};
	uint64_t gpu[2];

	memcpy(gpu, wish_state->wanted_gpu, sizeof(gpu));
	give(__atomic_load_n(&wish_state->wanted_bytes, __ATOMIC_RELAXED), gpu);
	pdn_sys(SYS_ioctl, wish_fd, PINDOWN_IOC_ANSWER, &answer);
}

uint64_t pdn_wish_look_ns = 10000000000u;

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
		struct timespec limit = pdn_sys_timespec(pdn_wish_look_ns);
		long n = pdn_sys(SYS_ppoll, &asked, 1, &limit, NULL, 0);

		if (n == 0 || n == -EINTR)
			continue;
		if (n < 0 || asked.revents & (POLLNVAL | POLLERR | POLLHUP))
			return NULL;
		if (pdn_descriptor_is(wish_fd, wish_identity))
			answer_one();
	}
	/* The next pin starts another one, if that has opened the device again. */
	__atomic_store_n(&answering, false, __ATOMIC_RELEASE);
	return NULL;
}

void pdn_kmod_answer_wishes(int fd, uint64_t identity, const struct pindown_state *state)
{
	static bool said;

	/* Only the first caller continues; its thread sees what it stores before the start. */
	if (__atomic_exchange_n(&answering, true, __ATOMIC_ACQ_REL))
		return;
	wish_fd = fd;
	wish_identity = identity;
	wish_state = state;
	if (!pdn_helper_start(answer_wishes, NULL))
		pdn_log_once(&said, PDN_LOG_INFO,
			     "idle regions are not given up to other processes: no thread can be "
			     "started");
}
