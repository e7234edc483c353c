/* SPDX-License-Identifier: MIT */
/*
 * Cases that show, for each group of calls, that a registration is gone before the call that ends
 * its memory returns, and that no other call removes one. The program finds pindown as middleware
 * does, by dlsym.
 */
#ifndef REGIONS_H
#define REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/cuda/abi.h"
#include "cache/pindown.h"

/* The effect of the case's call on the region of s.at. */
enum fate {
	GONE,	 /* ended by the call */
	KEPT,	 /* not affected */
	USABLE,	 /* whether it ended or not, the memory exists and can be registered */
	REFUSED, /* such memory can't be registered: pindown_get() returns `refusal` */
};

struct regions_case {
	const char *name;
	bool (*begin)(void); /* allocates memory at s.at; false: this driver can't */
	bool (*end)(void);   /* the call; false: it failed */
	enum fate fate;
	int refusal;
	void (*clean)(void);
	bool alone;	   /* the call ends all memory of the context, the bystander's too */
	bool unexportable; /* no dma-buf of such memory: only PINDOWN_BACKEND=none pins it */
	bool is_volatile;  /* not all calls that end it can be seen: each hit is checked */
	bool lingers; /* the driver may still know the memory, but nobody may use it any more */
};

#define CASE(name_, begin_, end_, fate_, ...)                                           \
	{                                                                               \
		.name = name_, .begin = begin_, .end = end_, .fate = fate_, __VA_ARGS__ \
	}

/* The data of a case; all zero before each. */
extern struct scene {
	CUdevice device;
	CUcontext primary, context;
	CUstream stream;
	CUdeviceptr at;
	size_t size;
	CUdeviceptr other;
	CUmemGenericAllocationHandle handle, second;
	CUmemoryPool pool;
	CUmodule module;
	CUlibrary library;
	CUgraph graph;
	CUgraphExec exec;
	CUgraph second_graph;
	CUgraphExec second_exec;
	CUexternalMemory external;
	CUgreenCtx green;
	CUgraphicsResource resource;
	CUeglStreamConnection connection;
	void *host;
	int fd;
	long child; /* a process that keeps memory open, and the pipe it waits on */
	int child_stdin;
} s;

extern const struct regions_case regions_memory_cases[]; /* regions_memory.c */
extern const struct regions_case regions_owner_cases[];	 /* regions_owner.c */

/* Cases with a function of their own: `run` returns the failure, or NULL. */
struct regions_process_case {
	const char *name;
	const char *(*run)(void);
};
extern const struct regions_process_case regions_process_cases[]; /* regions_process.c */

/* pindown's functions, found by dlsym. */
extern struct pindown_api {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_stats) stats;
	__typeof__(&pindown_flush) flush;
	__typeof__(&pindown_region_is_live) is_live;
	__typeof__(&pindown_region_is_volatile) is_volatile;
	__typeof__(&pindown_region_buffer_id) buffer_id;
	__typeof__(&pindown_strerror) strerror;
} pindown_api;

struct pindown_stats regions_stats(void);

/* The number of pins: exported dma-bufs that are open, or the count of the guest's driver. */
int regions_open_exports(void);
/* The number of all open descriptors. */
int regions_open_descriptors(void);

/* A CUDA call of the test's own: false when it fails. */
#define OK(call) ((call) == CUDA_SUCCESS)

#endif
