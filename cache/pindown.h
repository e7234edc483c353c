/* SPDX-License-Identifier: MIT */
/*
 * pindown.h - a registration cache (pin-down cache) for GPU memory.
 *
 * A region is one allocation of device memory that is pinned for a third-party device, rounded out
 * to 64 KiB; in memory pools, it begins where the pool's piece of memory begins that the allocation
 * was cut from, since the driver pins no less. pindown_get() finds or pins the region that holds an
 * address range and holds it; pindown_put() drops the hold and leaves the region pinned (lazy
 * unpinning) until the memory is freed, until a budget needs its place, or until pindown_flush().
 *
 * With libpindown.so preloaded, the cache is notified of each free before the driver carries it
 * out. Without the preload (a program that only links with -lpindown) every hit is checked by
 * buffer id instead, which costs a driver call; pindown_stats() says which of the two is in force.
 *
 * Thread safety: every function may be called from any thread at any time, from a subscriber's
 * callback and from handlers of pthread_atfork() too, but not from a signal handler. No callback is
 * called with a lock held.
 *
 * A callback must return: no C++ exception and no longjmp() may leave it, and it must not end its
 * thread with pthread_exit(). The thread's work would stay half done: after pthread_exit() a line
 * says so and the memory stays pinned; the others are not noticed. Threads may be cancelled at any
 * time: pindown disables cancellation while it pins, unpins or calls back, so that it is acted on
 * afterwards. A hit is no cancellation point.
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
#define PINDOWN_VERSION_MINOR 1
#define PINDOWN_VERSION	      ((PINDOWN_VERSION_MAJOR << 16) | PINDOWN_VERSION_MINOR)

/* GPU BAR space is mapped in pages of this size; a pin covers whole pages (§2.2). */
#define PINDOWN_PAGE_SIZE 65536u

/*
 * The result of a call: 0, or one of these negative numbers. pindown_strerror() has a sentence for
 * each. Every function that returns int returns one of them.
 */
enum pindown_result {
	PINDOWN_OK = 0,
	PINDOWN_ERR_INVALID = -1,  /* an argument is NULL, zero, wraps round or has unknown flags */
	PINDOWN_ERR_DISABLED = -2, /* PINDOWN=0, or pindown switched itself off and said why */
	PINDOWN_ERR_NO_CUDA = -3, /* no CUDA driver is loaded in this process, or it is shut down */
	PINDOWN_ERR_NOT_DEVICE = -4, /* the address is not memory that the CUDA driver knows */
	PINDOWN_ERR_HOST = -5,	     /* the address is host memory: register it as host memory */
	PINDOWN_ERR_MANAGED = -6,  /* managed memory migrates and can't be pinned (§2.2, §4.1) */
	PINDOWN_ERR_RANGE = -7,	   /* the range runs past the end of its allocation */
	PINDOWN_ERR_NO_SPACE = -8, /* no pin space left, also after eviction; or above the budget */
	PINDOWN_ERR_BUSY = -9, /* the memory is being freed by another call that has not ended */
	PINDOWN_ERR_NO_BACKEND = -10, /* no way to pin on this device (no dma-buf support) */
	PINDOWN_ERR_DRIVER = -11, /* the CUDA driver refused; pindown_driver_error() has its code */
	PINDOWN_ERR_NO_MEMORY = -12, /* no host memory for the cache's own records */
	PINDOWN_ERR_NO_DMABUF = -13, /* the backend in use has no dma-buf descriptors */
	PINDOWN_ERR_DEADLOCK = -14,  /* another thread does the same, and may wait for this one */
};

/* A sentence in English for a result, never NULL, for unknown numbers too. Never fails. */
const char *pindown_strerror(int result);

/*
 * The CUresult behind the last PINDOWN_ERR_DRIVER (or NO_SPACE, or NOT_DEVICE) that this thread
 * got; 0 when there was none.
 */
int pindown_driver_error(void);

/* ---- regions ----------------------------------------------------------------------------- */

typedef struct pindown_region pindown_region;

/*
 * Look up, and on a miss pin, the region that holds [addr, addr + length), and hold it (§2.1,
 * §2.2).
 *
 * addr    a device address of this process
 * length  bytes, at least 1; the range must lie within one allocation (for memory that was mapped
 *         with cuMemMap: within adjacent mappings)
 * flags   0, or PINDOWN_GET_CACHED: answer a hit only, PINDOWN_ERR_NOT_DEVICE on a miss; no pin
 * region  out: the region, held until pindown_put(). Unchanged on failure.
 *
 * A hit takes no lock, makes no system call and does not call the driver, except for one hit in
 * some 4096, unless the region is volatile, a free may have been missed, or PINDOWN_VERIFY=always.
 * A miss calls the driver, sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS (§2.7) and pins the whole
 * allocation. A get that meets a free of the same memory in another thread waits for that free to
 * end (two seconds at most) and then asks the driver again.
 */
#define PINDOWN_GET_CACHED 1u
int pindown_get(uint64_t addr, size_t length, unsigned flags, pindown_region **region);

/*
 * Drop one hold. The region stays pinned for its next use; if its memory has been freed meanwhile,
 * the last put unpins it, or leaves that to another thread's put that does so just then: a free
 * that begins now waits for it either way. NULL is ignored. After fork() a child's put of a
 * parent's region is ignored: the child holds no pin.
 */
void pindown_put(pindown_region *region);

/*
 * Accessors, for a region that the caller holds. They never fail and never call the driver, except
 * for pindown_region_dmabuf().
 */
uint64_t pindown_region_base(const pindown_region *region);	/* start of the allocation */
size_t pindown_region_length(const pindown_region *region);	/* its bytes */
uint64_t pindown_region_pin_base(const pindown_region *region); /* start of the pinned range */
size_t pindown_region_pin_length(const pindown_region *region); /* its bytes: whole 64 KiB pages */
uint64_t
pindown_region_buffer_id(const pindown_region *region); /* CU_POINTER_ATTRIBUTE_BUFFER_ID (§3.5) */
void *pindown_region_context(const pindown_region *region); /* CUcontext, NULL for pool memory */
int pindown_region_device(const pindown_region *region);    /* CUDA device ordinal */
int pindown_region_is_volatile(
	const pindown_region *region);			  /* 1: each hit is checked by buffer id */
int pindown_region_is_live(const pindown_region *region); /* 0: its memory was freed while held */

/*
 * The dma-buf of a held region. *fd is owned by the region: don't close it, dup it to keep it; it
 * is close-on-exec. *offset is where `addr` lies in the dma-buf. PINDOWN_ERR_NO_DMABUF when the
 * backend has none; a dma-buf that pindown_region_close_dmabuf() has closed is exported again, and
 * PINDOWN_ERR_NOT_DEVICE says that the memory has been freed since.
 */
int pindown_region_dmabuf(pindown_region *region, uint64_t addr, int *fd, uint64_t *offset);

/*
 * The consumer has imported the dma-buf and no longer needs the descriptor: close it, so that many
 * regions don't use up the process's descriptors. The consumer's import keeps the pin. Only for a
 * region the caller holds, and not while another user of the region may be about to use the number.
 */
void pindown_region_close_dmabuf(pindown_region *region);

/* ---- invalidation ------------------------------------------------------------------------ */

/*
 * Unlink every region that overlaps [addr, addr + length), unpin those that are idle before the
 * call returns, and those in use at their last put (§2.3, §3.4). With length 0: the region that
 * holds addr. Returns the number of regions unlinked, or a negative pindown_result.
 */
int pindown_invalidate(uint64_t addr, size_t length);

/* The same for every region of a CUcontext. */
int pindown_invalidate_context(void *context);

/* Unpin every idle region. Regions in use stay. Returns how many were unpinned. */
int pindown_flush(void);

/*
 * Be notified when a region stops being valid, before it is unpinned and, under the preload, before
 * the driver frees the memory: the place to deregister everything that was built on the region. The
 * callback runs in the thread that frees or evicts, without any lock of pindown; it may call any
 * pindown function, also pindown_put() for a hold of its own. The invalidation waits for it to
 * return.
 */
enum pindown_reason {
	PINDOWN_REASON_FREED = 1,   /* the program ends the memory */
	PINDOWN_REASON_CONTEXT = 2, /* the context that owns it ends */
	PINDOWN_REASON_EVICTED = 3, /* its place is needed: budget or pin space */
	PINDOWN_REASON_FLUSHED = 4, /* pindown_flush(), pindown_invalidate() */
	PINDOWN_REASON_STALE = 5,   /* its buffer id no longer matches */
	PINDOWN_REASON_OWNER = 6,   /* of objects: pindown_end_owner(), pindown_consumer_remove() */
	PINDOWN_REASON_ORDERED = 7, /* the program frees the memory in stream order */
};

struct pindown_invalidation {
	uint64_t base, length; /* the allocation */
	uint64_t buffer_id;
	int reason;		/* enum pindown_reason */
	int in_use;		/* 1: somebody holds it; it is unpinned at the last put */
	pindown_region *region; /* to compare with one that you hold; valid in the callback */
};

typedef void (*pindown_callback)(const struct pindown_invalidation *what, void *arg);

/*
 * Subscribe returns a positive id, or a negative pindown_result (PINDOWN_ERR_NO_MEMORY: at most 64
 * subscribers). Unsubscribe returns after the last running callback has ended, unless it is called
 * from that callback.
 */
int pindown_subscribe(pindown_callback callback, void *arg);
int pindown_unsubscribe(int id);

/* ---- consumer objects -------------------------------------------------------------------- */

/*
 * A consumer can attach what it builds on a region, a memory registration of a NIC for example, to
 * the region: such an object is made once for each (region, consumer, key), found again on the next
 * hit, and destroyed before the region is unpinned. While an object is held its region stays
 * pinned; an object that nobody holds stays for its next use, as the region does (lazy unpinning),
 * and goes with the region:
 *
 *   the memory ends     idle objects are destroyed before the free returns. Held ones: see
 *                       PINDOWN_HELD in pindown(7). keep: the object and the pin stay until the
 *                       last pindown_detach(), and their bytes are counted; warn: the same, and a
 *                       line on stderr for each region; revoke: it is destroyed at once, with
 *                       `in_use` set, and the pin is given back before the free returns; or, of
 *                       memory that is freed in stream order, when the driver hands it out again
 *   eviction, flush     objects of idle regions are destroyed; a held object keeps its region
 *   the owner ends      pindown_end_owner()
 *   the consumer goes   pindown_consumer_remove()
 *   fork()              a child abandons its parent's objects: they are neither found nor destroyed
 *                       there, and pindown_detach() of them is ignored
 *   exit                they are left alone
 *
 * No callback is called with a lock held, and all may call any pindown function. A
 * callback that asks for the very object that it is just making or destroying gets
 * PINDOWN_ERR_BUSY.
 */
typedef struct pindown_object pindown_object;

/* Identifies one of a consumer's objects on a region. All three words are compared. */
struct pindown_key {
	uint64_t owner;	  /* for pindown_end_owner(): a protection domain, for example */
	uint64_t word[2]; /* the rest: access flags, an offset; unused words are 0 */
};

/* Why an object is destroyed. Valid in the callback only. */
struct pindown_object_end {
	struct pindown_key key;
	void *data;		/* the data that create returned */
	pindown_region *region; /* still pinned, no longer found */
	int reason;		/* enum pindown_reason */
	int in_use; /* 1: revoked, somebody holds it: its data must not be used any more */
};

struct pindown_consumer {
	const char *name; /* at most 15 bytes count; for the trace and `pindown report` */

	/*
	 * Make the object of a key on a region, which is held meanwhile: 0 and *data, which may be
	 * NULL; or a positive number of the consumer's own, an errno for example, which becomes
	 * the result of the call that asked. `request` is that call's. Runs in the thread that
	 * asked. If the memory is freed meanwhile, that free waits for it to return (two seconds
	 * at most) and the object is destroyed again. A descriptor that it asks
	 * pindown_region_dmabuf() for is good until it returns. If it returns 0 the descriptor is
	 * then closed, as an import holds the buffer without it: registered regions don't use up
	 * the process's descriptors. Duplicate it if you need it for longer.
	 */
	int (*create)(pindown_region *region, const struct pindown_key *key, void *request,
		      void **data, void *arg);

	/*
	 * Destroy it: 0, or a number that is written into the trace; the object is gone either way.
	 * Called once for each object, in the thread that frees, evicts, detaches or ends the
	 * owner.
	 */
	int (*destroy)(const struct pindown_object_end *what, void *arg);

	void *arg; /* passed to both */
};

/*
 * Become a consumer. The structure is copied; `size` is the caller's sizeof of it. Returns a
 * positive id; or PINDOWN_ERR_INVALID, or PINDOWN_ERR_NO_MEMORY: at most 32 consumers.
 */
int pindown_consumer_add(const struct pindown_consumer *consumer, size_t size);

/*
 * Destroy all objects of a consumer, held ones too (with `in_use` set), and forget it; for a
 * library that is unloaded. Returns 0 after the last running callback has ended, unless it is
 * called from that callback. pindown_detach() of its objects is harmless afterwards.
 * PINDOWN_ERR_INVALID: no such consumer.
 */
int pindown_consumer_remove(int consumer);

/*
 * pindown_get() and look up, or make, the consumer's object of this key on the region; hold the
 * object, and with it the region.
 *
 * consumer  from pindown_consumer_add()
 * addr, length, flags  as for pindown_get(); with PINDOWN_GET_CACHED nothing is pinned or made, and
 *           PINDOWN_ERR_NOT_DEVICE says that there is no such object
 * request   passed to create if it is called
 * object    out: held until pindown_detach(). Unchanged on failure.
 *
 * Returns 0, a negative pindown_result, or the positive number that create has returned. A hit
 * costs a few nanoseconds more than a hit of pindown_get(): no lock, no system call. Of two threads
 * that ask for the same new object one makes it and the other waits for that; when it fails, the
 * other tries in its turn and has an error of its own.
 */
int pindown_attach(int consumer, uint64_t addr, size_t length, unsigned flags,
		   const struct pindown_key *key, void *request, pindown_object **object);

/*
 * The same on a region that the caller holds, and continues to hold. PINDOWN_ERR_NOT_DEVICE also
 * when the memory of the region has been freed since.
 */
int pindown_attach_region(int consumer, pindown_region *region, unsigned flags,
			  const struct pindown_key *key, void *request, pindown_object **object);

/*
 * Drop one hold. The object stays for its next use, unless its memory has been freed: then the last
 * one destroys it and unpins the region. NULL is ignored, as is a parent's object in a child.
 */
void pindown_detach(pindown_object *object);

/*
 * Accessors, for an object that the caller holds. They never fail. The region is good for as long
 * as the object is held: it needs no pindown_put(). After revocation data is NULL, the object is
 * not live, and the region is only good for a comparison.
 */
void *pindown_object_data(const pindown_object *object);
pindown_region *pindown_object_region(const pindown_object *object);
int pindown_object_is_live(
	const pindown_object *object); /* 0: its memory or its owner ended while it was held */

/*
 * The owner of keys is about to end (ibv_dealloc_pd()): destroy the consumer's idle objects of this
 * owner before returning, and wait for those that another thread is just making or destroying. Held
 * ones stay to their last pindown_detach(), and no pindown_attach() finds them any more: the next
 * owner of that number, which may be a pointer that malloc hands out again, gets objects of its
 * own. An owner that lives on after all gets new ones, too. Returns how many stay because they are
 * held; or PINDOWN_ERR_INVALID: no such consumer. PINDOWN_ERR_DEADLOCK: called in a callback, or
 * while this thread frees memory, and another thread that is making or destroying one of them is
 * itself waiting in pindown, perhaps for this thread; so one may still be there when this returns,
 * and goes when the other thread can continue.
 */
int pindown_end_owner(int consumer, uint64_t owner);

/* ---- what is pinned ---------------------------------------------------------------------- */

/*
 * Counters since the process began (or since fork). `size` is sizeof(*stats) of the caller, so that
 * a later version can add members. For one device with `device` >= 0, for all with -1: a member
 * that is not kept by device (marked *) is then 0.
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
	uint64_t missed_invalidations; /* * frees noticed too late, by buffer id; 0 unless a bug */
	uint64_t tag_checks;	       /* * hits that were checked by buffer id */
	uint64_t regions, bytes;       /* pinned now; bytes of whole 64 KiB pages */
	uint64_t kept_regions, kept_bytes; /* of these: memory already freed, kept because in use */
	uint64_t peak_regions, peak_bytes;
	uint64_t max_regions, max_bytes; /* * the budgets in force */
	uint32_t intercepting; /* * 1: frees are watched; 0: every hit is checked by buffer id */
	uint32_t distrusted;   /* * 1: every hit is checked because a free may have been missed */
	char backend[16];      /* * "dmabuf", "none", ... */
	uint64_t objects;      /* * consumer objects now, revoked ones not counted */
	uint64_t objects_made; /* * in all */
	uint64_t objects_revoked; /* * destroyed while held */
	/* Of the kept regions: those on which consumer objects are held. */
	uint64_t object_kept_regions, object_kept_bytes;
	/*
	 * * dma-bufs of regions that have a file descriptor, and how many may have one: where a
	 * pin is a dma-buf ("dmabuf") no more regions are pinned, those that are registered not
	 * counted. It is half of the process's soft limit, which may change. 0: a pin takes no
	 * descriptor.
	 */
	uint64_t dmabufs, max_dmabufs;
	/* * pins made by the driver's dma-buf because pindown.ko refused (PINDOWN_BACKEND=auto) */
	uint64_t fallbacks;
};
int pindown_stats(struct pindown_stats *stats, size_t size, int device);

/* "0.1" and so on, of the library that is loaded. */
const char *pindown_version(void);

#ifdef __cplusplus
}
#endif
#endif
