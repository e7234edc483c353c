// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Pins: nvidia_p2p_get_pages() and the other calls.
 *
 * They are as strict as the real driver's and behave as badly: the callback runs inside the free
 * with the API lock held, and may run before get_pages has returned; put_pages finds only pins of
 * the calling process, and returns success when it finds none. Structures are freed as early as any
 * driver may free them, so that a use after free is caught.
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "gpu.h"

/* gpu.api_lock is held in both functions. */
static void table_free(struct sim_pin *pin)
{
	if (!pin->table)
		return;
	sim_table_delete(pin->table);
	pin->table = NULL;
	sim_count(SIM_GPU_TABLES, -1);
}

static int table_make(struct sim_pin *pin)
{
	pin->table = sim_table_new(pin);
	if (!pin->table)
		return -ENOMEM;
	sim_count(SIM_GPU_TABLES, 1);
	return 0;
}

/* Needs gpu.pins_lock. The pointer is only compared, never followed. */
struct sim_pin *sim_pin_of(struct nvidia_p2p_page_table *table)
{
	struct sim_pin *pin;

	hash_for_each_possible(gpu.pins, pin, live, (unsigned long)table) {
		if (pin->table == table)
			return pin;
	}
	return NULL;
}

bool sim_in_callback(void)
{
	return READ_ONCE(gpu.in_callback) == current;
}

/* ---- pins ---- */

/* Removes the pin from all lists and releases its space and memory. gpu.api_lock is held. */
static void pin_end(struct sim_pin *pin)
{
	mutex_lock(&gpu.pins_lock);
	sim_dma_end(pin);
	hash_del(&pin->live);
	table_free(pin);
	mutex_unlock(&gpu.pins_lock);
	list_del(&pin->of_mapping);
	sim_bar_give(pin->memory, pin->offset, pin->length, pin->apart);
	sim_memory_drop(pin->memory);
	sim_count(SIM_GPU_PINS, -1);
	if (pin->state == SIM_PIN_PERSISTENT)
		sim_count(SIM_GPU_PERSISTENT, -1);
}

static void pin_free(struct sim_pin *pin)
{
	put_pid(pin->tgid);
	kfree(pin);
}

int sim_table_free(struct nvidia_p2p_page_table *table)
{
	bool right;

	if (!table)
		return -EINVAL;
	right = sim_in_callback() && gpu.called->table == table;
	if (!right) {
		sim_misuse("free_page_table outside the callback, or of another pin's table");
		return -EINVAL;
	}
	mutex_lock(&gpu.pins_lock);
	hash_del(&gpu.called->live);
	table_free(gpu.called);
	mutex_unlock(&gpu.pins_lock);
	return 0;
}

static void pin_callback(struct sim_pin *pin)
{
	pin->state = SIM_PIN_CALLED;
	gpu.called = pin;
	WRITE_ONCE(gpu.in_callback, current);
	sim_gate_pass(SIM_GPU_GATE_CALLBACK);
	sim_delay(SIM_GPU_DELAY_CALLBACK);
	pin->callback(pin->data);
	sim_gate_pass(SIM_GPU_GATE_CALLED);
	WRITE_ONCE(gpu.in_callback, NULL);
	gpu.called = NULL;
	sim_count(SIM_GPU_CALLBACKS, 1);
	if (sim_has_own_api && pin->table)
		sim_misuse("a callback that did not call free_page_table");
}

void sim_pins_end(struct sim_mapping *mapping)
{
	struct sim_pin *pin;

	lockdep_assert_held(&gpu.api_lock);
	while ((pin = list_first_entry_or_null(&mapping->pins, struct sim_pin, of_mapping))) {
		list_del_init(&pin->of_mapping);
		if (pin->state == SIM_PIN_HALF) {
			/* get_pages will find it in this state, and free it. */
			pin->state = SIM_PIN_OVERTAKEN;
			continue;
		}
		pin_callback(pin);
		pin_end(pin);
		pin_free(pin);
	}
}

/* The first step of get_pages. gpu.api_lock is held. */
static int pin_pages(struct sim_pin *pin, u64 p2p_token, u32 va_space, bool persistent)
{
	struct sim_mapping *mapping = sim_mapping_of(p2p_token, va_space, pin->va, pin->length);
	int error;

	if (!mapping)
		return -EINVAL;
	pin->memory = mapping->memory;
	pin->offset = mapping->offset + (pin->va - mapping->va);
	pin->apart = persistent && !sim_bar_is_shared();
	error = sim_bar_take(pin->memory, pin->offset, pin->length, pin->apart);
	if (error)
		return error;
	error = table_make(pin);
	if (error) {
		sim_bar_give(pin->memory, pin->offset, pin->length, pin->apart);
		return error;
	}
	kref_get(&pin->memory->users);
	mutex_lock(&gpu.pins_lock);
	hash_add(gpu.pins, &pin->live, (unsigned long)pin->table);
	mutex_unlock(&gpu.pins_lock);
	sim_count(SIM_GPU_PINS, 1);
	if (persistent) {
		pin->state = SIM_PIN_PERSISTENT;
		sim_count(SIM_GPU_PERSISTENT, 1);
	} else {
		list_add_tail(&pin->of_mapping, &mapping->pins);
	}
	return 0;
}

/* The second step: from now on the callback may run, perhaps at once. */
static int pin_register(struct sim_pin *pin, void (*callback)(void *data), void *data)
{
	bool overtaken;

	mutex_lock(&gpu.api_lock);
	overtaken = pin->state == SIM_PIN_OVERTAKEN;
	if (overtaken) {
		pin_end(pin);
	} else {
		pin->callback = callback;
		pin->data = data;
		pin->state = SIM_PIN_ARMED;
	}
	mutex_unlock(&gpu.api_lock);
	if (!overtaken)
		return 0;
	sim_count(SIM_GPU_GETS_OVERTAKEN, 1);
	pin_free(pin);
	return -EINVAL;
}

static int pin_check(u64 va, u64 length, bool persistent, u32 flags)
{
	u64 end;

	if (!length || !IS_ALIGNED(va | length, SIM_GPU_PAGE) ||
	    check_add_overflow(va, length, &end))
		return -EINVAL;
	if (persistent && flags)
		return -EINVAL;
	if (sim_in_callback()) {
		sim_misuse("get_pages from a callback");
		return -EDEADLK;
	}
	if (sim_fails_now(SIM_GPU_FAIL_GET))
		return -(int)(sim_knob(SIM_GPU_FAIL_ERROR) ?: EIO);
	return 0;
}

static int pin_new(u64 p2p_token, u32 va_space, u64 va, u64 length,
		   struct nvidia_p2p_page_table **table, bool persistent, u32 flags,
		   struct sim_pin **new)
{
	struct sim_pin *pin;
	int error = pin_check(va, length, persistent, flags);

	if (error)
		return error;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	INIT_LIST_HEAD(&pin->of_mapping);
	INIT_LIST_HEAD(&pin->dma_mappings);
	pin->tgid = get_task_pid(current, PIDTYPE_TGID);
	pin->table = *table;
	pin->va = va;
	pin->length = length;
	pin->p2p_token = p2p_token;
	mutex_lock(&gpu.api_lock);
	error = pin_pages(pin, p2p_token, va_space, persistent);
	if (!error)
		*table = pin->table; /* before the callback can run, as in the real driver */
	mutex_unlock(&gpu.api_lock);
	if (error)
		pin_free(pin);
	else
		*new = pin;
	return error;
}

static int pin_arm(struct sim_pin *pin, void (*callback)(void *data), void *data)
{
	int error;

	sim_gate_pass(SIM_GPU_GATE_PINNED);
	sim_delay(SIM_GPU_DELAY_GET);
	error = pin_register(pin, callback, data);
	if (!error)
		sim_gate_pass(SIM_GPU_GATE_REGISTERED);
	return error;
}

/*
 * Like nvidia.ko: it allocates its page table first, 16 bytes for each page of the request, for
 * every process and every address; then it checks the address.
 */
static u64 host_bytes_of(u64 length)
{
	return (((length - 1) >> SIM_PAGE_SHIFT) + 1) * 16;
}

void sim_room_is_made(u64 length)
{
	sim_count_host_bytes(host_bytes_of(length));
	sim_gate_pass(SIM_GPU_GATE_ROOM);
}

void sim_room_is_left(u64 length)
{
	sim_count_host_bytes(-(long)host_bytes_of(length));
}

static void count_get(int error)
{
	sim_count(error ? SIM_GPU_GETS_FAILED : SIM_GPU_GETS, 1);
}

int sim_pin_get(u64 p2p_token, u32 va_space, u64 va, u64 length,
		struct nvidia_p2p_page_table **table, void (*callback)(void *data), void *data,
		bool persistent, u32 flags)
{
	struct sim_pin *pin;
	void *host_memory = NULL;
	int error = -EINVAL;

	if (table && length && (persistent || callback)) {
		*table = NULL;
		sim_gate_pass(SIM_GPU_GATE_ASKED);
		/*
		 * The kernel has little memory for a process that is being killed, and here it has
		 * none.
		 */
		if (!fatal_signal_pending(current))
			host_memory = __vmalloc(host_bytes_of(length), GFP_KERNEL | __GFP_NOWARN);
		error = -ENOMEM;
	}
	if (host_memory) {
		sim_room_is_made(length);
		error = pin_new(p2p_token, va_space, va, length, table, persistent, flags, &pin);
		if (!error && !persistent) {
			error = pin_arm(pin, callback, data);
			if (error)
				*table = NULL;
		}
		sim_room_is_left(length);
	}
	vfree(host_memory);
	count_get(error);
	return error;
}

int sim_pin_begin(u64 p2p_token, u32 va_space, u64 va, u64 length,
		  struct nvidia_p2p_page_table *table, bool persistent, u64 *addresses)
{
	struct sim_pin *pin;
	int error = pin_new(p2p_token, va_space, va, length, &table, persistent, 0, &pin);
	u64 at;

	if (error || persistent)
		count_get(error);
	if (error)
		return error;
	/* Nobody else ends it: its caller has not published it yet. */
	for (at = 0; at < length; at += SIM_GPU_PAGE)
		*addresses++ = sim_memory_page(pin->memory, pin->offset + at);
	return 0;
}

int sim_pin_arm(struct nvidia_p2p_page_table *table, void (*callback)(void *data), void *data)
{
	struct sim_pin *pin;
	int error = -EINVAL;

	mutex_lock(&gpu.pins_lock);
	pin = sim_pin_of(table);
	mutex_unlock(&gpu.pins_lock);
	/* It stays until this call, which its caller makes once, has read it. */
	if (pin)
		error = pin_arm(pin, callback, data);
	count_get(error);
	return error;
}

/*
 * Needs both locks. Must this put not end this pin? A process puts its own pins only. The callback
 * may have been faster, and the table, which its caller had read before, may be another process's
 * by now: then the driver finds nothing, and that is no misuse.
 */
static bool put_is_wrong(struct sim_pin *pin, u64 p2p_token, u64 va, bool persistent)
{
	if (!persistent && !p2p_token && pin->tgid != task_tgid(current))
		sim_count(SIM_GPU_PUTS_FOREIGN, 1);
	else if ((pin->state == SIM_PIN_PERSISTENT) != persistent)
		sim_misuse("put_pages of the other kind than the pin");
	else if (sim_has_own_api &&
		 (pin->state == SIM_PIN_HALF || pin->state == SIM_PIN_OVERTAKEN))
		sim_misuse("put_pages before get_pages has returned");
	else if (!persistent && (pin->va != va || pin->p2p_token != p2p_token))
		sim_misuse("put_pages with another address or token than the pin");
	else
		return false;
	return true;
}

bool sim_pin_end(u64 p2p_token, u64 va, struct nvidia_p2p_page_table *table, bool persistent)
{
	bool wrong, overtaken = false;
	struct sim_pin *pin;

	if (sim_in_callback()) {
		sim_misuse("put_pages from a callback");
		return false;
	}
	sim_gate_pass(SIM_GPU_GATE_PUT);
	sim_delay(SIM_GPU_DELAY_PUT);
	mutex_lock(&gpu.api_lock);
	mutex_lock(&gpu.pins_lock);
	pin = sim_pin_of(table);
	wrong = pin && put_is_wrong(pin, p2p_token, va, persistent);
	mutex_unlock(&gpu.pins_lock);
	if (pin && !wrong) {
		overtaken = pin->state == SIM_PIN_OVERTAKEN;
		pin_end(pin);
	}
	mutex_unlock(&gpu.api_lock);
	if (pin && !wrong) {
		sim_count(SIM_GPU_PUTS, 1);
		pin_free(pin);
	} else if (!pin && persistent) {
		sim_misuse("put_pages_persistent of a page table that is not there");
	} else if (!pin) {
		sim_count(SIM_GPU_PUTS_LATE, 1);
	}
	return pin && !wrong && !overtaken;
}

int sim_pin_put(u64 p2p_token, u64 va, struct nvidia_p2p_page_table *table, bool persistent)
{
	if (!table)
		return 0;
	if (sim_in_callback()) {
		sim_misuse("put_pages from a callback");
		return -EDEADLK;
	}
	/* The driver returns success in any case. */
	sim_pin_end(p2p_token, va, table, persistent);
	return 0;
}
