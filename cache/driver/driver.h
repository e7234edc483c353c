/* SPDX-License-Identifier: MIT */
/*
 * What the cache asks the CUDA driver. Never under the lock: the driver has locks of its own and
 * may free memory, and so come back to us, in any call.
 */
#ifndef PD_DRIVER_H
#define PD_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#define PD_ADDRESS_LIMIT (1ull << 48) /* no device address lies above it */

/* Memory of known extent and owner. */
struct pd_memory {
	uint64_t base, end;
	void *context; /* see struct pindown_region */
	int32_t device;
};

/* An allocation, as the driver describes it. */
struct pd_allocation {
	struct pd_memory memory; /* memory.context: only where the context's end ends the memory */
	uint64_t pin_base;	 /* where a pin of it begins */
	uint64_t buffer_id;
	uint64_t others; /* the ids of the mappings behind the first, as one number; 0: none are */
	void *current;	 /* a context that can be made current for calls about it; may be NULL */
	void *pool;
	bool mapped; /* made with cuMemMap */
};

/*
 * Describe the allocation that holds [addr, addr + length). A pindown_result; *error gets the
 * CUresult of a driver call that failed.
 */
int pd_driver_describe(uint64_t addr, uint64_t length, struct pd_allocation *out, int *error);

/*
 * Is the memory at [base, end) what it was when it had these? False also when there is none;
 * unknown when there is no driver (any more) that says so. A driver call or, for adjacent mappings,
 * two for each.
 */
enum pd_truth { PD_FALSE, PD_TRUE, PD_UNKNOWN };
enum pd_truth pd_driver_compare(uint64_t base, uint64_t end, uint64_t buffer_id, uint64_t others);

/* Where the mapping that begins at this address ends; 0: none does. Made on this device. */
uint64_t pd_driver_mapping_end(uint64_t at, int device);

/* Set SYNC_MEMOPS; false when the memory does not support it. */
bool pd_driver_sync_memops(uint64_t addr);

/* 1, 0, or negative when the driver can't tell. */
int pd_driver_device_attribute(int attribute, int device);

/*
 * Export [base, base + length) as a dma-buf, with `context` current where the driver wants one.
 * A CUresult.
 */
int pd_driver_export(uint64_t base, uint64_t length, void *context, int device, int *fd);

/*
 * How a driver function is found by its exported name. NULL, or it returns NULL: there is no driver
 * (yet). Set by hook/.
 */
extern void *(*pd_find_driver_symbol)(const char *name);

/*
 * How the cache finds out whether memory was made with cuMemMap: asked of where a mapping begins,
 * and which buffer id it has. NULL where that is not watched. Called without the lock. Set by
 * hook/.
 */
extern bool (*pd_is_mapped)(uint64_t base, uint64_t buffer_id);

/* The driver is shut down, or this is a child that can't use it: don't call it any more. */
void pd_driver_forget(void);

#endif
