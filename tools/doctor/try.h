/* SPDX-License-Identifier: MIT */
/*
 * pindown doctor --try: moves bytes between each GPU and each RDMA device. The attempts are made in
 * child processes, which may hang or crash, and which leave their results in shared memory.
 */
#ifndef TRY_H
#define TRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/base/texts.h"

/* The ways to register GPU memory. */
enum road { ROAD_DMABUF, ROAD_DMABUF_PCIE, ROAD_ADDRESS, ROADS };

/* What an attempt did last. */
enum stage {
	STAGE_NONE, /* not begun */
	STAGE_OPEN, /* open the device */
	STAGE_ALLOCATE,
	STAGE_EXPORT,
	STAGE_REGISTER,
	STAGE_CONNECT,
	STAGE_TRANSFER,
	STAGE_COMPARE,
	STAGE_DONE /* the bytes arrived */
};

/* Where `error` comes from: an errno, a CUresult, or the status of a completion (ibv_wc_status). */
enum source { FROM_SYSTEM, FROM_CUDA, FROM_CARD };

struct attempt {
	enum stage stage;
	enum source source;
	int error;	 /* 0 while the stage is under way */
	uint64_t pin_ns; /* of the registration; 0: none succeeded */
	bool ended;	 /* it failed or is done, and did not just stop */
	int signal;	 /* that ended the process; 0: none; -1: it exited */
};

enum { MOST_GPUS = 64, MOST_CARDS = 64, TRY_BYTES = 64 << 20, MOVED_BYTES = 1 << 20 };

/* What there is to try. */
struct trials_list {
	int gpus, cards;
	int cuda_error; /* of cuInit; -1: there is no libcuda.so.1 */
	bool has_verbs; /* libibverbs.so.1 could be opened */
	char gpu[MOST_GPUS][16], card[MOST_CARDS][64];
	int export_error[MOST_GPUS]; /* of a dma-buf in each way; 0: one was made, or not tried */
};

struct trials {
	struct trials_list list;
	struct attempt *attempts; /* of each GPU, each card, each road; with release() */
	unsigned patience;	  /* seconds for each stage of an attempt */
};

/* Must be called before this process uses CUDA: a child of a process that does can't use it. */
void trials_make(struct trials *trials);
void trials_free(struct trials *trials);
unsigned trials_pairs(const struct trials *trials);
/* The pairs of a GPU and a card between which bytes moved by at least one road. */
unsigned trials_working(const struct trials *trials);
void trials_print(const struct trials *trials);
void trials_print_json(const struct trials *trials);

/* The attempt ends here. An error of 0 would look like success. Returns false. */
bool attempt_failed(struct attempt *attempt, enum source source, int error);

/* ---- in the child --------------------------------------------------------------------------- */

/* CUDA (try_cuda.c). Results are CUresults; -1: the driver lacks the function. */
int try_cuda_begin(void);
int try_cuda_count(void);
void try_cuda_address(int gpu, char *text, size_t capacity);
int try_cuda_allocate(int gpu, uint64_t *addr, size_t bytes);
void try_cuda_free(uint64_t addr);
int try_cuda_export(uint64_t addr, size_t bytes, bool pcie, int *fd);
int try_cuda_write(uint64_t addr, const void *bytes, size_t length);
int try_cuda_read(uint64_t addr, void *bytes, size_t length);

/* The card (try_verbs.c). False without libibverbs. */
bool try_verbs_begin(void);
int try_verbs_list(char (*names)[64], int capacity);
/* Fills the attempt as it goes, for another process to see. */
void try_road(int gpu, const char *card, enum road road, struct attempt *attempt);

/* ---- words (try_errors.c) ------------------------------------------------------------------- */

const char *road_name(enum road road);
/* "CUDA_ERROR_NO_DEVICE (100)", for release(). */
char *cuda_error_name(int error);
/* "Bad address (14)", for release(). */
char *attempt_error(const struct attempt *attempt);
/* "fails at the registration: Bad address (14)"; for release(). */
char *attempt_text(enum road road, const struct attempt *attempt, unsigned patience);
/* What is wrong and what to do, or NULL. */
const char *attempt_advice(enum road road, const struct attempt *attempt);
/* Whether the driver simply has no such mapping, as on GPUs without NVLink-C2C. */
bool attempt_is_not_offered(enum road road, const struct attempt *attempt);

#endif
