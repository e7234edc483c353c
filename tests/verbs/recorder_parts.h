/* SPDX-License-Identifier: MIT */
/* Declarations for the recording library's own files. */
#ifndef RECORDER_PARTS_H
#define RECORDER_PARTS_H

#include "recorder.h"

#define EXPORT __attribute__((visibility("default")))

/* The name by which programs call it, in one of rdma-core's versions. */
#ifdef RECORDER_STATIC /* part of a plug-in, which has no versions */
#define RECORDER_VERSION(function, name, version) \
	__asm__(".globl " #name "\n.set " #name ", " #function)
#define RECORDER_OLD_VERSION(function, name, version) struct recorder_no_old_version
#else
#define RECORDER_VERSION(function, name, version) \
	__asm__(".symver " #function ", " #name "@@" version)
#define RECORDER_OLD_VERSION(function, name, version) \
	__asm__(".symver " #function ", " #name "@" version)
#endif

/*
 * A memory region as a provider has it. All regions that were ever made stay in a list, so that a
 * foreign or stale pointer is recognized. libibverbs writes `verbs` for the program and reads it
 * again; the other members belong to the kernel and the card.
 */
struct recorder_mr {
	struct pdn_verbs_mr verbs; /* must be first */
	struct recorder_mr *next;
	uint32_t key, handle;
	int rights;
	uint64_t iova;
	size_t length;
	char *host;    /* where its bytes are; NULL: out of reach, as those of a real GPU */
	void *mapping; /* of a dma-buf, held without a descriptor as a kernel does; or NULL */
	size_t mapped;
	int fd; /* of a dma-buf that can't be mapped, or -1 */
	bool dmabuf;
	bool open;
	bool imported;		   /* of another process: shares its keys, and does not end it */
	struct recorder_pd *keeps; /* the domain that can't go as long as it is open */
	uint32_t bound;		   /* number of windows bound to it */
};

struct recorder_pd {
	struct ibv_pd pd; /* must be first */
	unsigned users;	  /* number of regions; protected by the lock */
	struct recorder_pd *regions_of, *spare;
};

/* One lock protects all of the library's state. It is never held in a callback. */
void recorder_lock(void);
void recorder_unlock(void);

/* The region behind a program's pointer, or NULL. Needs the lock. */
struct recorder_mr *recorder_find(const struct ibv_mr *mr);
struct recorder_mr *recorder_by_key(uint32_t key);

/* A new region with keys of its own; NULL: no memory. Needs the lock. */
struct recorder_mr *recorder_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 int access);

/* The device is closed: all regions, or umems, on it end. Needs the lock. */
void recorder_end_all(const struct ibv_context *context);
void recorder_end_umems(const struct ibv_context *context);

/*
 * What the kernel checks: 0, or an errno. The rights of an access; whether it is memory of the
 * host, or memory that nvidia-peermem would accept.
 */
int recorder_access_error(int access);
int recorder_memory_error(const void *addr, size_t length);

/*
 * The region holds the dma-buf's memory: from the simulated driver's descriptor at its position
 * (sim.h). And lets go of it. Need the lock.
 */
int recorder_hold_dmabuf(struct recorder_mr *m, int fd, uint64_t offset);
void recorder_release(struct recorder_mr *m);

/* ibv_reg_dmabuf_mr and calls like it. */
struct ibv_mr *recorder_reg_dmabuf(struct recorder_call *call, struct ibv_pd *pd);

/* The umems' calls, for the recording libmlx5. */
struct mlx5dv_devx_umem *recorder_umem_reg(enum recorder_verb verb, struct ibv_context *context,
					   const struct mlx5dv_devx_umem_in *in);
int recorder_umem_dereg(struct mlx5dv_devx_umem *umem);

/* Another call with a pointer that the library did not return. Needs the lock. */
void recorder_count_stranger(const char *what, const void *at);

/*
 * Begins a call: records it, calls back, and returns the errno that it must fail with. end: records
 * its result, and passes the error through.
 */
int recorder_begin(struct recorder_call *call);
int recorder_end(const struct recorder_call *call, int error);

extern bool recorder_has_peermem;

/* There are two versions of each. */
struct ibv_mr *recorder_reg_mr_1_1(struct ibv_pd *pd, void *addr, size_t length, int access);
int recorder_dereg_mr_1_1(struct ibv_mr *mr);

/* The window operations and others of a context (recorder_other.c). */
int recorder_bind_mw(void *qp, struct ibv_mw *mw, void *bind);
struct ibv_mw *recorder_alloc_mw(struct ibv_pd *pd, int type);
int recorder_dealloc_mw(struct ibv_mw *mw);
struct ibv_mr *recorder_alloc_null_mr(struct ibv_pd *pd);
int recorder_advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, void *list, uint32_t count);

#endif
