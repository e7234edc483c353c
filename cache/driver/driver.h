/* SPDX-License-Identifier: MIT */
/*
 * The questions that the cache asks the CUDA driver. Never ask them under the lock: the driver has
 * locks of its own, and may free memory in any call, which re-enters the cache.
 */
#ifndef PDN_DRIVER_H
#define PDN_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#define PDN_ADDRESS_LIMIT (1ull << 48) /* no device address lies above it */

/* Memory of known extent and owner. */
struct pdn_memory {
	uint64_t base, end;
	void *context; /* see struct pindown_region */
	int32_t device;
};

/* Which context's end ends the memory is not known, nor whether there is one. */
#define PDN_ANY_CONTEXT ((void *)-1)

/* An allocation, as the driver describes it. */
struct pdn_allocation {
	struct pdn_memory
		memory;	   /* memory.context: NULL unless the context's end ends the memory */
	uint64_t pin_base; /* where a pin of it has to begin */
	uint64_t buffer_id;
	uint64_t mappings_hash; /* of the ids of the mappings after the first; 0: there are none */
	void *current; /* a context that can be made current for calls about it; may be NULL */
	void *pool;
	bool mapped; /* made with cuMemMap */
	/*
	 * Set by growth.h: `memory` is a part of it. The whole is what a free ends: the allocation.
	 * Mappings end by address range, so there it is the part.
	 */
	bool is_window;
	uint64_t whole_base, whole_end;
};

/*
 * Describe the allocation that contains [addr, addr + length). Returns a pindown_result; *error
 * gets the CUresult of a driver call that failed.
 */
int pdn_driver_describe(uint64_t addr, uint64_t length, struct pdn_allocation *out, int *error);

/*
 * The same for a pin, whose caller compares the buffer id after the pin: until then the answers may
 * be of two allocations. Memory made with cuMemMap that is smaller than `size` continues in the
 * mappings beside it, first behind it and then before it: as long as they are adjacent, of the same
 * device and in the same reservation, and only until it has that size.
 */
int pdn_driver_describe_run(uint64_t addr, uint64_t length, uint64_t size,
			    struct pdn_allocation *out, int *error);

/*
 * Is the memory at [base, end) still the one that had these ids? False also if no memory is there;
 * unknown if there is no driver, or no longer one, to ask, or if its error says nothing about the
 * memory. Costs one driver call or, for adjacent mappings, two for each.
 */
enum pdn_truth { PDN_FALSE, PDN_TRUE, PDN_UNKNOWN };
enum pdn_truth pdn_driver_compare(uint64_t base, uint64_t end, uint64_t buffer_id,
				  uint64_t mappings_hash);

/*
 * For the thread that is about to free it: the memory that holds this address. false: the driver
 * does not say. Keeps errno.
 */
bool pdn_driver_extent(uint64_t addr, uint64_t *begin, uint64_t *end);

/* Is there memory at this address, whosever it is? Ask in a flight (guard.h). */
bool pdn_driver_has_memory(uint64_t addr);

/* Where the mapping of this device's memory that holds this address ends; 0: there is none. */
uint64_t pdn_driver_mapping_end(uint64_t at, int device);

/* Set SYNC_MEMOPS; false if the memory does not support it. mapped: it was made with cuMemMap. */
bool pdn_driver_sync_memops(uint64_t addr, bool mapped);

/* The attribute's value; negative if the driver can't tell. */
int pdn_driver_device_attribute(int attribute, int device);

/*
 * Export [base, base + length) as a dma-buf, with `context` current where the driver requires one.
 * pcie: one that maps over PCIe, also where the processor reaches the memory in another way.
 * Returns a CUresult.
 */
int pdn_driver_export(uint64_t base, uint64_t length, void *context, int device, bool pcie,
		      int *fd);

/* Can this thread call the driver about memory? Not in a callback of the driver's, either. */
bool pdn_driver_has_context(void);

/*
 * Not in a callback of the driver's (cuLaunchHostFunc, cuStreamAddCallback), where CUDA forbids its
 * calls, and the driver may refuse them. This asks for what the thread has at hand; a miss, and the
 * opening of a region's descriptor, ask nothing more there.
 */
bool pdn_driver_permits(void);

/*
 * Reserve [*begin, end), whole blocks of 2 MiB, without memory: the driver hands the addresses out
 * to nobody. No context is needed. If the free range around them begins earlier, it is reserved
 * from there, and *begin says so. ELSEWHERE: all of `tries` calls got other addresses.
 */
#define PDN_MOST_TRIES 64
enum pdn_reserved { PDN_RESERVED, PDN_ELSEWHERE, PDN_REFUSED };
enum pdn_reserved pdn_driver_reserve(uint64_t *begin, uint64_t end, unsigned tries);

/*
 * Does the driver reserve addresses at all? Reserves some, and gives them back. ELSEWHERE: not
 * where it was asked to, this time; another thread may have been faster.
 */
enum pdn_reserved pdn_driver_try_to_reserve(uint64_t size);
void pdn_driver_unreserve(uint64_t addr, uint64_t size);

/* Memory by cuMemAlloc that nobody else knows of; 0: the driver has none. */
uint64_t pdn_driver_allocate(uint64_t size);
void pdn_driver_free(uint64_t addr);

/*
 * Finds a driver function by its exported name. Set by hook/. If it is NULL or returns NULL, no
 * driver is loaded (yet).
 */
extern void *(*pdn_find_driver_symbol)(const char *name);

/*
 * Was memory made with cuMemMap? Asked with the beginning of a mapping and its buffer id, without
 * the lock. Set by hook/; NULL if cuMemMap is not watched.
 */
extern bool (*pdn_is_mapped)(uint64_t base, uint64_t buffer_id);

/*
 * The program is about to call cuMemFree: will the driver free the memory, if the address is right?
 * Not where a stream is being captured. Nor may it be a mapped buffer of external memory. Set by
 * hook/; NULL: it is not sure.
 */
extern bool (*pdn_free_is_sure)(uint64_t addr);

/*
 * Does this pool keep the memory that is freed, so that what is allocated at the address next is
 * the same memory? Set by hook/; NULL: it does not.
 */
extern bool (*pdn_pool_keeps)(void *pool);

/*
 * pindown retains a primary context for a call that needs one, and the program may drop its last
 * hold meanwhile: then pindown's release ends the context. So who counts the program's holds counts
 * this one, too, and the release that is the last one ends the memory first, whose ever it is. Set
 * by hook/; NULL: they are not counted.
 */
struct pdn_primary_counts {
	bool (*is_held)(int device); /* by calls of the program that were seen */
	void (*retained)(void *context, int device);
	void (*release)(int device, int (*real)(int device)); /* makes the call */
};
extern const struct pdn_primary_counts *pdn_primary_counts;

/* Call the driver no more: it is shut down, or this is a forked child that can't use it. */
void pdn_driver_forget(void);

#endif
