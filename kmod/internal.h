/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * internal.h - the parts of pindown.ko and the functions that they share.
 *
 *	main.c		loading, unloading, and the device
 *	file.c		open descriptors and the processes that own them
 *	ioctl.c		the calls, checked and copied
 *	pin.c		how a region begins
 *	region.c	how it ends: unpin, revocation, death of its process
 *	provider.c	the calls of the NVIDIA driver, for all its versions
 *	driver_module.c	which driver is loaded, and why it may be unusable
 *	state.c		the state area
 *	export.c	dma-bufs
 *	budget.c	how much may be pinned, and how much each process pins
 *	size.c		how large a request may be
 *	wish.c		asking other processes to give BAR space back
 *	debug.c		counters and lists for people
 *
 * Locks, outermost first. "driver" is the NVIDIA driver's API lock: get_pages, put_pages and
 * dma_map_pages take it, and the driver holds it around the callback. So no lock that the callback
 * takes (all below "driver") is ever held while one of those is called. Nor is memory allocated
 * under region->lock or export->lock: an allocation may wait for memory to be freed, and that for
 * the driver. The sg tables of a dma-buf are allocated under its reservation, which the kernel's
 * rules for reservations allow.
 *
 *	one_at_a_time		large requests to the driver, see budget.c
 *	requests		new pins: one that may exceed a limit goes alone, see budget.c
 *	owner->puts		keeps pins apart from unpins of one process, see region.c
 *	export->reaping		makes detach wait for an unmap that is under way
 *	driver
 *	files_stay		the list of descriptors, see wish.c
 *	region->exports_lock	the list of the region's dma-bufs
 *	export->resv		the dma-buf's reservation; the core holds it around map, unmap, pin
 *	region->lock		state, table
 *	export->lock		attachments
 *
 * Taken within "driver", and never together with a lock below these in the list:
 *
 *	owners_lock		the processes, see file.c
 *	driver_lock		the driver's symbols, see provider.c
 *
 * The kernel holds mmap_lock around mmap() and faults, and the kernel's rules for reservations put
 * mmap_lock outside of them. Within it the module takes only state->lock, for a page of the state
 * area, and within state->lock nothing.
 *
 * Spinlocks: owner->lock, files_lock, and those of the xarrays tickets and file->regions.
 * Callbacks are readers of the SRCU domain `callbacks`, all but their last instructions; only
 * unloading waits for them, see pdn_regions_exit().
 */
#ifndef PINDOWN_INTERNAL_H
#define PINDOWN_INTERNAL_H

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "pindown_ioctl.h"

#if BITS_PER_LONG != 64
#error "pindown needs a 64-bit kernel: so does the NVIDIA driver"
#endif

#define PDN_RELEASE "0.1"

/* The driver wants addresses and lengths that are multiples of this. */
#define PDN_GRANULARITY 65536u

/* Numbers of regions go from 1 to PDN_MAX_REGION. Each has a word in the state area. */
#define PDN_MAX_REGION ((1u << 20) - 1)

struct nvidia_p2p_page_table;
struct nvidia_p2p_dma_mapping;
struct dma_buf_attachment;
struct pci_dev;
struct seq_file;

/* ---- processes and descriptors: file.c ---- */

/* A process that has opened the device: its thread group. The reference prevents a reuse of it. */
struct pdn_owner {
	struct kref ref; /* one for each descriptor and each region */
	struct hlist_node link; /* owners, see file.c */
	struct pid *tgid;
	struct rw_semaphore puts; /* read: get_pages; write: put_pages */
	atomic64_t bytes; /* charged */
	atomic64_t asked; /* see budget.c */
	spinlock_t lock;
	struct list_head orphans; /* regions that only this process can unpin; each holds a ref */
};

/* The state area of one descriptor. A page is allocated when a number in it is first used. */
struct pdn_state {
	struct mutex lock; /* for adding pages */
	struct page **pages;
};

struct pdn_file {
	struct pdn_owner *owner;
	struct xarray regions; /* by number; a number is reserved during its pin */
	atomic_t generation;   /* source of state values */
	struct pdn_state state;

	struct list_head link; /* files; files_lock protects it and the next three members */
	u32 asked;	       /* serial number of the last wish that it is to answer */
	u32 wanted;	       /* of the wish that it shows */
	u32 answered;	       /* of the last answer */
	wait_queue_head_t wishes;
};

extern const struct file_operations pdn_fops;
bool pdn_is_owner(const struct pdn_file *file);
void pdn_owner_put(struct pdn_owner *owner);

long pdn_ioctl(struct file *filp, unsigned int cmd, unsigned long arg); /* ioctl.c */

/* ---- regions: region.c, pin.c ---- */

enum pdn_region_state {
	PDN_PINNING, /* get_pages has not returned yet */
	PDN_LIVE,
	PDN_REVOKED, /* the callback has run: pin and page table are the driver's again */
	PDN_ENDING,  /* unpinned, or about to be */
};

struct pdn_region {
	struct kref ref;
	struct pdn_owner *owner;
	u64 address, length;
	u32 flags; /* PINDOWN_PIN_* */
	u32 number;
	u32 state_value;
	unsigned long ticket; /* the callback's argument. Never used twice */

	struct rw_semaphore lock; /* protects the members from here to `gpu_uuid` */
	enum pdn_region_state state;
	struct pdn_file *file;		     /* NULL once the descriptor is gone */
	struct nvidia_p2p_page_table *table; /* with callback. NULL once the driver has it back */
	struct pdn_hold *hold;		     /* persistent. Given back when it ends */
	u32 page_size, page_count;
	bool shares_bar; /* the driver maps memory into the BAR once for both kinds of pins */
	u8 gpu_uuid[16];

	struct mutex exports_lock; /* protects the list */
	struct list_head exports;

	/*
	 * With callback. Set under `lock` when the region becomes live. The function that clears
	 * it drops the reference.
	 */
	struct pdn_charge *charge;
	struct list_head orphan; /* owner->orphans, under owner->lock */
	struct work_struct orphan_done;
};

/* Pins a region. Nobody finds it yet, and its only reference is the caller's. */
int pdn_region_pin(struct pdn_file *file, struct pindown_pin *arg, struct pdn_region **made);
/* Publishes it under its number, once nothing can fail any more. Takes over the reference. */
void pdn_region_publish(struct pdn_file *file, struct pdn_region *region);
/* The region with this number, with a reference. NULL: none. */
struct pdn_region *pdn_region_get(struct pdn_file *file, u32 number);
/*
 * The same, and nobody finds it later. The number stays reserved until pdn_region_free_number():
 * the end of the region clears its word in the state area, which must not belong to another region
 * by then.
 */
struct pdn_region *pdn_region_take(struct pdn_file *file, u32 number);
void pdn_region_free_number(struct pdn_file *file, u32 number);
void pdn_region_put(struct pdn_region *region);
/* Ends the region, from any process. Drops no reference. */
void pdn_region_end(struct pdn_region *region);
/* Ends all regions of a descriptor, from any process. */
void pdn_regions_end(struct pdn_file *file);
/* Unpins the orphans of a process. Must be called by that process. */
void pdn_orphans_reap(struct pdn_owner *owner);
bool pdn_region_is(struct pdn_region *region, enum pdn_region_state state);
void pdn_region_callback(void *ticket);
/* A region in PDN_PINNING: it has an owner and one reference, and no number. NULL: no memory. */
struct pdn_region *pdn_region_new(struct pdn_file *file, const struct pindown_pin *arg);
/*
 * The callback finds the region between these two calls. The ticket has a reference to the region.
 */
int pdn_ticket_issue(struct pdn_region *region);
void pdn_ticket_void(struct pdn_region *region);
int pdn_regions_init(void);
void pdn_regions_exit(void);
extern struct workqueue_struct *pdn_work;

/* ---- the NVIDIA driver: provider.c ---- */

/*
 * Looks up the driver's calls, which can be made until they are given back. ENODEV, with the reason
 * in the log, when the driver is not loaded or can't be used. Each pdn_owner holds this once, as
 * long as the process has the device open or anything is left of its pins. All functions below need
 * it.
 */
int pdn_provider_take(void);
void pdn_provider_give_back(void);
bool pdn_provider_is_persistent(void);
bool pdn_provider_maps_dma(void);

/* Needs owner->puts for reading. Fills in region->table. */
int pdn_get_pages(struct pdn_region *region);
/* In the pinning process only. Needs owner->puts for writing. */
int pdn_put_pages(struct pdn_region *region, struct nvidia_p2p_page_table *table);
/* For the callback alone: returns its page table to the driver. */
void pdn_free_table(struct nvidia_p2p_page_table *table);

/*
 * Copies what the page table says of the region. Needs region->lock, and a table that the callback
 * has not returned to the driver, which may free it then. EOPNOTSUPP: the table is not understood.
 */
int pdn_table_read(struct pdn_region *region, const struct nvidia_p2p_page_table *table);

/* A persistent pin, shared by a region, its dma-bufs and their attachments. */
struct pdn_hold {
	struct kref ref;
	u64 address, length;
	struct nvidia_p2p_page_table *table; /* stays until the last reference is gone */
	struct pdn_charge *charge;	     /* stays as long */
	unsigned long kept;		     /* bit 0: counted in kept_bytes */
};

/* `shared`: the charge that covers this pin as well; NULL: it gets a charge of its own. */
struct pdn_hold *pdn_hold_new(struct pdn_owner *owner, u64 address, u64 length,
			      struct pdn_charge *shared);
/*
 * Is the GPU page at this address memory of this process? 0: yes, the driver has pinned it for a
 * moment, and gpu_uuid is its GPU; ENOMEM: yes, only BAR space was missing.
 */
int pdn_probe(struct pdn_owner *owner, u64 address, u8 gpu_uuid[16]);
void pdn_hold_get(struct pdn_hold *hold);
void pdn_hold_put(struct pdn_hold *hold); /* calls the driver */
/* Its region has ended: from now on its bytes count as kept_bytes. */
void pdn_hold_keep(struct pdn_hold *hold);

/* The DMA addresses of a hold for one device: one for each page of page_size bytes. */
struct pdn_dma {
	struct nvidia_p2p_dma_mapping *mapping;
	const u64 *addresses;
	u32 count;
	u32 page_size;
};

int pdn_dma_map(struct pci_dev *peer, struct pdn_hold *hold, struct pdn_dma *dma);
void pdn_dma_unmap(struct pci_dev *peer, struct pdn_hold *hold, struct pdn_dma *dma);

/* ---- the driver's module: driver_module.c ---- */

struct pdn_driver_module {
	char version[32];
	bool is_proprietary;
};

bool pdn_driver_module_look(const char *name, struct pdn_driver_module *driver);
/* Logs why the driver's symbols can't be looked up. */
void pdn_driver_module_complain(const char *name);

/* ---- state.c ---- */

int pdn_state_init(struct pdn_state *state);
void pdn_state_free(struct pdn_state *state);
u32 pdn_state_length(void);
u32 pdn_state_offset(u32 number);
/* Allocates the page of the number's word. */
int pdn_state_add(struct pdn_state *state, u32 number);
void pdn_state_set(struct pdn_state *state, u32 number, u32 value);
void pdn_state_count_revocation(struct pdn_state *state);
void pdn_state_wish(struct pdn_state *state, u32 serial, u64 bytes, const u8 *gpu_uuid);
int pdn_state_mmap(struct file *filp, struct vm_area_struct *vma);

/* ---- export.c ---- */

/* Returns a descriptor, which is installed with fd_install() once nothing can fail any more. */
int pdn_export(struct pdn_region *region, struct file **dmabuf);
/*
 * Notifies importers, and unpins what no importer needs any more. in_callback: the driver must not
 * be called.
 */
void pdn_exports_end(struct pdn_region *region, bool in_callback);
void pdn_exports_count(struct pdn_region *region, u32 *exports, u32 *importers);

/* ---- budget.c ---- */

/* The bytes that one pin of the driver takes, charged to a process: see budget.c. */
struct pdn_charge;

struct pdn_charge *pdn_charge_get(struct pdn_charge *charge);
void pdn_charge_put(struct pdn_charge *charge); /* NULL: does nothing. Calls no driver */

/* Permission to ask the driver for one pin. */
struct pdn_budget_request {
	struct pdn_charge *charge;
	bool is_new;   /* not counted yet */
	bool is_large; /* holds one_at_a_time */
	bool alone;    /* holds `requests` for writing. Only with is_new */
};

/*
 * May the driver be asked for a pin? 0, EFBIG, EDQUOT, ENOSPC, ENOMEM, or EINTR when the process is
 * killed while it waits for its turn. After 0 either _take() or _leave() must follow in the same
 * thread. `shared`: this charge covers the pin as well. NULL: the pin gets a charge of its own.
 */
int pdn_budget_ask(struct pdn_budget_request *request, struct pdn_owner *owner, u64 length,
		   struct pdn_charge *shared);

/* After a pin. The caller owns the charge. */
struct pdn_charge *pdn_budget_take(struct pdn_budget_request *request);

/* After a failure. */
void pdn_budget_leave(struct pdn_budget_request *request);

u32 pdn_budget_regions(void); /* the maximum number that a region may get now */

/* ---- size.c ---- */

bool pdn_size_is_small(u64 length);
bool pdn_size_is_possible(u64 length);
/* All that the BARs of the GPUs hold, as of the last pdn_size_look(). */
u64 pdn_size_of_bars(void);
void pdn_size_look(void);

/* ---- wish.c ---- */

void pdn_files_add(struct pdn_file *file);
void pdn_files_remove(struct pdn_file *file);
void pdn_files_show(struct seq_file *seq);

/* The wish of a pin that found no BAR space. */
struct pdn_wish {
	struct list_head link; /* wishes, see wish.c */
	const struct pdn_region *region;
	u32 serial; /* 0: nobody was asked yet */
	u64 given;  /* the count of pdn_wishes_given() before the last try */
	unsigned long deadline;
	u8 gpu_uuid[16]; /* whose space is missing. Zeroes: not known */
};

/* Each is ended. */
void pdn_wish_begin(struct pdn_wish *wish, const struct pdn_region *region);
/* 0: some space was given back, try again. ENOSPC: no more will come. EINTR. */
int pdn_wish_wait(struct pdn_wish *wish);
void pdn_wish_end(struct pdn_wish *wish);
void pdn_wishes_given(void); /* there is more BAR space than before */
int pdn_wishes_answer(struct pdn_file *file, u32 serial);
__poll_t pdn_wishes_poll(struct pdn_file *file, struct file *filp, poll_table *table);

/* ---- debug.c ---- */

enum pdn_counter {
	PDN_PINS,
	PDN_UNPINS,
	PDN_PIN_FAILURES,
	PDN_REVOCATIONS,
	PDN_LOST_RACES,
	PDN_EXPORTS,
	PDN_ATTACHES,
	PDN_ATTACH_FAILURES,
	PDN_RECLAIMS,
	PDN_RECLAIM_SAVES,
	PDN_ORPHANS,
	PDN_STRAY_CALLBACKS,
	/* These also go down: */
	PDN_KEPT_BYTES,
	PDN_CHARGED_BYTES, /* budget.c compares it with max_pinned_mb */
	PDN_CHARGES,
	PDN_COUNTERS
};

extern atomic64_t pdn_counters[PDN_COUNTERS];

static inline void pdn_count(enum pdn_counter counter)
{
	atomic64_inc(&pdn_counters[counter]);
}

void pdn_debug_init(void);
void pdn_debug_exit(void);
void pdn_region_show(struct seq_file *seq, struct pdn_region *region);

#endif
