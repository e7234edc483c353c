/* SPDX-License-Identifier: MIT */
/*
 * Two ends of a connection, for tests: the one here, and a partner in the same process or in
 * another one, which does the same things on demand.
 */
#ifndef SOFTNIC_ENDS_H
#define SOFTNIC_ENDS_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* A block of the driver's: where neighbours live, its memory would be used again at once. */
#define BUFFER (2u << 20)

enum memory { HOST, GPU, GPU_DMABUF };

/* What a queue pair is told of the other one. */
struct address {
	uint32_t qp_num, key;
	uint16_t lid;
	uint64_t addr;
};

#define QKEY 0x1ee7

struct end {
	enum memory memory;
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint64_t buffer; /* BUFFER bytes */
	int fd;		 /* the dma-buf, or -1 */
};

/* How an end is made; 0 everywhere is the usual one. */
struct setup {
	enum memory memory;
	bool shared;	   /* receives by an SRQ */
	bool extended;	   /* sends by ibv_wr_start() */
	bool datagrams;	   /* UD, with the key QKEY */
	uint8_t rnr_tries; /* 0: for ever */
	int access;	   /* of the region; 0: everything */
};

struct address end_begin(struct end *end, const struct setup *setup);
void end_connect(struct end *end, const struct setup *setup, const struct address *other);
void end_post_receive(struct end *end, uint64_t wr_id, uint64_t offset, uint32_t length);
/* Waits for the next completion; fails the test when none comes. */
struct ibv_wc end_wait(struct end *end);
/* Bytes of a pattern that each seed and place has its own of. */
void end_fill(struct end *end, uint8_t seed, uint64_t offset, uint32_t length);
bool end_holds(struct end *end, uint8_t seed, uint64_t offset, uint32_t length);
uint64_t end_word(struct end *end, uint64_t offset);
/* GPU memory is freed, and other memory is allocated at its address. */
void end_replace(struct end *end);
void end_finish(struct end *end);

/* The same of the partner. */
struct partner;
extern struct partner *const in_process, *const in_other_process;

struct address partner_begin(struct partner *partner, const struct setup *setup);
void partner_connect(struct partner *partner, const struct setup *setup,
		     const struct address *other);
void partner_post_receive(struct partner *partner, uint64_t wr_id, uint64_t offset,
			  uint32_t length);
struct ibv_wc partner_wait(struct partner *partner);
void partner_fill(struct partner *partner, uint8_t seed, uint64_t offset, uint32_t length);
bool partner_holds(struct partner *partner, uint8_t seed, uint64_t offset, uint32_t length);
uint64_t partner_word(struct partner *partner, uint64_t offset);
void partner_replace(struct partner *partner);
unsigned long partner_stale(struct partner *partner);
void partner_finish(struct partner *partner);
/* Ends its process without notice. */
void partner_kill(struct partner *partner);

unsigned long softnic_stale_transfers(void);

#endif
