/* SPDX-License-Identifier: MIT */
/*
 * Pinning through pindown.ko. A pin with callback (the default) is revoked by the kernel if its
 * memory is freed unnoticed: its word in the state area changes before the driver's free continues,
 * and the next hit sees that. A persistent pin keeps the memory instead, as a dma-buf does.
 *
 * The NVIDIA driver pins no range that spans several allocations. So memory that was mapped side by
 * side (cuMemMap) has one kernel pin for each mapping, all made and ended together.
 *
 * One descriptor of /dev/pindown serves the process. The state area stays mapped as long as the
 * process lives, because it is read without a lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "cache/backend/backend.h"
#include "cache/backend/kmod_reclaim.h"
#include "cache/backend/revocation.h"
#include "cache/base/memory/address_space.h"
#include "cache/base/environment/config.h"
#include "cache/base/process/descriptor.h"
#include "cache/base/process/fork_gate.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/process.h"
#include "cache/base/process/system.h"
#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/pindown.h"

#include "kmod/pindown_ioctl.h"

/*
 * Changed under PDN_LOCK_KMOD. Read without it once `fd` was found open (descriptor()): the other
 * members no longer change then.
 */
static struct {
	int fd; /* -1: not open; stored last, with release */
	bool asked;
	uint64_t identity;
	uint64_t capabilities;
	uint32_t *area;
	size_t area_length;
} device = {.fd = -1};

/* Words of the area's head, by number. */
#define WORD_OF_ABI	    (offsetof(struct pindown_state, abi) / sizeof(uint32_t))
#define WORD_OF_REVOCATIONS (offsetof(struct pindown_state, revocations) / sizeof(uint32_t))

_Static_assert(WORD_OF_ABI == 0, "pins that can't be revoked have word 0, which never changes");

/* Acquire: pairs with the release in use_device(). */
static int descriptor(void)
{
	return __atomic_load_n(&device.fd, __ATOMIC_ACQUIRE);
}

static bool wants_persistent(void)
{
	return pdn_config()->backend == PDN_BACKEND_KMOD_PERSISTENT;
}

static bool can_pin(const struct pindown_version *version)
{
	uint64_t needed = PINDOWN_CAP_STATE;

	needed |= wants_persistent() ? PINDOWN_CAP_PERSISTENT : PINDOWN_CAP_CALLBACK;
	return version->abi == PINDOWN_ABI && version->granularity == PINDOWN_PAGE_SIZE &&
	       (version->capabilities & needed) == needed && version->state_length >= 4096;
}

static bool use_device(int fd)
{
	struct pindown_version version = {.size = sizeof(version)};
	long area;

	if (pdn_sys(SYS_ioctl, fd, PINDOWN_IOC_VERSION, &version) != 0 || !can_pin(&version))
		return false;
	area = pdn_sys(SYS_mmap, NULL, version.state_length, PROT_READ, MAP_SHARED, fd,
		       PINDOWN_MAP_STATE);
	if (area < 0)
		return false;
	fd = pdn_descriptor_move_up(fd);
	device.identity = pdn_descriptor_identity(fd);
	device.capabilities = version.capabilities;
	device.area = (uint32_t *)area;
	device.area_length = version.state_length;
	__atomic_store_n(&device.fd, fd, __ATOMIC_RELEASE);
	return true;
}

/* Is the module loaded, and can it pin as configured? Asked once. */
static bool open_once(void)
{
	int fd;

	pdn_descriptor_begin();
	pdn_lock_one(PDN_LOCK_KMOD);
	if (!device.asked) {
		device.asked = true;
		fd = pdn_sys_open(PINDOWN_DEVICE, O_RDWR);
		if (fd >= 0 && !use_device(fd))
			pdn_descriptor_close(fd);
		/*
		 * For pdn_revocation_word(). Word 0 is the ABI's number, constant as long as the
		 * area lives.
		 */
		if (descriptor() >= 0)
			__atomic_store_n(&pdn_revocation_words, device.area, __ATOMIC_RELEASE);
	}
	pdn_unlock_one(PDN_LOCK_KMOD);
	pdn_descriptor_end();
	return descriptor() >= 0;
}

/*
 * The program has closed the descriptor, or this is a child, whose copy is closed. The mapped area
 * keeps the kernel's side open, and with it pins that can no longer be ended; unmapping it ends
 * them all, once no process has it mapped. At the same moment an area takes its place in which each
 * word of such a pin says revoked: another thread, or in a child what the fork interrupted, may be
 * about to read it. Without memory for that, the old area stays.
 */
static void replace_area(const uint32_t *area)
{
	size_t length = device.area_length; /* the same in each use of the device */
	uint32_t *words = pdn_map(length, PROT_READ | PROT_WRITE);

	if (!words)
		return;
	words[WORD_OF_ABI] = area[WORD_OF_ABI]; /* other backends' pins stay valid */
	words[WORD_OF_REVOCATIONS] = area[WORD_OF_REVOCATIONS] + (1u << 31);
	pdn_sys(SYS_mremap, words, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, area);
}

static void give_device_up(void)
{
	static bool said;

	pdn_log_once(&said, PDN_LOG_WARN,
		     "the program has closed the descriptor of " PINDOWN_DEVICE
		     ": all regions are unpinned, and nothing more is pinned");
	pdn_lock_one(PDN_LOCK_KMOD);
	if (device.fd >= 0) /* else another thread has done it */
		replace_area(device.area);
	__atomic_store_n(&device.fd, -1, __ATOMIC_RELAXED); /* publishes nothing else */
	pdn_unlock_one(PDN_LOCK_KMOD);
}

bool pdn_backend_kmod_is_open(void)
{
	return descriptor() >= 0;
}

struct pdn_kmod_left pdn_backend_kmod_leave(void)
{
	struct pdn_kmod_left left;

	pdn_lock_one(PDN_LOCK_KMOD);
	left = (struct pdn_kmod_left){device.fd, device.identity, device.area};
	__atomic_store_n(&device.fd, -1, __ATOMIC_RELAXED);
	device.asked &= left.fd < 0;
	pdn_unlock_one(PDN_LOCK_KMOD);
	return left;
}

void pdn_backend_kmod_close(const struct pdn_kmod_left *left)
{
	if (left->fd < 0)
		return;
	if (pdn_descriptor_is(left->fd, left->identity))
		pdn_descriptor_close(left->fd);
	replace_area(left->area);
}

static bool has_device(void)
{
	int fd = descriptor();

	if (fd < 0) /* the first pin in a forked child, or given up already */
		return open_once();
	if (pdn_descriptor_is(fd, device.identity))
		return true;
	give_device_up();
	return false;
}

/* 0, or an errno. */
static int call_device_once(unsigned long request, void *argument)
{
	return (int)-pdn_sys(SYS_ioctl, descriptor(), request, argument);
}

static int call_device(unsigned long request, void *argument)
{
	int error;

	do
		error = call_device_once(request, argument);
	while (error == EINTR);
	return error;
}

/* Translates the module's errno to a pindown_result, and to a CUresult if the driver failed. */
static int result_of(int error, int *driver_error)
{
	*driver_error = CUDA_SUCCESS;
	switch (error) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG: /* more than any device here has, even when all of it is free */
		*driver_error = CUDA_ERROR_OUT_OF_MEMORY; /* of the device: evict its regions */
		return PINDOWN_ERR_NO_SPACE;
	case EMFILE: /* the module's max_regions is reached, or no descriptor is left */
	case ENFILE:
		return PINDOWN_ERR_NO_SPACE;
	case ENOMEM:
		return PINDOWN_ERR_NO_MEMORY;
	case ENODEV:
		return PINDOWN_ERR_NO_BACKEND;
	case EOPNOTSUPP:
		*driver_error = CUDA_ERROR_NOT_SUPPORTED;
		return PINDOWN_ERR_DRIVER;
	default: /* EINVAL, ESTALE: the memory can't, or can no longer, be pinned */
		*driver_error = CUDA_ERROR_INVALID_VALUE;
		return PINDOWN_ERR_DRIVER;
	}
}

/* ---- several mappings ---------------------------------------------------------------------- */

/*
 * One kernel pin of a pin over several mappings, indexed by the kernel's number: the number of the
 * next one (0: none), and its word. Written while the pin is being made, before any other thread
 * knows of it.
 */
struct part {
	uint32_t next, word;
};
static struct part *parts; /* as many as there are words; NULL until first needed */

static bool have_parts(void)
{
	size_t bytes = device.area_length / sizeof(uint32_t) * sizeof(*parts);
	bool have;

	pdn_lock_one(PDN_LOCK_KMOD);
	if (!parts)
		parts = pdn_allocate(bytes);
	have = parts != NULL;
	pdn_unlock_one(PDN_LOCK_KMOD);
	return have;
}

bool pdn_kmod_mappings_stand(const struct pdn_pin *pin, uint32_t *word_value)
{
	/* Read first: the kernel clears the word of a pin and then raises this count. */
	*word_value = pdn_revocation_word(WORD_OF_REVOCATIONS);
	if (!pin->spans || !pin->handle)
		return false;
	for (uint32_t n = pin->handle; n; n = parts[n].next)
		if (!pdn_revocation_word(parts[n].word))
			return false;
	return true;
}

/* ---- pins ----------------------------------------------------------------------------------- */

static void unpin_all(const struct pdn_pin *pin)
{
	for (uint32_t n = pin->handle, next; n; n = next) {
		struct pindown_unpin what = {.size = sizeof(what), .region = n};

		/* Read it before the kernel can assign the number to another pin. */
		next = pin->spans ? parts[n].next : 0;
		call_device(PINDOWN_IOC_UNPIN, &what);
	}
}

/*
 * A signal ends the wait for the space of other processes, and the next wait is another wish, for
 * which they unpin more. So there are two at most, however many signals come. The last try asks
 * nobody, and takes what they have given meanwhile. 0, or an errno.
 */
static int call_pin(struct pindown_pin *what)
{
	for (unsigned wishes = 0;; wishes++) {
		int error = call_device_once(PINDOWN_IOC_PIN, what);

		if (error != EINTR)
			return error;
		if (wishes == 2)
			return ENOSPC;
		if (wishes == 1)
			what->flags |= PINDOWN_PIN_NO_RECLAIM;
	}
}

/* 0, or an errno. */
static int pin_range(uint64_t begin, uint64_t end, uint32_t flags, struct pindown_pin *what)
{
	*what = (struct pindown_pin){
		.size = sizeof(*what),
		.flags = flags | (wants_persistent() ? PINDOWN_PIN_PERSISTENT : 0),
		.address = begin,
		.length = end - begin,
	};
	return call_pin(what);
}

static int pin_whole(struct pdn_pin *pin, uint32_t flags)
{
	struct pindown_pin what;
	int error = pin_range(pin->base, pin->base + pin->length, flags, &what);

	if (error)
		return error;
	pin->handle = what.region;
	pin->word = what.state_offset / sizeof(uint32_t);
	pin->word_value = what.state_value;
	pdn_kmod_note_gpu(pin->device, what.gpu_uuid);
	return 0;
}

/* Pins all or none. The word is the count of revocations, as of before the first pin. */
static int pin_each(struct pdn_pin *pin, uint32_t flags)
{
	uint64_t at = pin->base, all = pin->base + pin->length, end;
	uint32_t revocations = pdn_revocation_word(WORD_OF_REVOCATIONS), *link = &pin->handle;
	struct pindown_pin what;
	int error = have_parts() ? 0 : ENOMEM;

	pin->handle = 0;
	for (; at < all && !error; at = end) {
		end = pdn_driver_mapping_end(at, pin->device);
		if (end > all)
			end = all; /* a trial of a part, see bytes_that_fit() in pin_memory.c */
		error = end ? pin_range(at, end, flags, &what) : EINVAL;
		if (error)
			break;
		parts[what.region].next = 0;
		parts[what.region].word = what.state_offset / sizeof(uint32_t);
		*link = what.region;
		link = &parts[what.region].next;
	}
	if (error) {
		unpin_all(pin);
		pin->handle = 0;
		return error;
	}
	pdn_kmod_note_gpu(pin->device, what.gpu_uuid);
	pin->word = WORD_OF_REVOCATIONS;
	pin->word_value = revocations;
	return 0;
}

static int pin_with(struct pdn_pin *pin, uint32_t flags, int *driver_error)
{
	int result = PINDOWN_ERR_NO_BACKEND, error;

	if (has_device()) {
		error = pin->spans ? pin_each(pin, flags) : pin_whole(pin, flags);
		result = error ? result_of(error, driver_error) : PINDOWN_OK;
	}
	if (result != PINDOWN_OK)
		return result;
	*driver_error = CUDA_SUCCESS;
	pin->fd = -1;
	if (device.capabilities & PINDOWN_CAP_RECLAIM)
		pdn_kmod_answer_wishes(descriptor(), device.identity,
				       (const struct pindown_state *)(void *)device.area);
	return PINDOWN_OK;
}

/* Asks no other process: the cache evicts its own idle regions first. */
static int kmod_pin(struct pdn_pin *pin, void *context, int *driver_error)
{
	(void)context;
	return pin_with(pin, PINDOWN_PIN_NO_RECLAIM, driver_error);
}

static int kmod_pin_at_last(struct pdn_pin *pin, void *context, int *driver_error)
{
	(void)context;
	return pin_with(pin, 0, driver_error);
}

/* The module exports only a single kernel pin; the driver exports several mappings as one. */
static int open_drivers_dmabuf(struct pdn_pin *pin, void *context, int *driver_error)
{
	int result = pdn_backend_dmabuf.open_dmabuf(pin, context, driver_error);

	return result == PINDOWN_ERR_DRIVER && *driver_error == CUDA_ERROR_NOT_SUPPORTED
		       ? PINDOWN_ERR_NO_DMABUF
		       : result;
}

static int open_dmabuf(struct pdn_pin *pin, void *context, int *driver_error)
{
	struct pindown_export what = {.size = sizeof(what), .region = pin->handle, .fd = -1};
	int error;

	if (!has_device())
		return PINDOWN_ERR_NO_BACKEND;
	if (pin->spans)
		return open_drivers_dmabuf(pin, context, driver_error);
	error = call_device(PINDOWN_IOC_EXPORT, &what);
	pin->pcie = false; /* the module says how, and at the pin */
	if (error)
		return error == EOPNOTSUPP ? PINDOWN_ERR_NO_DMABUF : result_of(error, driver_error);
	pdn_pin_take_dmabuf(pin, what.fd);
	return PINDOWN_OK;
}

static void kmod_unpin(struct pdn_pin *pin)
{
	pdn_pin_close_dmabuf(pin);
	if (has_device())
		unpin_all(pin);
}

void pdn_backend_kmod_fork_child(bool is_shared)
{
	if (device.fd < 0)
		return;
	if (!is_shared && pdn_descriptor_is(device.fd, device.identity))
		pdn_descriptor_close(device.fd);
	replace_area(device.area);
	pdn_revocation_words = &pdn_no_revocation_word; /* the parent's words say nothing here */
	device.fd = -1;
	device.area = NULL;
}

static bool kmod_works_on(int ordinal)
{
	(void)ordinal;
	return open_once();
}

const struct pdn_backend pdn_backend_kmod = {
	.name = "kmod",
	.works_on = kmod_works_on,
	.pin = kmod_pin,
	.pin_at_last = kmod_pin_at_last,
	.unpin = kmod_unpin,
	/* The device's descriptor serves only the parent; the pins end with the parent. */
	.abandon = pdn_pin_close_dmabuf,
	.close_dmabuf = pdn_pin_close_dmabuf,
	.open_dmabuf = open_dmabuf,
	.has_dmabuf = pdn_pin_has_dmabuf,
};
