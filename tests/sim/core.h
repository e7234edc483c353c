/* SPDX-License-Identifier: MIT */
/*
 * The common parts of the simulated driver: the shape of an entry point, the API lock, and the
 * state of the process (before cuInit, alive, forked, shut down).
 *
 * An entry point is written once, with its body:
 *
 *	SIM_CTX_CALL(cuMemFree_v2, (CUdeviceptr dptr), (dptr))
 *	{
 *		...
 *		return CUDA_SUCCESS;
 *	}
 *
 * The macro exports it, counts it, lets the faults of SIM_FAIL and SIM_DELAY act on it, and runs
 * the body with the API lock held. As in the real driver, the process has one such lock, which is
 * held for the whole call, and which the thread that has it may take again: the driver calls its
 * own exports.
 */
#ifndef SIM_CORE_H
#define SIM_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#define SIM_API __attribute__((visibility("default")))

#define unlikely(x) __builtin_expect(!!(x), 0)
#define likely(x)   __builtin_expect(!!(x), 1)

/* The conditions before the body runs. */
enum sim_need {
	SIM_NEEDS_NOTHING, /* works before cuInit */
	SIM_NEEDS_INIT,
	SIM_NEEDS_CONTEXT,	   /* a context that is alive is current */
	SIM_NEEDS_NO_DEAD_CONTEXT, /* none is current, or one that is alive */
	SIM_UNSAFE = 8, /* a flag: not while a stream is being captured (sim_capture_forbids) */
	SIM_RACY = 16,	/* a flag: only for the owner of the memory (sim_called) */
};

/* A rule of SIM_FAIL or SIM_DELAY for one entry point. */
struct sim_rule {
	enum { SIM_RULE_FAIL, SIM_RULE_DELAY } kind;
	uint64_t first, last; /* of the calls, counted from 1 */
	CUresult error;
	unsigned delay_us;
	enum { SIM_DELAY_BEFORE, SIM_DELAY_HELD, SIM_DELAY_AFTER } when;
	struct sim_rule *next; /* of the entry point */
	struct sim_rule *made_before;
};

/* One entry point, as exported. */
struct sim_site {
	const char *name;
	void *function;
	unsigned need;
	uint64_t calls; /* without the driver's own calls */
	struct sim_rule *rules;
};

#define SIM_SITE(name_, need_)                                                   \
	static struct sim_site site_##name_ = {                                  \
		.name = #name_, .function = (void *)own_##name_, .need = need_}; \
	static struct sim_site *const site_pointer_##name_                       \
		__attribute__((section("sim_sites"), used)) = &site_##name_

/*
 * The driver's exports begin with instructions that a library which patches code can move away
 * (UCX's bistro hooks know five kinds of them; the real driver's begin with such): three loads of a
 * register that holds no argument, and a jump. `own_` is a second name for the function: the
 * address that the driver hands out (cuGetProcAddress) must not be changed by a preloaded library
 * that exports the same name.
 */
#if defined(__x86_64__)
#define SIM_EXPORT_ENTRY(name_, params)                                           \
	extern CUresult own_##name_ params __attribute__((visibility("hidden"))); \
	__asm__(".pushsection .text, \"ax\", @progbits\n"                         \
		".globl " #name_ ", own_" #name_ "\n"                             \
		".hidden own_" #name_ "\n"                                        \
		".type " #name_ ", @function\n"                                   \
		".p2align 5\n" #name_ ":\n"                                       \
		"own_" #name_ ":\n"                                               \
		"mov $0, %eax\nmov $0, %eax\nmov $0, %eax\n"                      \
		"jmp entry_" #name_ "\n"                                          \
		".size " #name_ ", . - " #name_ "\n"                              \
		".popsection")
#elif defined(__aarch64__)
#define SIM_EXPORT_ENTRY(name_, params)                                           \
	extern CUresult own_##name_ params __attribute__((visibility("hidden"))); \
	__asm__(".pushsection .text, \"ax\", %progbits\n"                         \
		".globl " #name_ ", own_" #name_ "\n"                             \
		".hidden own_" #name_ "\n"                                        \
		".type " #name_ ", %function\n"                                   \
		".p2align 5\n" #name_ ":\n"                                       \
		"own_" #name_ ":\n"                                               \
		"hint #34\nmov w16, #0\nmov w16, #0\nmov w16, #0\n"               \
		"b entry_" #name_ "\n"                                            \
		".size " #name_ ", . - " #name_ "\n"                              \
		".popsection")
#else
#define SIM_EXPORT_ENTRY(name_, params)                                        \
	SIM_API CUresult name_ params __attribute__((alias("entry_" #name_))); \
	static CUresult own_##name_ params __attribute__((alias("entry_" #name_)))
#endif

/* Exports the function entry_NAME, which is to follow, and which calls body_NAME. */
#define SIM_DECLARE(name_, need_, params)                           \
	static CUresult body_##name_ params;                        \
	static CUresult entry_##name_ params __attribute__((used)); \
	SIM_EXPORT_ENTRY(name_, params);                            \
	SIM_SITE(name_, need_)

#define SIM_ENTRY(name_, need_, params, args)                               \
	SIM_DECLARE(name_, need_, params);                                  \
	static CUresult entry_##name_ params                                \
	{                                                                   \
		CUresult result;                                            \
                                                                            \
		if ((need_)&SIM_RACY)                                       \
			sim_called(#name_, __builtin_return_address(0));    \
		if (sim_begin(&site_##name_, need_, &result))               \
			result = sim_end(&site_##name_, body_##name_ args); \
		return result;                                              \
	}                                                                   \
	static CUresult body_##name_ params

#define SIM_UNSAFE_CALL(name, params, args) \
	SIM_ENTRY(name, SIM_NEEDS_CONTEXT | SIM_UNSAFE, params, args)
#define SIM_CTX_CALL(name, params, args)   SIM_ENTRY(name, SIM_NEEDS_CONTEXT, params, args)
#define SIM_CALL(name, params, args)	   SIM_ENTRY(name, SIM_NEEDS_INIT, params, args)
#define SIM_RACY_CALL(name, params, args)  SIM_ENTRY(name, SIM_NEEDS_INIT | SIM_RACY, params, args)
#define SIM_EARLY_CALL(name, params, args) SIM_ENTRY(name, SIM_NEEDS_NOTHING, params, args)

/*
 * A call that takes no lock and needs only the caller's thread, as cuCtxGetCurrent in the real
 * driver.
 */
#define SIM_LOCKLESS_CALL(name_, params, args)                                        \
	SIM_DECLARE(name_, SIM_NEEDS_INIT, params);                                   \
	static CUresult entry_##name_ params                                          \
	{                                                                             \
		CUresult result;                                                      \
                                                                                      \
		if (likely(sim_is_alive() && !site_##name_.rules && !sim_logging)) {  \
			__atomic_fetch_add(&site_##name_.calls, 1, __ATOMIC_RELAXED); \
			return body_##name_ args;                                     \
		}                                                                     \
		if (sim_begin(&site_##name_, SIM_NEEDS_INIT, &result))                \
			result = sim_end(&site_##name_, body_##name_ args);           \
		return result;                                                        \
	}                                                                             \
	static CUresult body_##name_ params

/*
 * Does the driver live in this process? fork(), _Fork() and a bare clone wipe this page, so that a
 * child can't mistake its parent's driver for its own.
 */
struct sim_alive {
	uint32_t alive;
};
extern struct sim_alive *sim_alive;

static inline bool sim_is_alive(void)
{
	return __atomic_load_n(&sim_alive->alive, __ATOMIC_ACQUIRE);
}

extern bool sim_logging;

/*
 * The real driver corrupts its heap when such a call meets an unmap or a release of the same handle
 * in another thread. The owner of the memory must prevent this; libpindown.so can't, so the process
 * is aborted when libpindown.so makes the call. (It always appears as the caller of calls that it
 * watches: these can't be checked in this way.)
 */
void sim_called(const char *name, const void *caller);

/* Takes the API lock and returns true, or sets *result and returns false, without the lock. */
bool sim_begin(struct sim_site *site, unsigned need, CUresult *result);
/* Drops the lock; returns the result for the caller. */
CUresult sim_end(struct sim_site *site, CUresult result);

/*
 * Drops and retakes all levels of the lock, around a call out to the program (host functions,
 * callbacks).
 */
unsigned sim_lock_leave(void);
void sim_lock_rejoin(unsigned depth);
/* Does this thread have the lock? */
bool sim_is_in_call(void);
/* The lock for sim_* queries, which are no driver calls. */
void sim_lock(void);
void sim_unlock(void);

/* The address of an entry point by its exported name, NULL if there is none. */
void *sim_own_export(const char *name);
struct sim_site *sim_find_site(const char *name, size_t length);

/* The parts of cuInit: addresses and the devices' memory. */
CUresult sim_memory_start(void);

/* faults.c */
void sim_faults_from_environment(void);
void sim_sleep_us(unsigned us);
/* The rule that acts on the given call, or NULL. */
struct sim_rule *sim_rule_for(struct sim_site *site, uint64_t call, int kind);

/* options.c: the environment, read once */
struct sim_options {
	unsigned devices;
	uint64_t memory;       /* bytes of each device */
	uint64_t pin_bytes;    /* UINT64_MAX: no limit */
	bool overlaps_allowed; /* see overlap.h */
	bool export_cloexec;   /* descriptors are close-on-exec */
	int export_pcie;       /* CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE: see sim.h */
	bool export_default;   /* exports without this flag */
	bool coherent;	       /* the processor reaches device memory without PCIe */
	bool dma_buf;	       /* devices export memory, and say so */
	bool rdma;	       /* devices say that they support GPUDirect RDMA */
	enum {
		SIM_RDMA_FLAG_IGNORED,
		SIM_RDMA_FLAG_NEEDED,
		SIM_RDMA_FLAG_REFUSED,
		SIM_RDMA_FLAG_UNKNOWN,
	} rdma_flag;	     /* SIM_RDMA_FLAG, see sim.h */
	uint64_t addresses;  /* bytes of them that are reserved */
	uint64_t rdma_page;  /* the granularity of memory with the flag */
	uint64_t lost_hints; /* reservations that are not made where the program asks for them */
	int driver_version;
	bool checkpoint; /* by other processes, too */
};
extern struct sim_options sim_options;
void sim_read_options(void);
/* Prints one line on standard error that starts with the library's name. */
void sim_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
