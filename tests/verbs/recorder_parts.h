/* SPDX-License-Identifier: MIT */
/* What the recording library's own files share. */
#ifndef RECORDER_PARTS_H
#define RECORDER_PARTS_H

#include "recorder.h"

#define EXPORT __attribute__((visibility("default")))

struct ibv_device {
	void *ops[2];
	int node_type, transport_type;
	char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};

/*
 * A memory region as a provider has it. All that were ever made stay in a list, so that a pointer
 * that is none of ours, or was given back, is told from one that is. `verbs` is what libibverbs has
 * written for the program and reads again; what the kernel and the card have is the rest.
 */
struct recorder_mr {
	struct pd_verbs_mr verbs; /* must be first */
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
	bool imported;		   /* another's registration: its keys, not its end */
	struct recorder_pd *keeps; /* the domain that can't go as long as it is open */
	uint32_t bound;		   /* windows */
};

struct recorder_pd {
	struct ibv_pd pd; /* must be first */
	unsigned users;	  /* regions, under the lock */
	struct recorder_pd *regions_of, *spare;
};

/* One lock for all of the library's state, never held in a callback. */
void recorder_lock(void);
void recorder_unlock(void);

/* The region behind a program's pointer, or NULL. Lock held. */
struct recorder_mr *recorder_find(const struct ibv_mr *mr);
struct recorder_mr *recorder_by_key(uint32_t key);

/* A new one, with keys of its own; NULL: no memory. Lock held. */
struct recorder_mr *recorder_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 int access);

/* The device is closed: all regions on it end. Lock held. */
void recorder_end_all(const struct ibv_context *context);

/*
 * Begin a call: notes it, calls back, and answers the errno that it was told to fail with. end:
 * what it came to; passes the error through.
 */
int recorder_begin(struct recorder_call *call);
int recorder_end(const struct recorder_call *call, int error);

extern bool recorder_has_peermem;

/* Two versions each. */
struct ibv_mr *recorder_reg_mr_1_1(struct ibv_pd *pd, void *addr, size_t length, int access);
int recorder_dereg_mr_1_1(struct ibv_mr *mr);

/* The window operations and others of a context (recorder_other.c). */
int recorder_bind_mw(void *qp, struct ibv_mw *mw, void *bind);
struct ibv_mw *recorder_alloc_mw(struct ibv_pd *pd, int type);
int recorder_dealloc_mw(struct ibv_mw *mw);
struct ibv_mr *recorder_alloc_null_mr(struct ibv_pd *pd);
int recorder_advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, void *list, uint32_t count);

#endif
