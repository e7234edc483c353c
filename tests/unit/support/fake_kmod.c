/* SPDX-License-Identifier: MIT */
/* The scripted pindown.ko: see fake_kmod.h. It plays the cache's system calls (syscalls.h). */
#define _GNU_SOURCE
#include "tests/unit/support/fake_kmod.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/abi/module_area.h"
#include "tests/unit/support/fake_state.h"
#include "tests/unit/support/syscalls.h"
#include "cache/pindown.h"

/* fake_lock guards all of it, and the area. */
static uint64_t addresses[AREA_REGIONS];
static bool is_loaded;
static unsigned calls, fail_first, fail_times;
static int fail_error;
static uint64_t space = UINT64_MAX;
static unsigned signals;
static struct {
	unsigned at;
	void (*fn)(void);
} step;

/* ---- the script ---- */

void fake_kmod_load(void)
{
	is_loaded = true;
}

static uint64_t pinned(unsigned *count)
{
	uint64_t bytes = 0;

	*count = 0;
	for (unsigned n = 1; n < AREA_REGIONS; n++) {
		bytes += area_lengths[n];
		*count += area_lengths[n] != 0;
	}
	return bytes;
}

unsigned fake_kmod_pins(void)
{
	unsigned count;

	pthread_mutex_lock(&fake_lock);
	pinned(&count);
	pthread_mutex_unlock(&fake_lock);
	return count;
}

uint64_t fake_kmod_bytes(void)
{
	unsigned count;
	uint64_t bytes;

	pthread_mutex_lock(&fake_lock);
	bytes = pinned(&count);
	pthread_mutex_unlock(&fake_lock);
	return bytes;
}

unsigned fake_kmod_calls(void)
{
	return __atomic_load_n(&calls, __ATOMIC_RELAXED);
}

void fake_kmod_fail(unsigned nth, unsigned times, int error)
{
	pthread_mutex_lock(&fake_lock);
	fail_first = calls + nth;
	fail_times = times;
	fail_error = error;
	pthread_mutex_unlock(&fake_lock);
}

void fake_kmod_space(uint64_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	space = bytes;
	pthread_mutex_unlock(&fake_lock);
}

void fake_kmod_signals(unsigned times)
{
	pthread_mutex_lock(&fake_lock);
	signals = times;
	pthread_mutex_unlock(&fake_lock);
}

void fake_kmod_at_pin(unsigned nth, void (*fn)(void))
{
	pthread_mutex_lock(&fake_lock);
	step.at = calls + nth;
	step.fn = fn;
	pthread_mutex_unlock(&fake_lock);
}

void fake_kmod_last_close(void)
{
	pthread_mutex_lock(&fake_lock);
	memset(area_lengths, 0, sizeof(area_lengths));
	pthread_mutex_unlock(&fake_lock);
}

/* Stores in the kernel's order: first the word, then the count. */
void fake_kmod_revoke(uint64_t addr)
{
	pthread_mutex_lock(&fake_lock);
	for (unsigned n = 1; n < AREA_REGIONS; n++) {
		if (addr - addresses[n] >= area_lengths[n])
			continue;
		__atomic_store_n(area_word(n), 0, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&area->revocations, 1, __ATOMIC_SEQ_CST);
	}
	pthread_mutex_unlock(&fake_lock);
}

/* ---- the calls ---- */

static uint32_t abi = PINDOWN_ABI;
static uint64_t lacking;

void fake_kmod_is_of_abi(uint32_t number, uint64_t lacks)
{
	abi = number;
	lacking = lacks;
}

static int call_version(struct pindown_version *call)
{
	call->abi = abi;
	call->granularity = PINDOWN_PAGE_SIZE;
	call->capabilities = PINDOWN_CAP_CALLBACK | PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_STATE |
			     PINDOWN_CAP_DMABUF;
	call->capabilities &= ~lacking;
	call->max_regions = AREA_REGIONS - 1;
	call->state_length = AREA_LENGTH;
	return 0;
}

/*
 * Call it with fake_lock held. Refuses what the driver refuses: anything but whole pages around one
 * allocation.
 */
static int refusal(const struct pindown_pin *call, unsigned at)
{
	const struct memory *m = fake_find(call->address);
	unsigned count;

	for (uint64_t page = 0; !m && page < PINDOWN_PAGE_SIZE; page += 256)
		m = fake_find(call->address + page);
	if (at >= fail_first && at - fail_first < fail_times)
		return fail_error;
	if (!m || !call->length || (call->address | call->length) % PINDOWN_PAGE_SIZE ||
	    call->address + call->length >=
		    /* the end of the allocation, rounded up to a page */
		    m->base + m->size + PINDOWN_PAGE_SIZE)
		return EINVAL;
	if (pinned(&count) + call->length <= space)
		return 0;
	if (call->flags & PINDOWN_PIN_NO_RECLAIM || !signals)
		return ENOSPC;
	signals--;
	return EINTR;
}

/* The uuid of a GPU begins with 1 more than this. */
static int device_at(uint64_t page)
{
	const struct memory *m = fake_find(page);

	return m ? m->device : 0;
}

static int pin(struct pindown_pin *call, unsigned at)
{
	int error = refusal(call, at);
	unsigned region = error ? 0 : area_pin(call);

	if (error)
		return error;
	addresses[region] = call->address;
	call->gpu_uuid[0] = (uint8_t)(1 + device_at(call->address));
	return region ? 0 : EMFILE;
}

static int call_pin(struct pindown_pin *call)
{
	void (*fn)(void) = NULL;
	unsigned at;
	int error;

	pthread_mutex_lock(&fake_lock);
	at = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	if (step.fn && at == step.at) {
		fn = step.fn;
		step.fn = NULL;
	}
	pthread_mutex_unlock(&fake_lock);
	if (fn)
		fn();
	pthread_mutex_lock(&fake_lock);
	error = pin(call, at);
	pthread_mutex_unlock(&fake_lock);
	return error;
}

static int call_unpin(const struct pindown_unpin *call)
{
	bool was_pinned;

	pthread_mutex_lock(&fake_lock);
	was_pinned = area_unpin(call->region);
	pthread_mutex_unlock(&fake_lock);
	return was_pinned ? 0 : ENOENT;
}

/* Any file will do, but not a pipe's end: that would be counted as an export of the driver. */
static int call_export(struct pindown_export *call)
{
	if (!area_lengths[call->region])
		return ENOENT;
	call->fd = memfd_create("dmabuf", MFD_CLOEXEC);
	call->length = area_lengths[call->region];
	return call->fd >= 0 ? 0 : EMFILE;
}

static int answer(unsigned long request, void *call)
{
	switch (request) {
	case PINDOWN_IOC_VERSION:
		return call_version(call);
	case PINDOWN_IOC_PIN:
		return call_pin(call);
	case PINDOWN_IOC_UNPIN:
		return call_unpin(call);
	case PINDOWN_IOC_EXPORT:
		return call_export(call);
	}
	return ENOTTY;
}

static long open_device(void)
{
	return is_loaded ? area_open() : -ENOENT;
}

bool play_syscall(long number, const long args[6], long *result)
{
	if (number == SYS_ioctl && _IOC_TYPE(args[1]) == PINDOWN_IOC_TYPE)
		*result = -answer((unsigned long)args[1], (void *)args[2]);
	else if (number == SYS_openat && strcmp((const char *)args[1], PINDOWN_DEVICE) == 0)
		*result = open_device();
	else
		return false;
	return true;
}
