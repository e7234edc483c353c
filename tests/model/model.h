/* SPDX-License-Identifier: MIT */
/*
 * The cache against a model of it. The model consists of plain lists, of regions, of memory and of
 * consumer objects, in which every search is a walk. Both get one operation at a time. The lists
 * determine the reports to subscribers, the destroyed objects, the unpins and the counts, and the
 * cache must do exactly that.
 *
 * Where the cache has a choice, which idle region it evicts for another, the model follows it and
 * only checks that the region was idle and its space was needed. So the model is right for any
 * policy of eviction.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/pindown.h"

#define MODEL_BASE UINT64_C(0x7f4400000000)
#define KIB(n)	   ((uint64_t)(n) << 10)
#define MIB(n)	   ((uint64_t)(n) << 20)
#define GIB(n)	   ((uint64_t)(n) << 30)

/* ---- memory: what the driver has (memory.c) ---- */

/* Each place holds one allocation at a time, anywhere within it. */
#define SMALL	      12 /* 24 KiB each, packed: they share pages */
#define MEDIUM	      6	 /* 2 MiB */
#define LARGE	      2	 /* 256 MiB */
#define MAPPINGS      6	 /* 2 MiB, side by side, for cuMemMap */
#define PLACES	      (SMALL + MEDIUM + LARGE + MAPPINGS)
#define FIRST_MAPPING (SMALL + MEDIUM + LARGE)
#define CONTEXTS      3
#define POOLS	      2
#define DEVICES	      2

enum kind { LINEAR, POOL, MAPPED, MANAGED, HOST };

struct memory {
	uint64_t base, end, id; /* id 0: no memory */
	enum kind kind;
	unsigned owner; /* context or pool */
};

extern struct memory memory[PLACES];

void memory_reset(void);
uint64_t place_base(unsigned place);
uint64_t place_size(unsigned place);
unsigned place_of(uint64_t addr);
struct memory *memory_at(uint64_t addr);
void *context_handle(unsigned context);
void *pool_handle(unsigned pool);
int memory_device(const struct memory *m);
uint64_t memory_new_id(void);
/* For pdn_is_mapped, and for pdn_find_driver_symbol. */
bool memory_is_mapped(uint64_t base, uint64_t id);
void *memory_symbol(const char *name);

/* ---- pins: a backend that keeps a list (pins.c) ---- */

enum pin_fate {
	PIN_WORKS,
	PIN_NO_SPACE,	  /* the device's limit */
	PIN_NO_RESOURCES, /* the process's limit */
	PIN_REFUSED,
	PIN_SWAPPED,  /* it succeeds, but afterwards other memory is there, unseen */
	PIN_REPLACED, /* it succeeds, but the memory was freed and reallocated meanwhile, seen */
	PIN_FATES
};

struct script {
	unsigned times;
	enum pin_fate fate;
};
extern struct script script;		  /* the results of the next pins */
extern uint64_t pin_space[DEVICES];	  /* bytes */
extern uint64_t pinned_bytes_of[DEVICES]; /* as counted by the backend */
extern unsigned pins_open;
void pins_reset(void);
void pins_abandoned(void); /* in a forked child: checks that all pins were abandoned */

/* ---- the lists and what is expected (lists.c) ---- */

#define MAX_REGIONS 256
#define MAX_IDS	    MAPPINGS

struct region {
	pindown_region *real;
	uint64_t base, end, ids[MAX_IDS];
	uint64_t pin_base, pin_end;
	uint64_t whole_base, whole_end; /* what a free ends: the allocation, or this */
	uint32_t pin;			/* its number in the backend */
	void *context, *pool;
	int device;
	unsigned holds;
	unsigned vector;		/* of these: the vector's that is just being got */
	bool making;			/* an object: attach has a hold of its own meanwhile */
	unsigned objects, held_objects; /* that are live or kept */
	bool live, is_volatile, mapped;
	bool is_window; /* a part of its allocation or mappings */
	bool must_be_told;
	uint8_t reasons; /* the reasons that would be right, as bits */
	uint8_t reason;	 /* the reported reason */
	bool unpinned;
	bool abandoned; /* belongs to the parent of this forked child */
	bool awaits;	/* its objects are revoked when its memory is handed out again */
};

extern struct region *regions[MAX_REGIONS];
extern unsigned region_count;

struct counts {
	uint64_t hits, misses, pins, unpins, pin_failures, evictions, invalidations, lost_races,
		missed, tag_checks;
	uint64_t objects_made, objects_revoked;
	/* Not part of the statistics. */
	uint64_t unpins_at_last_put, objects_found, objects_kept, objects_hidden, objects_reused,
		destroyed_at_last_detach, made_in_vain, grown, windows;
	uint64_t vectors, failed_vectors, would_wait, objects_served;
};
extern struct counts counts;
extern uint64_t max_regions, max_bytes; /* bytes 0: no limit */
extern bool checks_all; /* frees are not watched: each hit is compared with the driver */
extern bool may_miss;	/* frees of memory that is not volatile may go unseen */
extern bool distrusted; /* a free was missed: each hit is compared, too */

void lists_reset(void);
struct region *region_with(uint64_t addr, uint64_t length);
struct region *region_of(const pindown_region *real);
struct region *nth_held(uint32_t n);
bool is_true(const struct region *r);
bool overlaps(const struct region *r, uint64_t begin, uint64_t end);
void ids_between(uint64_t base, uint64_t end, uint64_t ids[MAX_IDS]);
struct region *new_region(void);
void volatile_add(uint64_t begin, uint64_t end);
void volatile_cut(uint64_t begin, uint64_t end);
bool volatile_any(uint64_t begin, uint64_t end);

/* What ends: an address range, the allocation that holds `begin` (then end is 0), or a context. */
struct ending {
	uint64_t begin, end;
	void *context;
	int device; /* with `of_device`: all contexts of it */
	bool of_device;
};
bool is_ended(const struct region *r, const struct ending *ending);

/* From now on the cache must report that this region has ended, for one of these reasons (bits). */
void expect_end(struct region *r, unsigned reasons);
unsigned expect_end_of_changed(uint64_t begin, uint64_t end);

/* A get that has missed: regions may be evicted for it. */
struct attempt {
	bool on;
	bool nowait;
	bool would_wait;       /* a pin was lost, and it is not tried again */
	uint64_t addr, length; /* the requested range */
	int described;	       /* the driver's answer for it: a pindown_result */
	uint64_t begin, end;   /* its memory; once it is tried, what the cache tries to pin */
	uint64_t least_begin, least_end; /* the memory of the request alone */
	uint64_t union_begin, union_end; /* and with the regions that it touches */
	bool failed_wide;		 /* more than the former may be left out now */
	bool gives_way;			 /* regions of the union are evicted for it */
	bool window_gives_way;		 /* the same for a window */
	bool was_full;			 /* the device had no space for a pin of it */
	bool had_windows;		 /* of its memory, once */
	uint64_t pin_begin, bytes;
	bool tried;	      /* the backend was called */
	int refused;	      /* the backend's last error */
	bool is_hopeless;     /* it would be refused even without any idle region */
	bool may_be_hopeless; /* the same, if `gave` was no search for space */
	bool gave;	      /* since the first call of the backend, a region that it overlaps */
	unsigned evicted;     /* evictions since the first call of the backend: regions */
	uint64_t gone;	      /* and bytes */
	unsigned permits;     /* the number of evictions that this allows */
	int permit_device;    /* of this device; -1: of any */
	bool pinned;
	uint32_t lost_pin; /* was made for nothing and must be unpinned */
	bool giving;	   /* not a get: this many bytes must be evicted */
	uint64_t given;
};
extern struct attempt attempt;
void attempt_describe(void);
void attempt_reaches(uint64_t begin, uint64_t end);
bool attempt_may_be_window(void);
uint64_t attempt_page_bytes(void);
uint64_t attempt_most_bytes(void);
bool attempt_has_room_for_union(void);
bool fits(uint64_t bytes);
bool any_idle(int device);
uint64_t idle_bytes(int device);
bool fits_without_idle(uint64_t bytes); /* under the budgets, if all idle regions were evicted */
uint64_t free_space(int device);	/* on a device, in whole pages */
bool may_give_up(void);			/* enough was evicted without success */

/* The cache's actions, as they happen. */
void saw_end(const struct pindown_invalidation *what, void *arg);
void saw_unpin(uint32_t pin);

/*
 * After each operation: nothing is left to be reported, nothing pinned that should not be, and the
 * counts agree.
 */
void settle_accounts(bool devices_too);

/* ---- consumer objects: the list (objects.c) ---- */

#define CONSUMERS   3
#define OWNERS	    2
#define KEYS	    32 /* any two differ in one word at least, some in one only */
#define MAX_OBJECTS 8192

struct consumer {
	int id; /* the last one, if it does not exist any more */
	bool is_there;
};
extern struct consumer consumers[CONSUMERS];

enum object_state {
	OBJECT_LIVE,
	OBJECT_ENDING,	 /* must be destroyed; may be kept if it is held */
	OBJECT_KEPT,	 /* its region or its owner has ended, until the last detach */
	OBJECT_REVOKED,	 /* destroyed, until the last detach */
	OBJECT_ABANDONED /* belongs to the parent of this forked child, until the last detach */
};

struct object {
	pindown_object *real;
	struct region *region; /* NULL: revoked, abandoned */
	unsigned consumer, key, holds;
	enum object_state state;
	uint8_t reasons; /* ENDING: the reasons that would be right, as bits */
	bool revocable;	 /* ENDING: held or not */
};
extern struct object *objects[MAX_OBJECTS];
extern unsigned object_count;

void objects_reset(void);
struct pindown_key key_of(unsigned key);
/*
 * The one of this key, or else one that serves besides, by its consumer's rules. Where several do,
 * the cache has the choice: `real` is what it has chosen.
 */
struct object *object_on(const struct region *r, unsigned consumer, unsigned key,
			 const pindown_object *real);
struct pindown_consumer rules_of(unsigned consumer);
struct object *new_object(struct region *r, unsigned consumer, unsigned key);
void object_hold(struct object *o);
void object_let_go(struct object *o);
uint64_t objects_now(void);
bool is_used(const struct region *r);
bool revokes(int reason);

void expect_destroy(struct object *o, unsigned reasons);
void expect_objects_end(struct region *r);
void expect_end_of_reused(uint64_t begin, uint64_t end);
struct ending;
void expect_end_of_replaced(const struct ending *ending, int reason);
int saw_destroy(const struct pindown_object_end *what, void *arg);
void settle_objects(void);
void abandon_objects(void);

/* ---- attach and detach (attach.c) ---- */

enum create_fate {
	CREATE_WORKS,
	CREATE_FAILS,
	CREATE_FREES,	   /* the memory is freed meanwhile, */
	CREATE_REPLACES,   /* or freed and allocated again, */
	CREATE_FLUSHES,	   /* or everything idle is flushed, */
	CREATE_ENDS_OWNER, /* or its owner ends, */
	CREATE_REMOVES,	   /* or its consumer goes, */
	CREATE_ATTACHES,   /* or code asks for the same object */
	CREATE_FATES
};

struct create_script {
	unsigned times;
	enum create_fate fate;
};
extern struct create_script create_script; /* the results of the next creations */

/* An attach that is under way. */
struct making {
	uint64_t addr, length;
	unsigned flags, consumer, key;
	struct region *region; /* attach_region */
	struct region *found;  /* the cached region */
	struct object *object; /* the created object */
	struct object *vain;   /* the object that was created for nothing and must be destroyed */
	pindown_object *real;  /* attach has returned this */
	int error;	       /* 0, or the required result */
};
extern struct making making;

extern bool in_detach, detach_when_told;
int saw_create(const struct pindown_object_request *what, void **data, void *arg);
void made_in_vain(void);
struct object *nth_held_object(uint32_t n);
void detach_one_of(const struct region *r);

/* ---- disagreement (round.c) ---- */

void disagree(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define AGREE(condition, ...)                  \
	do {                                   \
		if (!(condition))              \
			disagree(__VA_ARGS__); \
	} while (0)

/* ---- operations (operations.c) ---- */

enum code {
	OP_GET,
	OP_GETV,
	OP_PUT,
	OP_PUTV,
	OP_ALLOCATE,
	OP_FREE,
	OP_UNMAP,
	OP_ALLOCATED, /* reported again, for existing memory */
	OP_FREE_UNSEEN,
	OP_CONTEXT,
	OP_DEVICE,
	OP_ALL,
	OP_INVALIDATE,
	OP_INVALIDATE_CONTEXT,
	OP_FLUSH,
	OP_VOLATILE,
	OP_ALLOCATED_PART,
	OP_RECHECK,
	OP_BUDGET,
	OP_SPACE,
	OP_PINS,
	OP_GIVE_BACK,
	OP_PUT_WHEN_TOLD,
	OP_ATTACH,
	OP_ATTACH_REGION,
	OP_DETACH,
	OP_END_OWNER,
	OP_CONSUMER_ADD,
	OP_CONSUMER_REMOVE,
	OP_HELD,
	OP_CREATES,
	OP_DETACH_WHEN_TOLD,
	OP_FORK,
	OP_CODES
};

#define MAX_NUMBERS 6
struct op {
	uint32_t code;
	uint32_t n[MAX_NUMBERS];
};

struct op_kind {
	const char *name;
	const char *numbers[MAX_NUMBERS];
	void (*perform)(const uint32_t n[MAX_NUMBERS]);
};
extern const struct op_kind op_kinds[OP_CODES];

void perform(const struct op *op);

/* These are declared here because one file's operations happen in the middle of another's. */
void op_free(const uint32_t n[]);
void op_flush(const uint32_t n[]);
/* objects.c */
void op_end_owner(const uint32_t n[]);
void op_consumer_add(const uint32_t n[]);
void op_consumer_remove(const uint32_t n[]);
void op_held(const uint32_t n[]);
/* attach.c */
void op_attach(const uint32_t n[]);
void op_attach_region(const uint32_t n[]);
void op_detach(const uint32_t n[]);
void op_creates(const uint32_t n[]);
void op_detach_when_told(const uint32_t n[]);

/* The free and the allocation in the middle of a pin. */
void replace_memory(uint64_t addr);
extern bool put_when_told, in_put;

/* ---- a get, in steps (get.c) ---- */

void perform_get(uint64_t addr, uint64_t length, unsigned flags);
#define MAX_VECTOR 8
void perform_getv(const struct pindown_range *ranges, size_t n, unsigned flags);
bool get_is_bad(uint64_t length, unsigned flags);
/* Before the cache is asked: the region that is cached, or the beginning of an attempt to pin. */
struct region *get_begins(uint64_t addr, uint64_t length, unsigned flags);
/* The result is this region: the one that was found, or, with NULL, a new one. */
struct region *get_has(struct region *found, pindown_region *real);
/* Nothing was cached: checks the result. */
void get_judge(int result);

/* ---- dice (dice.c) ---- */

struct op next_op(void);
void dice_reset(uint64_t seed);
uint32_t roll(uint32_t sides);

/* ---- a round: a process of its own, a sequence of operations (round.c) ---- */

/* Shared with the processes of the rounds. */
struct log {
	uint64_t done; /* operations that agreed, since the program began */
	uint64_t forks;
	struct counts seen; /* how often each compared thing has happened at all */
	uint64_t kinds[OP_CODES];
	uint64_t count;	   /* of ops[], including the current one */
	char message[400]; /* the failure */
	uint64_t cause;	   /* the number of the comparison, or of the signal */
	struct op ops[];
};
extern struct log *this_log;
extern uint64_t max_ops; /* the capacity of ops[] */
extern bool is_replay;	 /* ops[] is given: nothing is random */
extern bool in_child;	 /* this is a child of a fork */
extern bool used_gpu;	 /* the cache was told of GPU memory */
extern bool is_off;	 /* in a child: its parent was */

void make_log(uint64_t max);
void one_random_operation(void);
void end_round(void);

/* A process does the given operations, or as many of its own; returns whether they agreed. */
bool play_sequence(bool checks, const struct op *ops, uint64_t count);
bool play_random(bool checks, uint64_t seed, uint64_t count);

/* ---- shrinking and printing (shrink.c) ---- */

/* Removes and simplifies operations as long as the sequence fails. Returns the new count. */
uint64_t shrink(bool checks, struct op *ops, uint64_t count);
void print_sequence(void *file, bool checks, const struct op *ops, uint64_t count);
uint64_t read_sequence(const char *name, bool *checks, struct op *ops, uint64_t max);

#endif
