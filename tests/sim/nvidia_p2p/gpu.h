/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The parts of the simulated GPU driver, and their locks.
 *
 * gpu.api_lock plays the driver's API lock. It protects clients, mappings and pins, and is held
 * while callbacks run. Within it, gpu.pins_lock protects the table of pins and their DMA mappings,
 * and gpu.memory_lock the list of memory objects and the used pages of the BAR.
 */
#ifndef SIM_PROVIDER_GPU_H
#define SIM_PROVIDER_GPU_H

#include <linux/atomic.h>
#include <linux/dma-mapping.h>
#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rbtree.h>

#include "nv_p2p_abi.h"
#include "sim_gpu.h"

#define SIM_PAGE_SHIFT 16

/* A piece of GPU memory. */
struct sim_memory {
	struct kref users; /* its owner's handle, each mapping, each pin */
	u64 id;
	u64 size;
	u32 *pages; /* numbers of 64 KiB pages in the BAR */
	struct page **ram; /* with SIM_GPU_COHERENT, instead of pages: memory of the machine */
	u32 count;
	bool freed;		   /* the handle is gone, and the host must not reach it */
	struct list_head all;	   /* gpu.memories */
	struct list_head of_owner; /* client->memories; empty once freed */
};

/* A mapping of memory into a process' GPU address space. */
struct sim_mapping {
	struct rb_node node; /* client->mappings, by va */
	u64 va, size;
	struct sim_memory *memory;
	u64 offset;
	struct list_head pins; /* those with a callback */
};

/* One open descriptor: one GPU address space. */
struct sim_client {
	struct pid *tgid; /* the process that opened it */
	u64 p2p_token;
	u32 va_space;
	struct rb_root mappings;
	struct list_head memories;
	struct list_head all; /* gpu.clients */
};

enum sim_pin_state {
	SIM_PIN_HALF,	    /* pinned, no callback registered yet */
	SIM_PIN_OVERTAKEN,  /* the memory was freed before the callback was registered */
	SIM_PIN_ARMED,	    /* callback registered */
	SIM_PIN_CALLED,	    /* its callback is running */
	SIM_PIN_PERSISTENT, /* pinned without callback */
};

struct sim_pin {
	struct nvidia_p2p_page_table *table; /* what the pinning driver sees; NULL once freed */
	struct hlist_node live;		     /* gpu.pins, by the table's address */
	struct list_head of_mapping;
	enum sim_pin_state state;
	struct pid *tgid;
	u64 va, length;
	u64 p2p_token;
	struct sim_memory *memory;
	u64 offset;
	void (*callback)(void *data);
	void *data;
	bool apart; /* does not share BAR space with pins of the other kind */
	struct list_head dma_mappings;
};

/* A DMA mapping for one device. */
struct sim_dma {
	struct nvidia_p2p_dma_mapping mapping; /* the part that the pinning driver sees */
	struct list_head of_pin;
	struct device *peer;
	enum dma_data_direction direction;
	bool is_mapped; /* by dma_map_resource() */
};

struct sim_gpu {
	struct pci_dev *pci;
	u32 pci_class; /* its original class */
	void __iomem *bar;
	phys_addr_t bar_start;
	u32 bar_pages;

	struct mutex api_lock;
	struct task_struct *in_callback; /* the task whose callback runs, under api_lock */
	struct sim_pin *called;		 /* and its pin */
	struct list_head clients;
	u64 last_p2p_token;
	u32 table_major;
	struct nvidia_p2p_page_table *spare_table; /* SIM_GPU_REUSE_TABLES */

	struct mutex pins_lock;
	DECLARE_HASHTABLE(pins, 10);

	struct mutex memory_lock;
	struct list_head memories;
	unsigned long *memory_used; /* a bit for each page */
	u32 *bar_used;		    /* pins of each page; behind them those that are apart */
	u32 bar_used_pages;
	u64 last_memory;
	u32 scatter;
	struct address_space *inode_mapping; /* of /dev/sim_gpu */
};
extern struct sim_gpu gpu;

/* export.c: takes no lock except memory_lock */
int sim_export(struct sim_gpu_export *call);

/* memory.c: gpu.api_lock must be held, unless a comment says otherwise */
struct sim_memory *sim_memory_alloc(struct sim_client *client, u64 size, u32 flags);
struct sim_memory *sim_memory_find(u64 id);	 /* with a reference; any lock */
void sim_memory_drop(struct sim_memory *memory); /* any lock */
int sim_memory_free(struct sim_client *client, u64 id);
phys_addr_t sim_memory_page(const struct sim_memory *memory, u64 offset);
struct sim_mapping *sim_map(struct sim_client *client, struct sim_memory *memory, u64 offset,
			    u64 size, u64 va);
int sim_unmap(struct sim_client *client, u64 va, u64 size);
/* The mapping that contains all of this range, in the address space that a pin may reach. */
struct sim_mapping *sim_mapping_of(u64 p2p_token, u32 va_space, u64 va, u64 length);
void sim_client_end(struct sim_client *client);
/*
 * Pins of a page share BAR space, but those that are `apart` share only with each other. Both
 * functions take memory_lock.
 */
int sim_bar_take(struct sim_memory *memory, u64 offset, u64 length, bool apart);
void sim_bar_give(struct sim_memory *memory, u64 offset, u64 length, bool apart);

/* pins.c: these take gpu.api_lock themselves, except sim_pins_end() */
void sim_pins_end(struct sim_mapping *mapping); /* gpu.api_lock held: runs the callbacks */
int sim_pin_get(u64 p2p_token, u32 va_space, u64 va, u64 length,
		struct nvidia_p2p_page_table **table, void (*callback)(void *data), void *data,
		bool persistent, u32 flags);
int sim_pin_put(u64 p2p_token, u64 va, struct nvidia_p2p_page_table *table, bool persistent);
/*
 * The same in steps, for rm.c: the page table is nvidia.ko's, and only compared. Begin fills in the
 * addresses of the pages; arm is the second step of a pin with callback. End returns whether there
 * was such a pin.
 */
/* Counts the host memory that a get_pages of this length allocates before it checks the address. */
void sim_room_is_made(u64 length);
void sim_room_is_left(u64 length);
int sim_pin_begin(u64 p2p_token, u32 va_space, u64 va, u64 length,
		  struct nvidia_p2p_page_table *table, bool persistent, u64 *addresses);
int sim_pin_arm(struct nvidia_p2p_page_table *table, void (*callback)(void *data), void *data);
bool sim_pin_end(u64 p2p_token, u64 va, struct nvidia_p2p_page_table *table, bool persistent);
int sim_table_free(struct nvidia_p2p_page_table *table);
bool sim_in_callback(void);
struct sim_pin *sim_pin_of(struct nvidia_p2p_page_table *table); /* gpu.pins_lock held */

/* dma.c */
void sim_dma_end(struct sim_pin *pin);
int sim_dma_map(struct device *peer, struct nvidia_p2p_page_table *table,
		struct nvidia_p2p_dma_mapping **mapping, enum dma_data_direction direction);
int sim_dma_unmap(struct device *peer, struct nvidia_p2p_page_table *table,
		  struct nvidia_p2p_dma_mapping *mapping);
int sim_dma_free(struct nvidia_p2p_dma_mapping *mapping);

/*
 * The provider of nvidia_p2p_get_pages() and the other calls: desktop.c itself, or NVIDIA's own
 * nvidia.ko, below which rm.c replaces the resource manager. Then the life of page tables can't be
 * seen here, and get_pages undoes half a pin with a put.
 */
extern const bool sim_has_own_api;
int sim_provider_init(void); /* logs the reason of a failure */
void sim_provider_exit(void);
/* desktop.c, rm.c: the page table; gpu.api_lock held */
struct nvidia_p2p_page_table *sim_table_new(const struct sim_pin *pin);
void sim_table_delete(struct nvidia_p2p_page_table *table);
/* desktop.c: do pins with and without callback share BAR space? */
bool sim_bar_is_shared(void);

/* knobs.c */
extern atomic64_t sim_counters[SIM_GPU_COUNTERS];
void sim_count(enum sim_gpu_counter counter, long by);
void sim_count_host_bytes(long bytes);
/* Counts a breach of the API's contract, and logs it at most once a second. */
#define sim_misuse(fmt, ...)                                                     \
	do {                                                                     \
		sim_count(SIM_GPU_MISUSES, 1);                                   \
		pr_err_ratelimited("sim_gpu: misuse: " fmt "\n", ##__VA_ARGS__); \
	} while (0)
u32 sim_knob(enum sim_gpu_knob knob);
int sim_knob_set(u32 knob, u32 value);
void sim_knobs_reset(void);
void sim_delay(enum sim_gpu_knob knob);
bool sim_fails_now(enum sim_gpu_knob knob);
void sim_gate_pass(enum sim_gpu_gate gate);
int sim_gate_op(u32 gate, u32 op);
int sim_counters_show(void);
void sim_counters_hide(void);

#endif
