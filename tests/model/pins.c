/* SPDX-License-Identifier: MIT */
/* Replaces the cache's backends by one that keeps a list of its pins, and fails on demand. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/backend/backend.h"
#include "model.h"

#define MAX_PINS 1024

static struct pin {
	uint64_t length;
	int device;
	bool open;
} pins[MAX_PINS];

struct script script;
uint64_t pin_space[DEVICES], pinned_bytes_of[DEVICES];
unsigned pins_open;

void pins_reset(void)
{
	memset(pins, 0, sizeof(pins));
	memset(pinned_bytes_of, 0, sizeof(pinned_bytes_of));
	for (unsigned d = 0; d < DEVICES; d++)
		pin_space[d] = UINT64_MAX;
	script = (struct script){0};
	pins_open = 0;
}

static enum pin_fate fate_of_next(void)
{
	if (!script.times)
		return PIN_WORKS;
	script.times--;
	return script.fate;
}

/* The pin that is being tried, with data for the model. */
static int refuse(int result, int error, int device, int *driver_error)
{
	*driver_error = error;
	attempt.refused = result;
	if (result == PINDOWN_ERR_NO_SPACE) {
		attempt.permits = 1;
		attempt.permit_device = error == 2 ? device : -1;
	}
	return result;
}

uint64_t free_space(int device)
{
	uint64_t space, taken;

	if (device < 0)
		return 0;
	space = pin_space[device];
	taken = pinned_bytes_of[device];
	return space > taken ? (space - taken) & -(uint64_t)PINDOWN_PAGE_SIZE : 0;
}

/* The sum of idle and free bytes. The pin was refused, so at least a part of it does not fit. */
static bool is_hopeless(const struct pdn_pin *pin)
{
	uint64_t idle = idle_bytes(pin->device);
	uint64_t free = free_space(pin->device);

	if (free >= pin->length)
		free = pin->length - PINDOWN_PAGE_SIZE;
	return idle < pin->length && (!idle || idle + free < pin->length);
}

static int refuse_space(const struct pdn_pin *pin, int *driver_error)
{
	attempt.may_be_hopeless = !attempt.evicted && is_hopeless(pin);
	attempt.is_hopeless = attempt.may_be_hopeless && !attempt.gave;
	attempt.was_full = true;
	return refuse(PINDOWN_ERR_NO_SPACE, 2, pin->device, driver_error);
}

static void enter(struct pdn_pin *pin)
{
	unsigned n = 1;

	while (n < MAX_PINS && pins[n].open)
		n++;
	AGREE(n < MAX_PINS, "more than %d pins are open", MAX_PINS);
	pins[n] = (struct pin){.length = pin->length, .device = pin->device, .open = true};
	pin->handle = n;
	pinned_bytes_of[pin->device] += pin->length;
	pins_open++;
}

static void swap(uint64_t addr)
{
	struct memory *m = memory_at(addr);

	if (m)
		m->id = memory_new_id();
}

static bool has_space(const struct pdn_pin *pin)
{
	return pinned_bytes_of[pin->device] + pin->length <= pin_space[pin->device];
}

/*
 * If the idle regions are not enough by themselves, or a part of the memory might be pinned, the
 * cache tries how much could be pinned now. A refusal by the script is not such a try.
 */
static uint32_t trial;

static int try(struct pdn_pin *pin, int *driver_error)
{
	AGREE(attempt.refused == PINDOWN_ERR_NO_SPACE && attempt.permit_device == pin->device,
	      "a pin of a part, and the device has not refused the whole");
	AGREE(attempt_may_be_window() ||
		      (idle_bytes(pin->device) && idle_bytes(pin->device) < attempt.bytes),
	      "a pin of a part, although its result is known");
	AGREE(pin->length < attempt.bytes && pin->base == attempt.pin_begin,
	      "another part is tried");
	if (!has_space(pin)) {
		*driver_error = 2;
		return PINDOWN_ERR_NO_SPACE;
	}
	enter(pin);
	trial = pin->handle;
	return PINDOWN_OK;
}

/* A pin has whole pages, of which its memory may not have all at either end. */
static void reach(const struct pdn_pin *pin)
{
	const struct memory *m = memory_at(attempt.addr);
	uint64_t begin = pin->base, end = pin->base + pin->length;

	if (m && m->kind == LINEAR) {
		begin = begin < m->base ? m->base : begin;
		end = end > m->end ? m->end : end;
	}
	if (m && m->kind != POOL)
		attempt_reaches(begin, end);
}

static int do_pin(struct pdn_pin *pin, void *context, int *driver_error)
{
	enum pin_fate fate;

	(void)context;
	*driver_error = 0;
	AGREE(attempt.on, "a pin without a get");
	AGREE(!attempt.would_wait, "a pin after a lost one, and the get was not to wait");
	if (pin->trial)
		return try(pin, driver_error);
	fate = fate_of_next();
	if (pin->base != attempt.pin_begin || pin->length != attempt.bytes || !attempt.tried)
		reach(pin);
	AGREE(attempt.bytes == pin->length, "0x%jx bytes are pinned; the model: 0x%jx",
	      (uintmax_t)pin->length, (uintmax_t)attempt.bytes);
	AGREE(attempt.tried || fits(attempt.bytes), "a pin above the budget");
	if (!attempt.tried)
		attempt.evicted = attempt.gone = 0;
	attempt.tried = true;
	attempt.permits = 0;
	attempt.gives_way = attempt.window_gives_way = false;
	attempt.refused = 0;
	attempt.is_hopeless = attempt.may_be_hopeless = false;
	if (fate == PIN_NO_SPACE || !has_space(pin))
		return refuse_space(pin, driver_error);
	if (fate == PIN_NO_RESOURCES)
		return refuse(PINDOWN_ERR_NO_SPACE, 304, -1, driver_error);
	if (fate == PIN_REFUSED)
		return refuse(PINDOWN_ERR_DRIVER, 999, -1, driver_error);
	enter(pin);
	attempt.pinned = true;
	if (fate == PIN_SWAPPED || fate == PIN_REPLACED) {
		attempt.pinned = attempt.tried = false; /* it must begin again */
		attempt.failed_wide = true; /* and after several times it reaches less far */
		attempt.lost_pin = pin->handle;
		attempt.would_wait = attempt.nowait;
		counts.lost_races++;
		if (fate == PIN_SWAPPED)
			swap(attempt.begin);
		else
			replace_memory(attempt.begin);
		attempt_describe();
	}
	return PINDOWN_OK;
}

static void close_pin(struct pdn_pin *pin)
{
	struct pin *p = &pins[pin->handle];

	AGREE(pin->handle < MAX_PINS && p->open,
	      "memory is unpinned that is not pinned: a double unpin");
	AGREE(p->length == pin->length && p->device == pin->device, "another pin than was made");
	p->open = false;
	pinned_bytes_of[p->device] -= p->length;
	pins_open--;
}

static void do_unpin(struct pdn_pin *pin)
{
	close_pin(pin);
	if (pin->handle == trial)
		trial = 0;
	else
		saw_unpin(pin->handle);
}

/* The cache asks this of every record, more than once: it may be of a pin that has ended. */
static void abandon_pin(struct pdn_pin *pin)
{
	const struct pin *p = &pins[pin->handle];

	if (pin->handle < MAX_PINS && p->open && p->length == pin->length &&
	    p->device == pin->device)
		close_pin(pin);
}

static const struct pdn_backend listed = {
	.name = "listed",
	.pin = do_pin,
	.unpin = do_unpin,
	.abandon = abandon_pin,
};

void pins_abandoned(void)
{
	AGREE(pins_open == 0, "a forked child has inherited %u pins", pins_open);
}

/* ---- the functions of cache/backend/backend.c ------------------------------------------------ */

const struct pdn_backend *pdn_backend_for(int device)
{
	return device >= 0 && device < DEVICES ? &listed : NULL;
}

const struct pdn_backend *pdn_backend_chosen(int device)
{
	return pdn_backend_for(device);
}

const struct pdn_backend *pdn_backend_of(const struct pdn_pin *pin)
{
	return pdn_backend_for(pin->device);
}

/* There is one backend for all pins, and each pin is one pin of the kernel. */
const struct pdn_backend *pdn_backend_instead_of(const struct pdn_backend *backend)
{
	(void)backend;
	return NULL;
}

bool pdn_kmod_mappings_stand(const struct pdn_pin *pin, uint32_t *word_value)
{
	(void)pin, (void)word_value;
	return false;
}

const char *pdn_backend_name(void)
{
	return listed.name;
}

bool pdn_backend_pins_take_descriptors(void)
{
	return false;
}

void pdn_backend_kmod_fork_child(bool is_shared)
{
	(void)is_shared;
}

/* There is no device here, and nobody asks for it: see cache/trust/quiesce.c. */
struct pdn_kmod_left pdn_backend_kmod_leave(void)
{
	return (struct pdn_kmod_left){.fd = -1};
}

void pdn_backend_kmod_close(const struct pdn_kmod_left *left)
{
	(void)left;
}

bool pdn_backend_kmod_is_open(void)
{
	return false;
}
