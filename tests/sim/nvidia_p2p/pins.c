// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Pins: what nvidia_p2p_get_pages() and its kin do, whatever the signatures.
 *
 * As strict as the real driver and as nasty: the callback runs inside the free with the API lock
 * held, may run before get_pages has returned, and put_pages finds only pins of the calling
 * process, answering success when it finds none. Structures are freed as early as any driver may
 * free them, so that who uses one for too long is caught.
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "gpu.h"

static u8 gpu_uuid[16] = "pindown sim GPU";

/* ---- page tables ---- */

#define TABLE_VERSION_1 0x00010002 /* up to driver 575; then 0x00020000 */

static u32 table_major(void)
{
	u32 asked = sim_knob(SIM_GPU_TABLE_MAJOR);

	return asked ? asked : gpu.table_major;
}

/* A table of the old version ends where it ended then. */
static size_t table_size(u32 major)
{
	return major == 1 ? offsetof(struct nvidia_p2p_page_table, flags)
			  : sizeof(struct nvidia_p2p_page_table);
}

/* gpu.api_lock is held, in both. */
static void table_free(struct sim_pin *pin)
{
	if (!pin->table)
		return;
	kvfree(pin->table->pages);
	kvfree(pin->page);
	if (sim_knob(SIM_GPU_REUSE_TABLES) && !gpu.spare_table)
		gpu.spare_table = pin->table;
	else
		kfree(pin->table);
	pin->table = NULL;
	sim_count(SIM_GPU_TABLES, -1);
}

static int table_make(struct sim_pin *pin)
{
	u32 i, count = pin->length >> SIM_PAGE_SHIFT, major = table_major();
	bool reuse = sim_knob(SIM_GPU_REUSE_TABLES);
	struct nvidia_p2p_page_table *table;

	if (reuse && gpu.spare_table) {
		table = gpu.spare_table;
		gpu.spare_table = NULL;
		memset(table, 0, sizeof(*table));
	} else {
		table = kzalloc(reuse ? sizeof(*table) : table_size(major), GFP_KERNEL);
	}
	if (!table)
		return -ENOMEM;
	table->pages = kvcalloc(count, sizeof(*table->pages), GFP_KERNEL);
	pin->page = kvcalloc(count, sizeof(*pin->page), GFP_KERNEL);
	pin->table = table;
	sim_count(SIM_GPU_TABLES, 1);
	if (!table->pages || !pin->page) {
		table_free(pin);
		return -ENOMEM;
	}
	table->version = major == 1 ? TABLE_VERSION_1 : major << 16;
	table->page_size = NVIDIA_P2P_PAGE_SIZE_64KB;
	table->entries = count;
	table->gpu_uuid = gpu_uuid;
	for (i = 0; i < count; i++)
		table->pages[i] = &pin->page[i];
	return 0;
}

/* Needs gpu.pins_lock. The pointer is compared, never followed. */
static struct sim_pin *pin_of(struct nvidia_p2p_page_table *table)
{
	struct sim_pin *pin;

	hash_for_each_possible(gpu.pins, pin, live, (unsigned long)table)
	{
		if (pin->table == table)
			return pin;
	}
	return NULL;
}

static bool in_callback(void)
{
	return READ_ONCE(gpu.in_callback) == current;
}

/* ---- DMA mappings ---- */

static void dma_unmap(struct sim_dma *dma, u32 count)
{
	while (count--)
		dma_unmap_resource(dma->peer, dma->mapping.dma_addresses[count], SIM_GPU_PAGE,
				   dma->direction, 0);
}

static void dma_free(struct sim_dma *dma)
{
	dma_unmap(dma, dma->mapping.entries);
	list_del(&dma->of_pin);
	kvfree(dma->mapping.dma_addresses);
	kfree(dma);
	sim_count(SIM_GPU_DMA_MAPPINGS, -1);
}

static int dma_map(struct sim_dma *dma, const struct sim_pin *pin)
{
	u32 i, count = pin->length >> SIM_PAGE_SHIFT;
	u64 *address;

	address = dma->mapping.dma_addresses = kvcalloc(count, sizeof(*address), GFP_KERNEL);
	if (!address)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		address[i] = dma_map_resource(dma->peer, pin->page[i].physical_address,
					      SIM_GPU_PAGE, dma->direction, 0);
		if (dma_mapping_error(dma->peer, address[i])) {
			dma_unmap(dma, i);
			kvfree(address);
			return -EIO;
		}
	}
	dma->mapping.version = NVIDIA_P2P_DMA_MAPPING_VERSION;
	dma->mapping.page_size_type = NVIDIA_P2P_PAGE_SIZE_64KB;
	dma->mapping.entries = count;
	dma->mapping.pci_dev = dev_is_pci(dma->peer) ? to_pci_dev(dma->peer) : NULL;
	return 0;
}

int sim_dma_map(struct device *peer, struct nvidia_p2p_page_table *table,
		struct nvidia_p2p_dma_mapping **mapping, enum dma_data_direction direction)
{
	struct sim_dma *dma;
	struct sim_pin *pin;
	int error;

	if (!peer || !table || !mapping)
		return -EINVAL;
	*mapping = NULL;
	if (in_callback()) {
		sim_misuse("dma_map_pages from a callback");
		return -EDEADLK;
	}
	if (sim_fails_now(SIM_GPU_FAIL_MAP))
		return -(int)(sim_knob(SIM_GPU_FAIL_ERROR) ?: EIO);
	dma = kzalloc(sizeof(*dma), GFP_KERNEL);
	if (!dma)
		return -ENOMEM;
	dma->peer = peer;
	dma->direction = direction;
	mutex_lock(&gpu.api_lock);
	mutex_lock(&gpu.pins_lock);
	pin = pin_of(table);
	if (!pin) {
		sim_misuse("dma_map_pages of a page table that is not there");
		error = -EINVAL;
	} else if (pin->forced_bar1) {
		error = -ENOTSUPP;
	} else {
		error = dma_map(dma, pin);
	}
	if (!error) {
		list_add_tail(&dma->of_pin, &pin->dma_mappings);
		*mapping = &dma->mapping;
		sim_count(SIM_GPU_DMA_MAPPINGS, 1);
	}
	mutex_unlock(&gpu.pins_lock);
	mutex_unlock(&gpu.api_lock);
	if (error)
		kfree(dma);
	return error;
}

/* Needs gpu.pins_lock. */
static struct sim_dma *dma_of(struct sim_pin *pin, struct nvidia_p2p_dma_mapping *mapping)
{
	struct sim_dma *dma;

	list_for_each_entry(dma, &pin->dma_mappings, of_pin)
	{
		if (&dma->mapping == mapping)
			return dma;
	}
	return NULL;
}

int sim_dma_unmap(struct device *peer, struct nvidia_p2p_page_table *table,
		  struct nvidia_p2p_dma_mapping *mapping)
{
	struct sim_dma *dma;
	struct sim_pin *pin;

	if (!peer || !table || !mapping)
		return -EINVAL;
	if (in_callback()) {
		sim_misuse("dma_unmap_pages from a callback");
		return -EDEADLK;
	}
	mutex_lock(&gpu.pins_lock);
	pin = pin_of(table);
	dma = pin ? dma_of(pin, mapping) : NULL;
	if (!pin)
		sim_misuse("dma_unmap_pages with a page table that is not there");
	else if (!dma)
		sim_misuse("dma_unmap_pages of a mapping that is not there");
	else if (dma->peer != peer)
		sim_misuse("dma_unmap_pages for another device than it was mapped for");
	else
		dma_free(dma);
	mutex_unlock(&gpu.pins_lock);
	return 0;
}

/* What a callback may call, for the pin that it is called for. */
int sim_dma_free(struct nvidia_p2p_dma_mapping *mapping)
{
	struct sim_dma *dma;

	if (!mapping)
		return -EINVAL;
	if (!in_callback()) {
		sim_misuse("free_dma_mapping outside the callback");
		return -EINVAL;
	}
	mutex_lock(&gpu.pins_lock);
	dma = dma_of(gpu.called, mapping);
	if (dma)
		dma_free(dma);
	else
		sim_misuse("free_dma_mapping of a mapping that is not of this callback's pin");
	mutex_unlock(&gpu.pins_lock);
	return dma ? 0 : -EINVAL;
}

/* ---- pins ---- */

/* Takes the pin out of all lists and gives its space and memory back. gpu.api_lock is held. */
static void pin_end(struct sim_pin *pin)
{
	struct sim_dma *dma, *next;

	mutex_lock(&gpu.pins_lock);
	if (!list_empty(&pin->dma_mappings))
		sim_misuse("a pin ends with DMA mappings left");
	list_for_each_entry_safe(dma, next, &pin->dma_mappings, of_pin) dma_free(dma);
	hash_del(&pin->live);
	table_free(pin);
	mutex_unlock(&gpu.pins_lock);
	list_del(&pin->of_mapping);
	sim_bar_give(pin->memory, pin->offset, pin->length);
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
	right = in_callback() && gpu.called->table == table;
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
	if (pin->table)
		sim_misuse("a callback that did not call free_page_table");
}

void sim_pins_end(struct sim_mapping *mapping)
{
	struct sim_pin *pin;

	lockdep_assert_held(&gpu.api_lock);
	while ((pin = list_first_entry_or_null(&mapping->pins, struct sim_pin, of_mapping))) {
		list_del_init(&pin->of_mapping);
		if (pin->state == SIM_PIN_HALF) {
			/* get_pages will find it so, and free it. */
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
	u32 i, count = pin->length >> SIM_PAGE_SHIFT;
	int error;

	if (!mapping)
		return -EINVAL;
	pin->memory = mapping->memory;
	pin->offset = mapping->offset + (pin->va - mapping->va);
	error = sim_bar_take(pin->memory, pin->offset, pin->length);
	if (error)
		return error;
	error = table_make(pin);
	if (error) {
		sim_bar_give(pin->memory, pin->offset, pin->length);
		return error;
	}
	for (i = 0; i < count; i++)
		pin->page[i].physical_address =
			sim_memory_page(pin->memory, pin->offset + ((u64)i << SIM_PAGE_SHIFT));
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

/* The second step: from now on the callback comes, perhaps at once. */
static int pin_register(struct sim_pin *pin)
{
	bool overtaken;

	mutex_lock(&gpu.api_lock);
	overtaken = pin->state == SIM_PIN_OVERTAKEN;
	if (overtaken)
		pin_end(pin);
	else
		pin->state = SIM_PIN_ARMED;
	mutex_unlock(&gpu.api_lock);
	if (!overtaken)
		return 0;
	sim_count(SIM_GPU_GETS_OVERTAKEN, 1);
	pin_free(pin);
	return -EINVAL;
}

static int pin_check(u64 va, u64 length, struct nvidia_p2p_page_table **table,
		     void (*callback)(void *data), bool persistent, u32 flags)
{
	u64 end;

	if (!table || !length || !IS_ALIGNED(va | length, sim_pin_granule()) ||
	    check_add_overflow(va, length, &end))
		return -EINVAL;
	if (persistent ? flags & ~NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING : !callback)
		return -EINVAL;
	if (in_callback()) {
		sim_misuse("get_pages from a callback");
		return -EDEADLK;
	}
	if (sim_fails_now(SIM_GPU_FAIL_GET))
		return -(int)(sim_knob(SIM_GPU_FAIL_ERROR) ?: EIO);
	return 0;
}

static int pin_new(u64 p2p_token, u32 va_space, u64 va, u64 length,
		   struct nvidia_p2p_page_table **table, void (*callback)(void *data), void *data,
		   bool persistent, u32 flags)
{
	struct sim_pin *pin;
	int error = pin_check(va, length, table, callback, persistent, flags);

	if (error)
		return error;
	*table = NULL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	INIT_LIST_HEAD(&pin->of_mapping);
	INIT_LIST_HEAD(&pin->dma_mappings);
	pin->tgid = get_task_pid(current, PIDTYPE_TGID);
	pin->va = va;
	pin->length = length;
	pin->p2p_token = p2p_token;
	pin->callback = callback;
	pin->data = data;
	pin->forced_bar1 = flags & NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING;
	mutex_lock(&gpu.api_lock);
	error = pin_pages(pin, p2p_token, va_space, persistent);
	if (!error)
		*table = pin->table; /* before the callback can come, as the real driver does */
	mutex_unlock(&gpu.api_lock);
	if (error) {
		pin_free(pin);
		return error;
	}
	if (persistent)
		return 0;
	sim_gate_pass(SIM_GPU_GATE_PINNED);
	sim_delay(SIM_GPU_DELAY_GET);
	error = pin_register(pin);
	if (error)
		*table = NULL;
	else
		sim_gate_pass(SIM_GPU_GATE_REGISTERED);
	return error;
}

int sim_pin_get(u64 p2p_token, u32 va_space, u64 va, u64 length,
		struct nvidia_p2p_page_table **table, void (*callback)(void *data), void *data,
		bool persistent, u32 flags)
{
	int error =
		pin_new(p2p_token, va_space, va, length, table, callback, data, persistent, flags);

	sim_count(error ? SIM_GPU_GETS_FAILED : SIM_GPU_GETS, 1);
	return error;
}

/* Needs both locks. Why this pin is not for this put; false: it is. */
static bool put_is_wrong(struct sim_pin *pin, u64 p2p_token, u64 va, bool persistent)
{
	if ((pin->state == SIM_PIN_PERSISTENT) != persistent) {
		sim_misuse("put_pages of the other kind than the pin");
	} else if (pin->state == SIM_PIN_HALF || pin->state == SIM_PIN_OVERTAKEN) {
		sim_misuse("put_pages before get_pages has returned");
	} else if (!persistent && (pin->va != va || pin->p2p_token != p2p_token)) {
		sim_misuse("put_pages with another address or token than the pin");
	} else if (!persistent && !p2p_token && pin->tgid != task_tgid(current)) {
		sim_count(SIM_GPU_PUTS_FOREIGN, 1);
	} else {
		return false;
	}
	return true;
}

int sim_pin_put(u64 p2p_token, u64 va, struct nvidia_p2p_page_table *table, bool persistent)
{
	struct sim_pin *pin;
	bool wrong;

	if (!table)
		return 0;
	if (in_callback()) {
		sim_misuse("put_pages from a callback");
		return -EDEADLK;
	}
	sim_gate_pass(SIM_GPU_GATE_PUT);
	sim_delay(SIM_GPU_DELAY_PUT);
	mutex_lock(&gpu.api_lock);
	mutex_lock(&gpu.pins_lock);
	pin = pin_of(table);
	wrong = pin && put_is_wrong(pin, p2p_token, va, persistent);
	mutex_unlock(&gpu.pins_lock);
	if (pin && !wrong)
		pin_end(pin);
	mutex_unlock(&gpu.api_lock);
	if (pin && !wrong) {
		sim_count(SIM_GPU_PUTS, 1);
		pin_free(pin);
	} else if (!pin && persistent) {
		sim_misuse("put_pages_persistent of a page table that is not there");
	} else if (!pin) {
		sim_count(SIM_GPU_PUTS_LATE, 1);
	}
	/* Whatever was found: the driver says success. */
	return 0;
}
