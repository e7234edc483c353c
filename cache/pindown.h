/* SPDX-License-Identifier: MIT */
/*
 * pindown.h - a registration cache (pin-down cache) for GPU memory.
 *
 * A region is one allocation of device memory that is pinned for a third-party device, rounded out
 * to 64 KiB. Where there is no space to pin all of an allocation, a region is a part of it. In a
 * memory pool a region begins at the start of the pool's piece of memory that the allocation was
 * cut from, since the driver pins no less. pindown_get() finds or pins the region that contains an
 * address range, and holds it. pindown_put() drops the hold and leaves the region pinned (lazy
 * unpinning) until the memory is freed, until a budget needs its place, or until pindown_flush().
 *
 * With libpindown.so preloaded, the cache is notified of each free before the driver carries it
 * out. Without the preload (a program that only links with -lpindown) every hit is checked by
 * buffer id instead, which costs a driver call; pindown_stats() says which of the two is in force.
 *
 * Thread safety: every function may be called from any thread at any time, also from a callback and
 * from handlers of pthread_atfork(), but not from a signal handler. Every callback is called
 * without a lock held.
 *
 * A callback of a subscriber or a consumer may call every function, also those that end what it
 * belongs to; it may free GPU memory, fork and throw exceptions that it catches itself. A call that
 * could wait for this very callback does not: it returns PINDOWN_ERR_BUSY or PINDOWN_ERR_DEADLOCK.
 * The callback must return, in the thread that called it: no C++ exception and no longjmp() may
 * leave it, it must not end its thread with pthread_exit(), and where it runs in a coroutine or a
 * fiber that waits, the same thread must continue that before it calls pindown or the driver again.
 * Otherwise the thread's operation stays half done. After pthread_exit() a line says so and the
 * memory stays pinned; after a return in another thread a line says so, and memory that the first
 * one was freeing can't be registered until that thread ends; pindown does not notice the other
 * two. The visitors of pindown_each_region() and pindown_each_object() may do all of that.
 *
 * Threads may be cancelled at any time: pindown disables cancellation while it pins, unpins or
 * calls back, and a cancellation takes effect afterwards. A hit is no cancellation point. With
 * asynchronous cancellation (PTHREAD_CANCEL_ASYNCHRONOUS) a thread may end inside a hit or a put.
 * The call then loses at most one hold, the one that it is just taking or dropping: that region
 * stays pinned. A region that a get or a vector's get has stored is held, so a clean-up handler
 * puts those that are not NULL any more.
 *
 * Sections (§) are those of NVIDIA's "Developing a Linux Kernel Module using GPUDirect RDMA".
 */
#ifndef PINDOWN_H
#define PINDOWN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PINDOWN_VERSION_MAJOR 0
#define PINDOWN_VERSION_MINOR 2
#define PINDOWN_VERSION	      ((PINDOWN_VERSION_MAJOR << 16) | PINDOWN_VERSION_MINOR)

/* GPU BAR space is mapped in pages of this size; a pin covers whole pages (§2.2). */
#define PINDOWN_PAGE_SIZE 65536u

/*
 * Every function that returns int returns a negative number when it fails: one of these, or
 * PINDOWN_CREATE_FAILED() of a number that a consumer has chosen. 0 and positive numbers are
 * success: PINDOWN_OK, a count or an id. pindown_strerror() has a sentence for each.
 */
enum pindown_result {
	PINDOWN_OK = 0,
	PINDOWN_ERR_INVALID = -1,  /* an argument is NULL or zero, overflows, has unknown flags */
	PINDOWN_ERR_DISABLED = -2, /* PINDOWN=0, or pindown switched itself off and said why */
	PINDOWN_ERR_NO_CUDA = -3,  /* no CUDA driver is loaded in this process, or it is shut down;
				     or this is a forked child, in which CUDA does not work */
	PINDOWN_ERR_NOT_DEVICE = -4, /* the address is not memory that the CUDA driver knows */
	PINDOWN_ERR_HOST = -5,	     /* the address is host memory: register it as host memory */
	PINDOWN_ERR_MANAGED = -6,  /* managed memory migrates and can't be pinned (§2.2, §4.1) */
	PINDOWN_ERR_RANGE = -7,	   /* the range runs past the end of its allocation */
	PINDOWN_ERR_NO_SPACE = -8, /* no pin space left, even after eviction; or above the budget */
	PINDOWN_ERR_BUSY = -9,	   /* this thread itself is freeing the memory, or at work on the
				      object; or the memory was freed and allocated again a hundred
				      times meanwhile */
	PINDOWN_ERR_NO_BACKEND = -10, /* no way to pin on this device (no dma-buf support) */
	PINDOWN_ERR_DRIVER = -11, /* the CUDA driver refused; pindown_driver_error() has its code */
	PINDOWN_ERR_NO_MEMORY = -12,  /* no host memory for the cache's own records */
	PINDOWN_ERR_NO_DMABUF = -13,  /* the backend in use has no dma-buf descriptors */
	PINDOWN_ERR_DEADLOCK = -14,   /* a wait would never end: a thread waits for this one */
	PINDOWN_ERR_WOULD_WAIT = -15, /* PINDOWN_GET_NOWAIT: another thread is at work on it */
	PINDOWN_ERR_TIMED_OUT = -16,  /* another thread was at work for longer than a call waits */
};

/*
 * The result of an attach whose create callback has returned the positive number n; and that
 * number of such a result, or 0 of any other result. Numbers above 2^30 count as 2^30.
 */
#define PINDOWN_CREATE_FAILED(n)     (-1000 - (n))
#define PINDOWN_CREATE_ERROR(result) ((result) < -1000 ? -1000 - (result) : 0)

/* A sentence in English for a result. Never NULL, not even for unknown numbers; never fails. */
const char *pindown_strerror(int result);

/*
 * The CUresult behind the last PINDOWN_ERR_DRIVER, NO_SPACE or NOT_DEVICE that a call in this
 * thread returned; 0 if there was none, or if it came from pindown alone. Other results leave it as
 * it is.
 */
int pindown_driver_error(void);

/* ---- regions ----------------------------------------------------------------------------- */

typedef struct pindown_region pindown_region;

/*
 * Look up the region that contains [addr, addr + length), pin it on a miss, and hold it (§2.1,
 * §2.2).
 *
 * addr    a device address of this process
 * length  bytes, at least 1; the range must lie within one allocation (for memory that was mapped
 *         with cuMemMap: within adjacent mappings)
 * flags   0, or of these:
 *         PINDOWN_GET_CACHED  do not pin; return a hit, or PINDOWN_ERR_NOT_DEVICE on a miss
 *         PINDOWN_GET_NOWAIT  ask no other process for pin space, and do not wait for another
 *         thread that frees, pins, unpins, or makes or destroys an object: return
 *         PINDOWN_ERR_WOULD_WAIT. A pin in this thread may still be made
 * region  out: the region, held until pindown_put(). Unchanged on failure.
 *
 * A hit takes no lock and makes no system call. It calls the driver for about one hit in 4096;
 * and for each hit if the region is volatile, if a free may have been missed, or if
 * PINDOWN_VERIFY=always. A miss calls the driver, sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS (§2.7) and
 * pins the whole allocation. If the pin space or the budget is too small for that, it pins a part
 * of the allocation that contains the range, and that is the region: pindown_region_base() and
 * pindown_region_length() say how far it reaches. A get of a range that such a region has in part
 * returns a wider one in its place. PINDOWN_ERR_NO_SPACE says that the pages of the range itself
 * can't be pinned, even after eviction. A get that meets a free of the same memory in another
 * thread waits for that free to end and then asks the driver again; after two seconds it returns
 * PINDOWN_ERR_TIMED_OUT. Memory of cuMemAlloc that was freed with cuMemFreeAsync can be got until
 * the stream's turn, but is not cached: the region is not live, and the last put unpins it.
 */
#define PINDOWN_GET_CACHED 1u
#define PINDOWN_GET_NOWAIT 2u
int pindown_get(uint64_t addr, size_t length, unsigned flags, pindown_region **region);

/*
 * Drop one hold. The region stays pinned for its next use. If its memory has been freed meanwhile,
 * the last put unpins it, or leaves that to a put that another thread makes at the same moment; a
 * free that begins now waits for it in either case. NULL is ignored. After fork(), a child's put of
 * a parent's region is ignored: the child holds no pin. It gets none where the parent has
 * registered GPU memory.
 */
void pindown_put(pindown_region *region);

/*
 * Get n ranges, or none of them. On success regions[i] is the region of ranges[i], and the caller
 * puts each. Ranges may overlap and be equal. Consecutive ranges in the same region cost less than
 * single gets. On failure all elements of regions are NULL, and *failed is the index of the range
 * that failed; failed may be NULL. If n is 0, the arrays are not read.
 */
struct pindown_range {
	uint64_t addr;
	size_t length;
};
int pindown_getv(const struct pindown_range *ranges, size_t n, unsigned flags,
		 pindown_region **regions, size_t *failed);

/* pindown_put() of each of them. */
void pindown_putv(pindown_region *const *regions, size_t n);

/*
 * Accessors, for a region that the caller holds. They never fail and never call the driver, except
 * pindown_region_dmabuf().
 */
uint64_t pindown_region_base(const pindown_region *region);	/* start of the allocation */
size_t pindown_region_length(const pindown_region *region);	/* its bytes */
uint64_t pindown_region_pin_base(const pindown_region *region); /* start of the pin */
size_t pindown_region_pin_length(const pindown_region *region); /* its bytes: whole 64 KiB pages */
uint64_t
pindown_region_buffer_id(const pindown_region *region); /* CU_POINTER_ATTRIBUTE_BUFFER_ID (§3.5) */
void *pindown_region_context(const pindown_region *region); /* CUcontext, NULL for pool memory */
int pindown_region_device(const pindown_region *region);    /* CUDA device ordinal */
int pindown_region_is_volatile(
	const pindown_region *region); /* 1: each hit is checked by buffer id */
/*
 * 0: its memory was freed while it was held, or will be by a stream; a checkpoint has replaced it;
 * or a wider region has taken its place, which a get of the address returns.
 */
int pindown_region_is_live(const pindown_region *region);

/*
 * The dma-buf of a held region. *fd belongs to the region: do not close it; duplicate it to keep
 * it. It is close-on-exec. *offset is the offset of `addr` in the dma-buf. PINDOWN_ERR_INVALID: an
 * argument is NULL, or addr is not in the region. PINDOWN_ERR_NO_DMABUF: the backend has none. If
 * the descriptor is not open yet, or pindown_region_close_dmabuf() closed it, the dma-buf is
 * exported (again). PINDOWN_ERR_NOT_DEVICE then says that the memory has been freed since,
 * PINDOWN_ERR_NO_BACKEND that the program has closed /dev/pindown, and NO_SPACE, DRIVER, NO_CUDA
 * and NO_MEMORY say what a pin's say.
 */
int pindown_region_dmabuf(pindown_region *region, uint64_t addr, int *fd, uint64_t *offset);

/*
 * The consumer has imported the dma-buf and no longer needs the descriptor: close it, so that many
 * regions do not use up the process's descriptors. The consumer's import keeps the pin. Call this
 * only for a region that you hold, and not while another user of the region may be about to use the
 * descriptor's number.
 */
void pindown_region_close_dmabuf(pindown_region *region);

/* ---- invalidation ------------------------------------------------------------------------ */

/*
 * Unlink every region that overlaps [addr, addr + length). Idle regions are unpinned before the
 * call returns, regions in use at their last put (§2.3, §3.4). With length 0: the region that
 * contains addr. Returns the number of regions unlinked, or a negative pindown_result.
 */
int pindown_invalidate(uint64_t addr, size_t length);

/* The same for every region of a CUcontext. */
int pindown_invalidate_context(void *context);

/* Unpin every idle region. Regions in use stay. Returns how many were unpinned. */
int pindown_flush(void);

/*
 * A subscriber is notified when a region stops being valid, before it is unpinned and, under the
 * preload, before the driver frees the memory. This is the place to deregister what was built on
 * the region. The callback runs in the thread that frees or evicts, without any lock of pindown. It
 * may call any pindown function, also pindown_put() for a hold of its own. The invalidation waits
 * for it to return.
 */
enum pindown_reason {
	PINDOWN_REASON_FREED = 1,   /* the program ends the memory */
	PINDOWN_REASON_CONTEXT = 2, /* the context that owns it ends */
	PINDOWN_REASON_EVICTED = 3, /* its place is needed: budget, pin space, or a wider region */
	PINDOWN_REASON_FLUSHED = 4, /* pindown_flush(), pindown_invalidate() */
	PINDOWN_REASON_STALE = 5,   /* its buffer id no longer matches */
	PINDOWN_REASON_OWNER = 6,   /* objects: pindown_end_owner(), pindown_consumer_remove() */
	PINDOWN_REASON_ORDERED = 7, /* the program frees the memory in stream order */
};

struct pindown_invalidation {
	uint64_t base, length; /* the allocation */
	uint64_t buffer_id;
	int reason;		/* enum pindown_reason */
	int in_use;		/* 1: it is held, and unpinned at the last put */
	pindown_region *region; /* to compare with a held one; valid in the callback */
};

typedef void (*pindown_callback)(const struct pindown_invalidation *what, void *arg);

/*
 * Subscribe returns a positive id, or a negative pindown_result (PINDOWN_ERR_NO_MEMORY: at most 64
 * subscribers; PINDOWN_ERR_INVALID: callback is NULL). Unsubscribe returns after the last running
 * callback has ended, unless it is called from that callback. PINDOWN_ERR_INVALID: there is no such
 * subscriber. PINDOWN_ERR_DEADLOCK: it was called in a callback, or while this thread frees
 * memory, and the subscriber's has run in another thread for two seconds; it is called no more.
 */
int pindown_subscribe(pindown_callback callback, void *arg);
int pindown_unsubscribe(int id);

/* ---- consumer objects -------------------------------------------------------------------- */

/*
 * A consumer can attach to a region the objects that it builds on it, for example a memory
 * registration of a NIC. An object is made once for each (region, consumer, key), found again on
 * the next hit, and destroyed before the region is unpinned. A held object keeps its region pinned.
 * An object that is not held stays for its next use, as a region does (lazy unpinning), and ends
 * with the region:
 *
 *   the memory ends     idle objects are destroyed before the free returns. For held ones see
 *                       PINDOWN_HELD in pindown(7). retire, the default, and keep: the object and
 *                       the pin stay until the last pindown_detach(), and their bytes are counted
 *                       (retire ends held objects of the verbs only). warn: the same, and a line
 *                       on stderr for each region. revoke: the object is destroyed at once, with
 *                       `in_use` set, and the memory is unpinned before the free returns; for
 *                       memory that is freed in stream order, when the driver hands it out again
 *   eviction, flush     objects of idle regions are destroyed; a held object keeps its region
 *   the owner ends      pindown_end_owner()
 *   the consumer ends   pindown_consumer_remove()
 *   fork()              a child abandons its parent's objects: they are neither found nor destroyed
 *                       there, and pindown_detach() ignores them
 *   exit                they are left alone
 *
 * No callback is called with a lock held, and all may call any pindown function. A callback that
 * asks for the very object that it is making or destroying gets PINDOWN_ERR_BUSY.
 */
typedef struct pindown_object pindown_object;

/*
 * Names one of a consumer's objects on a region. All three words are compared, unless the consumer
 * says otherwise (`rights` and `flags` below).
 */
struct pindown_key {
	uint64_t owner;	  /* for pindown_end_owner(): a protection domain, for example */
	uint64_t word[2]; /* the rest: access flags, an offset; 0 if not needed */
};

/* A range as a word of a key, rounded out to pages of PINDOWN_PAGE_SIZE; and its parts again. */
#define PINDOWN_KEY_RANGE(addr, length)                  \
	((((uint64_t)(addr) >> 16 & 0xffffffff) << 32) | \
	 ((((uint64_t)(addr) + (length)-1) >> 16) - ((uint64_t)(addr) >> 16) + 1))
#define PINDOWN_KEY_RANGE_BASE(word)   ((uint64_t)(word) >> 32 << 16)
#define PINDOWN_KEY_RANGE_LENGTH(word) (((uint64_t)(word)&0xffffffff) << 16)

/* A request for an object. Valid in the callback only. */
struct pindown_object_request {
	struct pindown_key key;
	pindown_region *region; /* held meanwhile */
	uint64_t addr;		/* with length: the range that was asked for */
	size_t length;
	void *request; /* the caller's, as it was passed */
};

/* Why an object is destroyed. Valid in the callback only. */
struct pindown_object_end {
	struct pindown_key key;
	void *data;		/* stored by create */
	pindown_region *region; /* still pinned, no longer found */
	int reason;		/* enum pindown_reason */
	int in_use;		/* 1: revoked while held: its data must not be used any more */
};

struct pindown_consumer {
	const char *name; /* at most 15 bytes count; for the trace and `pindown report` */

	/*
	 * Make the object. Return 0 and store *data, which may be NULL; or a negative
	 * pindown_result, which becomes the result of the call that asked; or a positive number of
	 * the consumer's own, an errno for example, which that call returns as
	 * PINDOWN_CREATE_FAILED(). Runs in the thread that asked. If the memory is freed meanwhile,
	 * that free waits for this function to return (two seconds at most), and the object is
	 * destroyed again. A descriptor that it gets from pindown_region_dmabuf() is valid until it
	 * returns. After it has returned 0 the descriptor is closed, since an import holds the
	 * buffer without it: even many registered regions don't use up the process's descriptors. A
	 * consumer that needs the descriptor for longer duplicates it.
	 */
	int (*create)(const struct pindown_object_request *what, void **data, void *arg);

	/*
	 * Destroy the object. Return 0, or a number that is recorded in the trace; the object is
	 * gone in either case. Called once for each object, in the thread that frees, evicts,
	 * detaches or ends the owner.
	 */
	int (*destroy)(const struct pindown_object_end *what, void *arg);

	void *arg; /* passed to both */

	/*
	 * Where there is no object of exactly the key, these let another one of the same owner
	 * serve. It is found as fast as one of that key, or nearly. 0: no other object serves.
	 */
	uint64_t rights; /* these bits of word[0] are rights: an object may have more of them. Not
			    for rights of a peer that is given the object's remote key */
#define PINDOWN_CONSUMER_RANGES 1u /* word[1] is a PINDOWN_KEY_RANGE(): it may be wider */
	uint64_t flags;
};

/*
 * Add a consumer. The structure is copied; `size` is the caller's sizeof of it. Returns a positive
 * id; or PINDOWN_ERR_INVALID; or PINDOWN_ERR_NO_MEMORY: at most 32 consumers.
 */
int pindown_consumer_add(const struct pindown_consumer *consumer, size_t size);

/*
 * Destroy all objects of a consumer, also held ones (with `in_use` set), and remove the consumer;
 * for a library that is unloaded. Returns 0 after the last running callback has ended, unless it is
 * called from that callback. pindown_detach() of its objects is harmless afterwards.
 * PINDOWN_ERR_INVALID: no such consumer. PINDOWN_ERR_DEADLOCK: this was called in a callback, or
 * while this thread frees memory, and another thread has been in a callback of the consumer for two
 * seconds, perhaps waiting for this one. The consumer then goes when that callback returns.
 */
int pindown_consumer_remove(int consumer);

/*
 * Do as pindown_get() does, then look up, or make, the consumer's object of this key on the region,
 * and hold the object, and with it the region.
 *
 * consumer  from pindown_consumer_add()
 * addr, length, flags  as for pindown_get(). With PINDOWN_GET_CACHED nothing is pinned or made, and
 *           PINDOWN_ERR_NOT_DEVICE says that there is no such object. With PINDOWN_GET_NOWAIT
 *           PINDOWN_ERR_WOULD_WAIT also says that another thread is making or destroying it
 * request   passed to create if it is called
 * object    out: held until pindown_detach(). Unchanged on failure.
 *
 * A hit costs a few nanoseconds more than a hit of pindown_get(): no lock, no system call. If two
 * threads ask for the same new object, one makes it and the other waits, a minute at most
 * (PINDOWN_ERR_TIMED_OUT); if the first fails, the other tries in its turn, and gets an error of
 * its own.
 */
int pindown_attach(int consumer, uint64_t addr, size_t length, unsigned flags,
		   const struct pindown_key *key, void *request, pindown_object **object);

/*
 * The same on a region that the caller holds and continues to hold. length 0: all of the region,
 * whatever addr is. PINDOWN_ERR_RANGE: the range does not lie in the region.
 * PINDOWN_ERR_NOT_DEVICE also says that the region is no longer live: see
 * pindown_region_is_live(). pindown_attach() looks the address up again.
 */
int pindown_attach_region(int consumer, pindown_region *region, uint64_t addr, size_t length,
			  unsigned flags, const struct pindown_key *key, void *request,
			  pindown_object **object);

/*
 * Drop one hold. The object stays for its next use, unless its memory has been freed: then the last
 * detach destroys the object and unpins the region. NULL is ignored, and so is a parent's object in
 * a child.
 */
void pindown_detach(pindown_object *object);

/*
 * Accessors, for an object that the caller holds. They never fail. The region is valid for as long
 * as the object is held: it needs no pindown_put(). After revocation data is NULL, the object is
 * not live, and the region may only be compared.
 */
void *pindown_object_data(const pindown_object *object);
pindown_region *pindown_object_region(const pindown_object *object);
/* 0: its region is no longer live, or its owner ended while it was held. */
int pindown_object_is_live(const pindown_object *object);

/*
 * The owner of keys is about to end (ibv_dealloc_pd()): destroy the consumer's idle objects of this
 * owner before returning, and wait for those that another thread is making or destroying. Held
 * objects stay until their last pindown_detach(), but no pindown_attach() finds them any more. So
 * the next owner of that number, which may be a pointer that malloc hands out again, gets objects
 * of its own; so does an owner that lives on after all. Returns how many objects stay because they
 * are held.
 *
 * PINDOWN_ERR_INVALID: no such consumer. PINDOWN_ERR_DEADLOCK: this was called in a callback, or
 * while this thread frees memory, and another thread that is making or destroying one of the
 * objects is itself waiting in pindown, perhaps for this thread. So one object may still be there
 * when this returns; it goes when the other thread can continue.
 */
int pindown_end_owner(int consumer, uint64_t owner);

/* ---- statistics -------------------------------------------------------------------------- */

/*
 * Counters since the process began (or since fork). `size` is the caller's sizeof(*stats), so that
 * a later version can add members. `device` is one device, or -1 for all of them. A member marked *
 * is kept for all devices together, and is 0 for one device. PINDOWN_ERR_INVALID: stats is NULL,
 * size is 0, or device is not from -1 to 63.
 */
struct pindown_stats {
	uint64_t hits;		/* * gets answered from the cache */
	uint64_t misses;	/* * gets that had to pin, or failed */
	uint64_t pins;		/* pins made */
	uint64_t unpins;	/* pins given back */
	uint64_t pin_failures;	/* * pins refused by the driver */
	uint64_t evictions;	/* regions unpinned for a budget or for pin space */
	uint64_t invalidations; /* regions unlinked because their memory ended */
	uint64_t lost_races;	/* * pins given up because a free of the memory began meanwhile */
	uint64_t missed_invalidations; /* * frees noticed after the driver made them: must be 0 */
	uint64_t tag_checks;	       /* * hits that were checked by buffer id */
	uint64_t regions, bytes;       /* pinned now; bytes of whole 64 KiB pages */
	uint64_t kept_regions, kept_bytes; /* of these: already freed, kept because in use */
	uint64_t peak_regions, peak_bytes;
	uint64_t max_regions, max_bytes; /* * the budgets in force */
	uint32_t intercepting;	  /* * 1: frees are watched; 0: every hit is checked by buffer id */
	uint32_t distrusted;	  /* * 1: it is 0 because a free was, or may be, missed */
	char backend[16];	  /* * "dmabuf", "none", ... */
	uint64_t objects;	  /* * consumer objects now, without revoked ones */
	uint64_t objects_made;	  /* * in all */
	uint64_t objects_revoked; /* * destroyed while held */
	/* Of the kept regions: those on which consumer objects are held. */
	uint64_t object_kept_regions, object_kept_bytes;
	/*
	 * * dma-bufs of regions that have a file descriptor, and how many may have one. Where a pin
	 * is a dma-buf ("dmabuf"), no more regions are pinned than that, without the registered
	 * ones. The limit is half of the process's soft limit, which may change. 0: a pin takes no
	 * descriptor.
	 */
	uint64_t dmabufs, max_dmabufs;
	/* * pins made by the driver's dma-buf because pindown.ko refused (PINDOWN_BACKEND=auto) */
	uint64_t fallbacks;
	/*
	 * * registrations made from a dma-buf which another registration of the region had used:
	 * exports saved
	 */
	uint64_t exports_saved;
	/*
	 * * Freed ranges of which the program held a registration (PINDOWN_HELD=retire): the
	 * registration ended with the free, and the driver was kept from handing the address out
	 * again. In all; now, and their bytes of address space; those that were let go while their
	 * registration was still held, as there were too many or the program asked for the address;
	 * and addresses that were handed out all the same: should be 0.
	 */
	uint64_t retired, retired_ranges, retired_bytes, retired_dropped, escapes;
	/*
	 * * The same where the registration was kept, as this memory is not retired: a cache by
	 * address may find it for other memory.
	 */
	uint64_t unprotected;
	/* * registrations of GPU memory that were left to libibverbs: nothing here ends them */
	uint64_t left_to_card;
};
int pindown_stats(struct pindown_stats *stats, size_t size, int device);

/*
 * Counters of one consumer, since it was added or the process was forked. `size` is the caller's
 * sizeof(*stats). PINDOWN_ERR_INVALID: no such consumer, stats is NULL, or size is 0.
 */
struct pindown_consumer_stats {
	uint64_t objects;	/* now, without revoked ones */
	uint64_t held_objects;	/* of these: held */
	uint64_t kept_objects;	/* of these: their memory or owner has ended */
	uint64_t objects_made;	/* in all */
	uint64_t create_errors; /* creates that failed */
	uint64_t objects_revoked;
};
int pindown_consumer_stats(int consumer, struct pindown_consumer_stats *stats, size_t size);

/*
 * Call visit with each region; or with each object of a consumer (0: of all). A visitor gets a copy
 * that was made just before, and is called without a lock held. It may do what a callback may, and
 * need not return. Regions and objects that exist during the whole call are visited once; those
 * that come or go meanwhile are visited or not. Ends when the visitor returns another number than
 * 0. Returns how many were visited. Making each copy takes the cache's lock for a moment.
 * PINDOWN_ERR_INVALID: visit is NULL, or consumer is negative.
 */
struct pindown_region_info {
	uint64_t base, length, pin_base, pin_length, buffer_id; /* as the accessors' */
	void *context;
	int device;
	int is_volatile;
	int is_live; /* see pindown_region_is_live() */
	int in_use;  /* 1: it was held, or one of its objects was */
};
typedef int (*pindown_region_visitor)(const struct pindown_region_info *region, void *arg);
int pindown_each_region(pindown_region_visitor visit, void *arg);

struct pindown_object_info {
	struct pindown_key key;
	uint64_t base, length; /* of its region */
	int consumer;
	int is_live; /* 0: its memory or owner has ended while it was held */
	int in_use;  /* 1: it was held */
};
typedef int (*pindown_object_visitor)(const struct pindown_object_info *object, void *arg);
int pindown_each_object(int consumer, pindown_object_visitor visit, void *arg);

/* The version of the loaded library, for example "0.2". */
const char *pindown_version(void);

#ifdef __cplusplus
}
#endif
#endif
