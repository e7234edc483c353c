/* SPDX-License-Identifier: MIT */
/*
 * How memory is pinned. A backend is a table of functions, which are called without a lock held.
 * All that it knows about a pin is in struct pdn_pin, except that kmod.c has a table of the parts
 * of pins over several mappings.
 */
#ifndef PDN_BACKEND_H
#define PDN_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/notify.h"

#define PDN_MAX_DEVICES 64

struct pdn_pin {
	uint64_t length; /* whole 64 KiB pages, as base */
	int32_t device;
	int fd; /* dma-buf, or -1 */
	uint64_t base;
	uint64_t fd_identity;	   /* the file that fd was opened as: pdn_descriptor_is() */
	uint32_t handle;	   /* the backend's own number for the pin */
	uint32_t word, word_value; /* see revocation.h; not revocable: 0, and that word's value */
	bool spans;		   /* several mappings side by side */
	bool fell_back;		   /* pinned by dma-buf because the device's backend refused */
	bool pcie;		   /* how fd maps the memory: mapping.c */
	bool trial;		   /* to see whether it fits, and unpinned at once */
};

struct pdn_backend {
	const char *name;
	bool pin_takes_descriptor; /* false: only a pin whose dma-buf was asked for has one */

	/* Can it pin memory of this device? Asked once for each; makes a driver call or two. */
	bool (*works_on)(int device);

	/*
	 * Pin [base, base + length). `context`, which may be NULL, is made current where the
	 * driver's calls need one. PINDOWN_ERR_NO_SPACE asks the cache to evict and try again;
	 * *driver_error gets the CUresult of a driver call that failed.
	 */
	int (*pin)(struct pdn_pin *pin, void *context, int *driver_error);

	/*
	 * The same when this process has nothing left to evict: other processes may be asked to
	 * give space back. NULL if the backend can't ask them.
	 */
	int (*pin_at_last)(struct pdn_pin *pin, void *context, int *driver_error);

	/* Never fails, makes no driver call, and may be called after CUDA has shut down. */
	void (*unpin)(struct pdn_pin *pin);

	/*
	 * In a forked child: drop what the child has inherited of the pin, if anything. Also called
	 * for records without a pin, and may be called more than once. Async-signal-safe.
	 */
	void (*abandon)(struct pdn_pin *pin);

	/*
	 * Close the descriptor of a pin that stays, and open it again, mapped as pin->pcie says, or
	 * as that then says. NULL: there is none.
	 */
	void (*close_dmabuf)(struct pdn_pin *pin);
	int (*open_dmabuf)(struct pdn_pin *pin, void *context, int *driver_error);

	/* Is the descriptor still the file that was opened? The program may have closed it. */
	bool (*has_dmabuf)(const struct pdn_pin *pin);
};

extern const struct pdn_backend pdn_backend_none, pdn_backend_dmabuf, pdn_backend_kmod;

/* The backend that made this pin; NULL: none works on the device. */
const struct pdn_backend *pdn_backend_of(const struct pdn_pin *pin);

/* The backend to try when this one refuses memory (PINDOWN_BACKEND=auto only), or NULL. */
const struct pdn_backend *pdn_backend_instead_of(const struct pdn_backend *backend);

/*
 * For a pin over several mappings, when the count of all revocations has changed: true if none of
 * this pin's own mappings was revoked. *word_value gets the count as it was before that check. The
 * pin must stay pinned during the call. Takes no lock.
 */
bool pdn_kmod_mappings_stand(const struct pdn_pin *pin, uint32_t *word_value);

/* The dma-buf of a pin, for every backend that makes one. These functions keep errno. */
bool pdn_pin_has_dmabuf(const struct pdn_pin *pin);
void pdn_pin_take_dmabuf(struct pdn_pin *pin, int fd);
void pdn_pin_close_dmabuf(struct pdn_pin *pin);

/*
 * mapping.c. Do the device's dma-bufs map over PCIe only when asked to? And shall they, for the
 * card with this path in sysfs (NULL: not known)? first: before a card is known.
 */
bool pdn_mapping_is_chosen(int device);
bool pdn_mapping_is_near(int device, const char *card);
bool pdn_mapping_for(int device, const char *card);
bool pdn_mapping_first(int device);
/* Has the driver not refused it for the device? */
bool pdn_mapping_is_possible(int device, bool pcie);

/* Export as pin->pcie says, or the other way, if the driver refuses, and change it. A CUresult. */
int pdn_mapping_export(struct pdn_pin *pin, void *context, int *fd);

/* Notifications: a backend has opened a pin's dma-buf; it was closed, by a backend or otherwise. */
void pdn_dmabuf_opened(void);
void pdn_dmabuf_closed(void);

/* How many descriptors regions have together, and may have, by the process's present limit. */
uint32_t pdn_dmabufs_open(void);
uint64_t pdn_dmabufs_max(void);

/* Each prints a message, once: descriptors run out, so regions are evicted; none can be had. */
void pdn_dmabuf_tell_limit(void);
void pdn_dmabuf_tell_none_left(void);

/* Lock not held. Another process wants this much pin space of a device; negative: of any. */
PDN_EVENT(space_wanted, (uint64_t bytes, int device));

/*
 * Cache's lock held, and nothing is pinned or about to be: the next pin opens /dev/pindown again.
 * Lock not held: what was open until then is closed.
 */
struct pdn_kmod_left {
	int fd; /* -1: nothing was open */
	uint64_t identity;
	const uint32_t *area;
};
struct pdn_kmod_left pdn_backend_kmod_leave(void);
void pdn_backend_kmod_close(const struct pdn_kmod_left *left);

/* Is the device open? As far as is known: the program may have closed it. */
bool pdn_backend_kmod_is_open(void);

/* In a forked child, after all pins have been abandoned. */
void pdn_backend_kmod_fork_child(bool is_shared);

/* The backend that the configuration asks for, or the first that works; NULL: none does. */
const struct pdn_backend *pdn_backend_for(int device);

/* The same if it is already known; makes no call to find out. */
const struct pdn_backend *pdn_backend_chosen(int device);

/* The name of the backend in use, or of the one that would be. */
const char *pdn_backend_name(void);

/* Does each pin of a backend in use, or of the one that would be, have a descriptor? */
bool pdn_backend_pins_take_descriptors(void);

#endif
