/* SPDX-License-Identifier: MIT */
/*
 * The table of regions. A region's record stays where it is for good and is reused under the same
 * number, so that a reader without a lock may look at any of them and then find that it is not, or
 * no longer, what it wants.
 *
 * Who may touch what, in these tables. All but the uses are written under the lock:
 *   base, end, word, a brief's	before the region is LIVE; read without the lock, by hits
 *   pages
 *   word_value			the same; pdn_region_stands() may renew it while the region is held
 *   a brief's state		read without the lock, by hits; from live to PAST also changed
 *				without it
 *   a brief's uses		counted by any thread, without the lock
 *   flags			also while the region is held; read without the lock
 *   reason			read by holders, and by the thread that ends the region
 *   next			read by the thread that ends the region
 *   older, newer, queue, dmabuf_users	read under the lock
 *   backings			also by the thread that unpins the region; a holder may read the
 *				handle
 *   device, buffer_id, owner,	before the region is LIVE; constant until its record is free
 *   rests
 */
#ifndef PDN_REGION_H
#define PDN_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/thread/barrier.h"
#include "cache/backend/backend.h"
#include "cache/driver/driver.h"
#include "cache/hit/index.h"
#include "cache/pindown.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/stripes.h"
#include "cache/base/memory/table.h"
#include "cache/base/thread/thread.h"
#include "cache/backend/revocation.h"

/*
 *	FREE -> LIVE or CHECKED		pinned and found by get
 *	LIVE or CHECKED -> PAST		its memory was replaced (past.h); it is still linked, and
 *					ends as a live one does
 *	LIVE -> DYING -> FREE		idle: unlinked, then unpinned by one thread without the lock
 *	LIVE -> KEPT -> DYING -> FREE	in use: unlinked, unpinned at the last put
 */
enum pdn_state {
	PDN_FREE,
	PDN_LIVE,
	PDN_CHECKED, /* live, but each hit asks the driver for the buffer id */
	PDN_PAST,
	PDN_DYING,
	PDN_KEPT,
};

/*
 * All that most hits read: the less memory this takes, the more of it is in the processor's caches.
 * `pages` are those that the region has entirely. A page at its end that it shares is not among
 * them, nor are pages beyond 4 GiB, nor those of a region that the kernel can revoke: then the
 * record says more.
 */
struct pdn_brief {
	uint32_t first_page;
	uint16_t pages;
	uint8_t state; /* enum pdn_state */
	uint8_t used;  /* how often it was used since the last look; see evict.c */
};

_Static_assert(PDN_ADDRESS_LIMIT >> PDN_PAGE_SHIFT == 1ull << 32,
	       "first_page has each page that the index takes: it refuses what lies beyond");

/*
 * A region's record: one cache line, as an end and a pin use most of it. Its address identifies it.
 * Where it is pinned follows from base and end, but for a PIECE.
 */
struct pindown_region {
	uint64_t base, end; /* the allocation */
	/* Valid while pdn_revocation_words[word] has this value; see revocation.h. */
	uint32_t word, word_value;
	uint32_t older, newer; /* the queue that it is in; region numbers */
	uint16_t flags;	       /* PDN_REGION_* */
	uint16_t dmabuf_users; /* of its descriptor: see region_dmabuf.h */
	uint8_t reason;	       /* enum pindown_reason, once it is no longer live */
	uint8_t queue;	       /* of live regions: see evict.c, and PDN_QUEUE_SETTLED */
	int16_t device;
	uint32_t next; /* the next one in a list of regions being ended, or of free records */
	uint64_t buffer_id;
	void *owner; /* the pool, with POOL; or the context whose end ends it, or NULL */
} __attribute__((aligned(64)));

/* With BACKED: what a backend has of the pin. */
struct pdn_backing {
	uint64_t fd_identity; /* as in struct pdn_pin */
	uint32_t descriptor;  /* fd + 1; 0: none */
	uint32_t handle;
};

/*
 * Few regions need this: those with SPANS, PIECE, or WINDOW and a context. No region has two of
 * these at once that need it.
 */
union pdn_kind_data {
	uint64_t mappings_hash; /* SPANS: see struct pdn_allocation */
	uint64_t pin_base;	/* PIECE */
	struct {
		uint64_t whole_base, whole_end; /* WINDOW and a context: of the allocation */
	};
};

#define PDN_QUEUE_SETTLED 1u /* a bit of `queue`: no newcomer any more */

extern PDN_HIDDEN struct pindown_region *pdn_regions; /* [0] is never used: 0 means none */
extern PDN_HIDDEN struct pdn_brief *pdn_briefs;
extern PDN_HIDDEN struct pdn_backing *pdn_backings;
extern PDN_HIDDEN union pdn_kind_data *pdn_kind_data;

static inline uint32_t pdn_region_number(const struct pindown_region *region)
{
	return (uint32_t)(region - pdn_regions);
}

static inline struct pdn_brief *pdn_brief_of(const struct pindown_region *region)
{
	return &pdn_briefs[pdn_region_number(region)];
}

/*
 * Relaxed: where it matters what else is seen, the lock is held, under which states change, but for
 * one that is live and becomes PAST at any moment.
 */
static inline uint32_t pdn_state_of(uint32_t number)
{
	return __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED);
}

#define PDN_REGION_VOLATILE  1u	  /* in a range where frees can't all be seen */
#define PDN_REGION_NO_SYNC   2u	  /* SYNC_MEMOPS is not supported for its memory */
#define PDN_REGION_MISSED    4u	  /* its free was noticed only after the driver had made it */
#define PDN_REGION_SPANS     8u	  /* several mappings side by side */
#define PDN_REGION_OBJECTS   16u  /* counted as kept because consumer objects on it are held */
#define PDN_REGION_AWAITS    32u  /* see pdn_first_awaiting() */
#define PDN_REGION_WINDOW    64u  /* a part of its allocation or mappings; see growth.h */
#define PDN_REGION_REPLACED  128u /* by a region that reaches over it */
#define PDN_REGION_FELL_BACK 256u /* as in struct pdn_pin, as is the next */
#define PDN_REGION_PCIE	     512u
#define PDN_REGION_BACKED    1024u  /* there is something in its struct pdn_backing */
#define PDN_REGION_POOL	     2048u  /* `owner` is a pool */
#define PDN_REGION_PIECE     4096u  /* pinned from before its first page on */
#define PDN_REGION_UNASKED   8192u  /* its hits are checked: see end_or_check() in recheck.c */
#define PDN_REGION_ENDS_HELD 16384u /* objects on it end with it although they are held */
#define PDN_REGION_LEAVING   32768u /* a stream frees its memory later: see pdn_ends_later() */

/* With either of these its hits are checked, unless PINDOWN_VERIFY says otherwise. */
#define PDN_REGION_CHECKED (PDN_REGION_VOLATILE | PDN_REGION_UNASKED)

/*
 * Flags may change while a thread without the lock looks: VOLATILE may come and go while the region
 * is held (volatile.c). Relaxed, as is pdn_region_set_flags().
 */
static inline uint16_t pdn_region_flags(const struct pindown_region *region)
{
	return __atomic_load_n(&region->flags, __ATOMIC_RELAXED);
}

static inline __attribute__((always_inline)) void
pdn_region_set_flags(struct pindown_region *region, unsigned flags)
{
	__atomic_store_n(&region->flags, (uint16_t)flags, __ATOMIC_RELAXED);
}

static inline bool pdn_region_is_volatile(const struct pindown_region *region)
{
	return pdn_region_flags(region) & PDN_REGION_VOLATILE;
}

static inline union pdn_kind_data *pdn_kind_data_of(const struct pindown_region *region)
{
	return &pdn_kind_data[pdn_region_number(region)];
}

static inline uint64_t pdn_region_mappings_hash(const struct pindown_region *region)
{
	return pdn_region_flags(region) & PDN_REGION_SPANS ? pdn_kind_data_of(region)->mappings_hash
							   : 0;
}

/* The context whose end ends it; NULL for memory of a pool, and mapped memory. */
static inline void *pdn_region_context(const struct pindown_region *region)
{
	return pdn_region_flags(region) & PDN_REGION_POOL ? NULL : region->owner;
}

static inline void *pdn_region_pool(const struct pindown_region *region)
{
	return pdn_region_flags(region) & PDN_REGION_POOL ? region->owner : NULL;
}

/* The base of the pin of a region that is a piece of an allocation. */
uint64_t pdn_region_piece_base(const struct pindown_region *region);

/* Whole pages, whose memory ends with the region's. */
static inline __attribute__((always_inline)) uint64_t
pdn_region_pin_base(const struct pindown_region *region)
{
	if (__builtin_expect(pdn_region_flags(region) & PDN_REGION_PIECE, 0))
		return pdn_region_piece_base(region);
	return region->base & -(uint64_t)PINDOWN_PAGE_SIZE;
}

static inline __attribute__((always_inline)) uint64_t
pdn_region_pin_length(const struct pindown_region *region)
{
	return ((region->end + PINDOWN_PAGE_SIZE - 1) & -(uint64_t)PINDOWN_PAGE_SIZE) -
	       pdn_region_pin_base(region);
}

/* Lock held, or the region is this thread's. The descriptor, which may be closed; or -1. */
static inline int pdn_region_fd(const struct pindown_region *region)
{
	return pdn_region_flags(region) & PDN_REGION_BACKED
		       ? (int)pdn_backings[pdn_region_number(region)].descriptor - 1
		       : -1;
}

/*
 * The pin as the backends know it. Relaxed: word_value may be renewed without the lock, see
 * pdn_region_stands().
 */
void pdn_region_add_to_pin(const struct pindown_region *region, struct pdn_pin *pin);

static inline void pdn_region_copy_pin(const struct pindown_region *region, struct pdn_pin *pin)
{
	*pin = (struct pdn_pin){
		.base = pdn_region_pin_base(region),
		.length = pdn_region_pin_length(region),
		.device = region->device,
		.fd = -1,
		.word = __atomic_load_n(&region->word, __ATOMIC_RELAXED),
		.word_value = __atomic_load_n(&region->word_value, __ATOMIC_RELAXED),
	};
	if (pdn_region_flags(region) &
	    (PDN_REGION_SPANS | PDN_REGION_FELL_BACK | PDN_REGION_PCIE | PDN_REGION_BACKED))
		pdn_region_add_to_pin(region, pin);
}

/* The same, where it is not all that counts. */
struct pdn_pin pdn_region_pin(const struct pindown_region *region);

/* Lock held. It has this descriptor now. */
void pdn_region_set_dmabuf(struct pindown_region *region, const struct pdn_pin *pin);

/* Lock held, or the region is this thread's. It has none any more. */
void pdn_region_drop_dmabuf(struct pindown_region *region);

/* Lock held. The record is new: it gets all but its place in the index and in a queue. */
void pdn_region_fill(struct pindown_region *region, const struct pdn_allocation *what,
		     const struct pdn_pin *pin, unsigned flags);

/*
 * Consumer objects (objects/object.h): the first one of each region, by its number; and the table
 * of their records, which is reserved with those of the regions.
 */
#define PDN_OBJECT_BYTES 64
extern uint32_t *pdn_objects_of;
extern uint32_t *pdn_object_trees; /* see objects/lookup.c */
bool pdn_object_trees_begin(void); /* lock held: memory for them; false: it is short */
extern struct pdn_table pdn_object_table;

/* Hold counts, by stripe and number: of regions, and of their objects. */
extern PDN_HIDDEN uint32_t *pdn_holds[PDN_STRIPES], *pdn_object_holds[PDN_STRIPES];

/* Lock held. Take a record, or 0 when the table is full or memory is short; give one back. */
uint32_t pdn_region_alloc(void);
void pdn_region_free(uint32_t number);
extern PDN_HIDDEN uint32_t
	pdn_region_limit;		  /* numbers go from 1 to here; 0 before the first region */
extern PDN_HIDDEN uint32_t pdn_put_limit; /* the same, or 0: each put is looked at (misuse.h) */
extern PDN_HIDDEN bool pdn_debugging;	  /* PINDOWN_DEBUG, from the first region on */
uint32_t pdn_region_capacity(void);	  /* what the limit is, or would be */
uint32_t pdn_region_high_water(void);	  /* numbers above it were never used */
void pdn_region_trim(void);		  /* no region exists: give the memory back */
void pdn_regions_forget(void);		  /* in a child: none is live, or kept */

/*
 * For a child, wherever other threads were when it was forked: the pins of all records that were
 * ever in use.
 */
void pdn_region_each_pin(void (*fn)(struct pdn_pin *pin));

/*
 * Relaxed, here and below: base and end stand while a region is live. A thread without the lock has
 * loaded that state with acquire behind its announcement (hold_if()), or takes the answer for a
 * hint.
 */
static inline uint64_t pdn_region_base_now(uint32_t number)
{
	return __atomic_load_n(&pdn_regions[number].base, __ATOMIC_RELAXED);
}

static inline bool pdn_region_holds(const struct pindown_region *region, uint64_t addr,
				    uint64_t length)
{
	uint64_t base = __atomic_load_n(&region->base, __ATOMIC_RELAXED);
	uint64_t end = __atomic_load_n(&region->end, __ATOMIC_RELAXED);

	return addr >= base && addr < end && length <= end - addr;
}

static inline bool pdn_region_overlaps(const struct pindown_region *region, uint64_t begin,
				       uint64_t end)
{
	return __atomic_load_n(&region->base, __ATOMIC_RELAXED) < end &&
	       begin < __atomic_load_n(&region->end, __ATOMIC_RELAXED);
}

/*
 * Has the kernel not revoked it? One load; always true for pins that the kernel does not watch. For
 * a region of several pins this compares the count of all revocations, also of other regions: ask
 * pdn_region_stands() before such a region is treated as stale.
 */
static inline bool pdn_region_word_stands(const struct pindown_region *region)
{
	return pdn_revocation_word(__atomic_load_n(&region->word, __ATOMIC_RELAXED)) ==
	       __atomic_load_n(&region->word_value, __ATOMIC_RELAXED);
}

/* The same, exactly. The region is held, or live with the lock held. */
bool pdn_region_stands(struct pindown_region *region);

static inline bool pdn_state_is_live(uint32_t state)
{
	return state == PDN_LIVE || state == PDN_CHECKED;
}

/* Lock held. Is it in the index and the queues? Threads may still be in a hit of a PAST one. */
static inline bool pdn_state_is_linked(uint32_t state)
{
	return pdn_state_is_live(state) || state == PDN_PAST;
}

/* Kept because a wider region has replaced it; its memory lives on, as far as is known. */
static inline bool pdn_region_is_replaced(uint32_t number)
{
	return pdn_regions[number].flags & PDN_REGION_REPLACED &&
	       pdn_regions[number].reason == PINDOWN_REASON_EVICTED;
}

/*
 * Lock held; the region is held. Has its memory not ended, as far as is known? For one that was
 * replaced only the driver can tell (pdn_compare()).
 */
static inline bool pdn_region_has_memory(const struct pindown_region *region)
{
	uint32_t state = pdn_state_of(pdn_region_number(region));

	return pdn_state_is_live(state) ||
	       (state == PDN_KEPT && pdn_region_is_replaced(pdn_region_number(region)));
}

/* One more hold, or one less, by this thread. A sum over all stripes tells whether any is left. */
void pdn_hold_shared(uint32_t *const *counts, struct pdn_thread *self, uint32_t number,
		     uint32_t change);

/* In counts where only this thread writes. */
static inline void pdn_hold_own(uint32_t *holds, uint32_t number, uint32_t change)
{
	pdn_add_unfenced(&holds[number], change);
}

static inline void pdn_hold_change(struct pdn_thread *self, uint32_t number, uint32_t change)
{
	if (__builtin_expect(self->holds != 0, 1))
		pdn_hold_own(self->holds, number, change);
	else
		pdn_hold_shared(pdn_holds, self, number, change);
}

static inline void pdn_hold(struct pdn_thread *self, uint32_t number)
{
	pdn_hold_change(self, number, 1);
}

static inline void pdn_unhold(struct pdn_thread *self, uint32_t number)
{
	pdn_hold_change(self, number, -1u);
}

/*
 * Pairs with pdn_hold_own() across pdn_heavy_barrier(), and with pdn_hold_shared(). A thread's
 * stripe is in use before its first hold in it: a thread that sees the hold sees that.
 */
static inline bool pdn_holds_any(uint32_t *const *counts, uint32_t number)
{
	uint32_t words = __atomic_load_n(&pdn_stripe_words, __ATOMIC_SEQ_CST), sum = 0;

	for (uint32_t w = 0; w < words; w++, counts += 64)
		for (uint64_t left = __atomic_load_n(&pdn_stripes[w], __ATOMIC_SEQ_CST); left;
		     left &= left - 1) {
			/* Acquire: pairs with give_memory(). None: no hold was ever in it. */
			const uint32_t *column =
				__atomic_load_n(&counts[__builtin_ctzll(left)], __ATOMIC_ACQUIRE);

			if (column)
				sum += __atomic_load_n(&column[number], __ATOMIC_SEQ_CST);
		}
	return sum != 0;
}

/*
 * Exact once the region is no longer live and a heavy barrier has passed: from then on no hold is
 * added, and a thread that drops one later takes the lock. Before that, a guess. Held objects of
 * the region are holds too, but are not counted here: see objects/object.h.
 */
static inline bool pdn_region_in_use(uint32_t number)
{
	return pdn_holds_any(pdn_holds, number);
}

/*
 * Store, barrier, load: pairs with hits, which announce the region and then load its state (get.c,
 * hold_if()), and with puts, which drop their hold and then load it.
 */
static inline void pdn_region_set_state(uint32_t number, enum pdn_state state)
{
	__atomic_store_n(&pdn_briefs[number].state, state, PDN_BEFORE_BARRIER);
}

#endif
