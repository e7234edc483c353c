// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The simulated GPU below NVIDIA's own nvidia.ko, in the place of its resource manager (RM).
 *
 * nvidia.ko is unmodified and has the GPU of tests/guest/nvidia_gpu. Everything that pindown and
 * other drivers meet is NVIDIA's: the page tables, the order of calls and locks, the times of
 * frees, the mapping for other devices. Only the entry points of RM are replaced, by kprobes that
 * continue in this file instead, and the count of users of the GPU, which would start the hardware.
 * The prototypes come from the driver's own nv.h: a release with other prototypes does not compile.
 *
 * As in RM, each of these functions takes the API lock, callbacks run inside a free with that lock
 * held, a put finds only pins of the calling process, and the callback is registered in a second
 * step.
 */
#include <linux/errno.h>
#include <linux/kmemleak.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mm.h>
#include <linux/pci.h>

#include <nv.h>
#include <nv-proto.h>
#include <os-interface.h>

#include "gpu.h"

const bool sim_has_own_api;

#define GPU_BAR	   2 /* of the PCI device: the GPU's memory */
#define NVIDIA_BAR 1 /* its number in nvidia.ko */

static const u8 gpu_uuid[16] = "pindown RM GPU";
static nv_state_t *nvidia; /* nvidia.ko's state of the GPU */

/* Functions of nvidia.ko that it does not export. */
static typeof(os_alloc_mem) *driver_alloc;
static typeof(os_free_mem) *driver_free;
static typeof(nv_dma_map_peer) *driver_map_peer;
static typeof(nv_dma_unmap_peer) *driver_unmap_peer;

static NV_STATUS status_of(int error)
{
	switch (error) {
	case 0:
		return NV_OK;
	case -ENOMEM:
		return NV_ERR_INSUFFICIENT_RESOURCES;
	case -EINVAL:
		return NV_ERR_OBJECT_NOT_FOUND;
	case -ENOTSUPP:
		return NV_ERR_NOT_SUPPORTED;
	default:
		return NV_ERR_GENERIC;
	}
}

/* nvidia.ko frees this memory. */
static NV_STATUS uuid_new(NvU8 **uuid)
{
	NV_STATUS status = driver_alloc((void **)uuid, sizeof(gpu_uuid));

	if (status == NV_OK)
		memcpy(*uuid, gpu_uuid, sizeof(gpu_uuid));
	return status;
}

/* ---- pins with callback ---- */

static typeof(rm_p2p_get_pages) get_pages;
static NV_STATUS get_pages(nvidia_stack_t *stack, NvU64 p2p_token, NvU32 va_space, NvU64 va,
			   NvU64 length, NvU64 *addresses, NvU32 *write_requests,
			   NvU32 *read_requests, NvU32 *count, NvU8 **uuid, void *table)
{
	NV_STATUS status;

	status = uuid_new(uuid);
	if (status != NV_OK)
		return status;
	sim_room_is_made(length);
	status = status_of(sim_pin_begin(p2p_token, va_space, va, length, table, false, addresses));
	sim_room_is_left(length);
	if (status != NV_OK) {
		driver_free(*uuid);
		*uuid = NULL;
		return status;
	}
	*count = length >> SIM_PAGE_SHIFT;
	memset(write_requests, 0, *count * sizeof(*write_requests));
	memset(read_requests, 0, *count * sizeof(*read_requests));
	return NV_OK;
}

/* Pages of the tables that nvidia.ko has lost. */
static atomic_t lost_pages;

static typeof(rm_p2p_register_callback) register_callback;
static NV_STATUS register_callback(nvidia_stack_t *stack, NvU64 p2p_token, NvU64 va, NvU64 length,
				   void *table, void (*callback)(void *data), void *data)
{
	NV_STATUS status = status_of(sim_pin_arm(table, callback, data));

	/*
	 * A free has overtaken the pin. nvidia.ko now asks for a put, which finds nothing, takes
	 * that for success and loses its page table: a leak of NVIDIA's code, which must not be
	 * counted here. The size of each piece of memory is stored before it. The kernel may find
	 * the pages of the table when nvidia.ko is unloaded.
	 */
	if (status != NV_OK) {
		kmemleak_not_leak((NvU64 *)data - 1);
		atomic_add(length >> SIM_PAGE_SHIFT, &lost_pages);
	}
	return status;
}

static typeof(rm_p2p_put_pages) put_pages;
static NV_STATUS put_pages(nvidia_stack_t *stack, NvU64 p2p_token, NvU32 va_space, NvU64 va,
			   void *table)
{
	return sim_pin_end(p2p_token, va, table, false) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

/* ---- persistent pins ---- */

static typeof(rm_p2p_get_gpu_info) get_gpu_info;
static NV_STATUS get_gpu_info(nvidia_stack_t *stack, NvU64 va, NvU64 length, NvU8 **uuid,
			      void **info)
{
	bool found;

	sim_room_is_made(length);
	mutex_lock(&gpu.api_lock);
	found = sim_mapping_of(0, 0, va, length);
	mutex_unlock(&gpu.api_lock);
	sim_room_is_left(length);
	return found ? uuid_new(uuid) : NV_ERR_OBJECT_NOT_FOUND;
}

static typeof(rm_p2p_get_pages_persistent) get_pages_persistent;
static NV_STATUS get_pages_persistent(nvidia_stack_t *stack, NvU64 va, NvU64 length, void **object,
				      NvU64 *addresses, NvU32 *count, void *table, void *info)
{
	*count = length >> SIM_PAGE_SHIFT;
	return status_of(sim_pin_begin(0, 0, va, length, table, true, addresses));
}

static typeof(rm_p2p_put_pages_persistent) put_pages_persistent;
static NV_STATUS put_pages_persistent(nvidia_stack_t *stack, void *object, void *table)
{
	return sim_pin_end(0, 0, table, true) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

static typeof(nvidia_dev_get_uuid) use_gpu;
static int use_gpu(const NvU8 *uuid, nvidia_stack_t *stack)
{
	return memcmp(uuid, gpu_uuid, sizeof(gpu_uuid)) ? -ENODEV : 0;
}

static typeof(nvidia_dev_put_uuid) leave_gpu;
static void leave_gpu(const NvU8 *uuid, nvidia_stack_t *stack)
{
}

/* ---- mappings for other devices ---- */

/* RM chooses the BAR, and calls nvidia.ko page by page. */
static typeof(rm_p2p_dma_map_pages) dma_map_pages;
static NV_STATUS dma_map_pages(nvidia_stack_t *stack, nv_dma_device_t *peer, NvU8 *uuid,
			       NvU64 page_size, NvU32 count, NvU64 *addresses, void **private)
{
	u64 each = page_size >> PAGE_SHIFT;
	NV_STATUS status = NV_OK;
	u32 i;

	if (sim_fails_now(SIM_GPU_FAIL_MAP))
		return status_of(-(int)(sim_knob(SIM_GPU_FAIL_ERROR) ?: EIO));
	*private = NULL;
	mutex_lock(&gpu.api_lock);
	for (i = 0; i < count && status == NV_OK; i++)
		status = driver_map_peer(peer, nvidia->dma_dev, NVIDIA_BAR, each, &addresses[i]);
	if (status != NV_OK) {
		for (i--; i--;)
			driver_unmap_peer(peer, each, addresses[i]);
	}
	mutex_unlock(&gpu.api_lock);
	return status;
}

/* nvidia.ko unmaps by itself: this only counts. */
static int count_mapped(struct kretprobe_instance *instance, struct pt_regs *registers)
{
	if ((NV_STATUS)regs_return_value(registers) == NV_OK)
		sim_count(SIM_GPU_DMA_MAPPINGS, 1);
	return 0;
}

static int count_unmapped(struct kprobe *probe, struct pt_regs *registers)
{
	sim_count(SIM_GPU_DMA_MAPPINGS, -1);
	return 0;
}

static struct kretprobe mapped = {
	.kp.symbol_name = "nvidia:nv_dma_map_peer", .handler = count_mapped, .maxactive = 64};
static struct kprobe unmapped = {.symbol_name = "nvidia:nv_dma_unmap_peer",
				 .pre_handler = count_unmapped};

/* ---- page tables: they are nvidia.ko's ---- */

struct nvidia_p2p_page_table *sim_table_new(const struct sim_pin *pin)
{
	return pin->table;
}

void sim_table_delete(struct nvidia_p2p_page_table *table)
{
}

void sim_dma_end(struct sim_pin *pin)
{
}

/* Exists only from 580.65 on. */
bool sim_bar_is_shared(void)
{
	return false;
}

/* ---- replacing ---- */

struct replacement {
	struct kprobe probe;
	void *instead;
};

static int go_there_instead(struct kprobe *probe, struct pt_regs *registers)
{
	struct replacement *replacement = container_of(probe, struct replacement, probe);

	instruction_pointer_set(registers, (unsigned long)replacement->instead);
	return 1; /* do not continue in the replaced function */
}

/* A kprobe with a post handler is never turned into a jump, which would ignore the new address. */
static void not_optimized(struct kprobe *probe, struct pt_regs *registers, unsigned long flags)
{
}

#define REPLACE(name, with)                                \
	{                                                  \
		.probe = {.symbol_name = "nvidia:" name,   \
			  .pre_handler = go_there_instead, \
			  .post_handler = not_optimized},  \
		.instead = with,                           \
	}

static struct replacement replacements[] = {
	REPLACE("rm_p2p_get_pages", get_pages),
	REPLACE("rm_p2p_register_callback", register_callback),
	REPLACE("rm_p2p_put_pages", put_pages),
	REPLACE("rm_p2p_get_gpu_info", get_gpu_info),
	REPLACE("rm_p2p_get_pages_persistent", get_pages_persistent),
	REPLACE("rm_p2p_put_pages_persistent", put_pages_persistent),
	REPLACE("rm_p2p_dma_map_pages", dma_map_pages),
	REPLACE("nvidia_dev_get_uuid", use_gpu),
	REPLACE("nvidia_dev_put_uuid", leave_gpu),
};

static void restore(unsigned int count)
{
	while (count--)
		unregister_kprobe(&replacements[count].probe);
}

static int replace(void)
{
	unsigned int i;
	int error;

	for (i = 0; i < ARRAY_SIZE(replacements); i++) {
		error = register_kprobe(&replacements[i].probe);
		if (error) {
			pr_err("sim_gpu: %s can't be replaced: error %d\n",
			       replacements[i].probe.symbol_name, error);
			restore(i);
			return error;
		}
	}
	return 0;
}

/* The address of a function of nvidia.ko; NULL: it has none. */
static void *function(const char *name)
{
	struct kprobe probe = {.symbol_name = name};
	void *at;

	if (register_kprobe(&probe)) {
		pr_err("sim_gpu: %s is not there\n", name);
		return NULL;
	}
	at = probe.addr;
	unregister_kprobe(&probe);
	return at;
}

/* Only the GPU of tests/guest/nvidia_gpu, whose memory is that of the simulated GPU. */
static int gpu_find(void)
{
	struct pci_dev *pci = pci_get_device(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID, NULL);

	if (!pci || pci_resource_start(pci, GPU_BAR) != gpu.bar_start || !pci->driver ||
	    strcmp(pci->driver->name, "nvidia")) {
		pr_err("sim_gpu: no GPU of nvidia_gpu.ko that nvidia.ko drives\n");
		pci_dev_put(pci);
		return -ENODEV;
	}
	nvidia = pci_get_drvdata(pci); /* nv_state_t is its first member */
	pci_dev_put(pci);
	return 0;
}

int sim_provider_init(void)
{
	int error = gpu_find();

	if (error)
		return error;
	driver_alloc = function("nvidia:os_alloc_mem");
	driver_free = function("nvidia:os_free_mem");
	driver_map_peer = function("nvidia:nv_dma_map_peer");
	driver_unmap_peer = function("nvidia:nv_dma_unmap_peer");
	if (!driver_alloc || !driver_free || !driver_map_peer || !driver_unmap_peer)
		return -ENOENT;
	error = register_kretprobe(&mapped);
	if (error)
		return error;
	error = register_kprobe(&unmapped);
	if (error)
		goto mapped;
	error = replace();
	if (error)
		goto unmapped;
	return 0;

unmapped:
	unregister_kprobe(&unmapped);
mapped:
	unregister_kretprobe(&mapped);
	return error;
}

void sim_provider_exit(void)
{
	restore(ARRAY_SIZE(replacements));
	unregister_kprobe(&unmapped);
	unregister_kretprobe(&mapped);
	pr_info("sim_gpu: nvidia.ko has lost %d pages of page tables\n", atomic_read(&lost_pages));
}
