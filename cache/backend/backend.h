/* SPDX-License-Identifier: MIT */
/*
 * How memory is pinned. A backend is a table of functions; none of them is called with a lock held,
 * and none keeps state of its own beside the pin.
 */
#ifndef PD_BACKEND_H
#define PD_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/notify.h"

#define PD_MAX_DEVICES 64

struct pd_pin {
	uint64_t length; /* whole 64 KiB pages, as base */
	int32_t device;
	int fd; /* dma-buf, or -1 */
	uint64_t base;
	uint64_t fd_identity;	   /* which file that was when we got it */
	uint32_t handle;	   /* the backend's own number for it */
	uint32_t word, word_value; /* see revocation.h; nobody revokes: 0, and that word's value */
	bool spans;		   /* several mappings side by side */
	bool fell_back;		   /* by the driver's dma-buf, since the device's backend refused */
};

struct pd_backend {
	const char *name;
	bool pin_takes_descriptor; /* others have one only when the dma-buf is asked for */

	/* Can it pin on this device? A driver call or two; asked once for each device. */
	bool (*works_on)(int device);

	/*
	 * Pin [base, base + length); context may be needed as current one for the driver's calls, or
	 * be NULL. PINDOWN_ERR_NO_SPACE asks the cache to evict and try again; *driver_error gets
	 * the CUresult of any failure of the driver's.
	 */
	int (*pin)(struct pd_pin *pin, void *context, int *driver_error);

	/*
	 * The same, when nothing of this process is left to evict: other processes may be asked.
	 * NULL where there is nobody to ask.
	 */
	int (*pin_at_last)(struct pd_pin *pin, void *context, int *driver_error);

	/* Never fails, calls no driver, may be called after CUDA has shut down. */
	void (*unpin)(struct pd_pin *pin);

	/*
	 * In a forked child: drop what the child has inherited of the pin, if it has; this may also
	 * be a record that no pin has any more, and may be called more than once.
	 * Async-signal-safe.
	 */
	void (*abandon)(struct pd_pin *pin);

	/* The descriptor is closed early, or wanted again; NULL where there is none. */
	void (*close_dmabuf)(struct pd_pin *pin);
	int (*open_dmabuf)(struct pd_pin *pin, void *context, int *driver_error);

	/* Is the descriptor still what we have opened? The program may have closed it. */
	bool (*has_dmabuf)(const struct pd_pin *pin);
};

extern const struct pd_backend pd_backend_none, pd_backend_dmabuf, pd_backend_kmod;

/* The one that has made this pin; NULL: none works on the device. */
const struct pd_backend *pd_backend_of(const struct pd_pin *pin);

/* The backend to try when this one refuses memory (PINDOWN_BACKEND=auto only); or NULL. */
const struct pd_backend *pd_backend_instead_of(const struct pd_backend *backend);

/*
 * For a pin over several mappings, when the count of all revocations has changed: true if none of
 * this pin's own mappings was revoked. *word_value becomes the count from before that look. The
 * pin must stay pinned meanwhile. Takes no lock.
 */
bool pd_kmod_mappings_stand(const struct pd_pin *pin, uint32_t *word_value);

/* A pin's dma-buf, for every backend that makes one. These functions keep errno. */
bool pd_pin_has_dmabuf(const struct pd_pin *pin);
void pd_pin_take_dmabuf(struct pd_pin *pin, int fd);
void pd_pin_close_dmabuf(struct pd_pin *pin);

/* A backend has opened a pin's dma-buf, or has closed it, or somebody else has. */
void pd_dmabuf_opened(void);
void pd_dmabuf_closed(void);

/* How many descriptors all regions have, and may have; the latter asks the system. */
uint32_t pd_dmabufs_open(void);
uint64_t pd_dmabufs_most(void);

/* Each prints one line, once: regions are evicted for descriptors; no descriptor can be had. */
void pd_dmabuf_tell_limit(void);
void pd_dmabuf_tell_none_left(void);

void pd_dmabuf_fork_child(void);

/* Another process wants pin space of this many bytes. Lock not held. */
PD_EVENT(space_wanted, (uint64_t bytes));

/* In a forked child, after all pins were abandoned. */
void pd_backend_kmod_fork_child(void);

/* The backend that the configuration asks for, or that works best on this device; NULL: none does.
 */
const struct pd_backend *pd_backend_for(int device);

/* The same if it is known; asks nobody. */
const struct pd_backend *pd_backend_chosen(int device);

/* The name of the backend in use, or of the one that would be. */
const char *pd_backend_name(void);

/* Has each pin of a backend in use a descriptor, or would it? */
bool pd_backend_pins_take_descriptors(void);

#endif
