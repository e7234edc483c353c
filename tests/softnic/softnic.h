/* SPDX-License-Identifier: MIT */
/*
 * A libibverbs whose devices are software, for tests: its objects, and what its files offer to each
 * other. README.md gives an overview.
 *
 * Environment, read when the first device is listed:
 *
 *   SOFTNIC_DEVICES=N             number of devices, 1 to 8 (default 1): softnic_test0, ...
 *   SOFTNIC_LOG=FILE              one line for each stale transfer and other error, and one with
 *                                 counts for each process that used a device, when it exits; lines
 *                                 are appended; "-": standard error
 *   SOFTNIC_FABRIC=NAME           only processes with the same name and user reach each other
 *   SOFTNIC_NO_DMABUF=1           ibv_reg_dmabuf_mr fails with EOPNOTSUPP
 *   SOFTNIC_NO_PEERMEM=1          ibv_reg_mr fails with EFAULT for GPU memory, as without
 *                                 nvidia-peermem
 *   SOFTNIC_MAX_MR=N              more regions than this at a time fail with ENOMEM
 *   SOFTNIC_ENOMEM_EVERY=N        every N-th registration fails with ENOMEM
 *   SOFTNIC_SLOW_NS_PER_PAGE=N    a registration takes this long for each 4 KiB
 */
#ifndef SOFTNIC_H
#define SOFTNIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* verbs.h replaces these by inline functions. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))

enum {
	MAX_SGE = 16,
	MAX_WR = 16384,
	MAX_CQE = 1 << 20,
	MAX_INLINE = 1024,
	MAX_DATAGRAM = 4096,
	ROUTE_HEADER = 40, /* bytes before a datagram, as verbs.h's struct ibv_grh */
	CHUNK = 256 << 10, /* bytes that one packet carries at most */
	PORTS = 1
};

/*
 * One lock protects all objects of a process. It is not held in a copy or in a call of the CUDA
 * driver. idle is signalled when the service thread ends its use of an object.
 */
extern pthread_mutex_t softnic_lock;
extern pthread_cond_t softnic_idle;

static inline void lock(void)
{
	pthread_mutex_lock(&softnic_lock);
}

static inline void unlock(void)
{
	pthread_mutex_unlock(&softnic_lock);
}

/* ---- devices (device.c) --------------------------------------------------------------------- */

struct device {
	struct ibv_device ibv; /* must be first */
	/* libmlx5 and libefa compare this with their own, to see whether a device is theirs. */
	const void *provider_ops;
	const void *provider_private[8];
	uint16_t lid;
	uint64_t guid;
};

struct context {
	struct device *device;
	struct verbs_context verbs; /* must be last: programs know its end */
};

static inline struct device *device_of(const struct ibv_context *context)
{
	return (struct device *)context->device;
}

/* ---- options and what is counted (options.c, checks.c) -------------------------------------- */

struct options {
	unsigned devices, max_mr, enomem_every, slow_ns_per_page;
	bool no_dmabuf, no_peermem;
	const char *log, *fabric;
};
const struct options *softnic_options(void);

enum count {
	COUNT_REGISTRATIONS,
	COUNT_DEREGISTRATIONS,
	COUNT_TRANSFERS, /* pieces of memory that were read or written for a transfer */
	COUNT_STALE,
	COUNT_UNMAPPED,
	COUNTS
};
void checks_count(enum count what);
void checks_report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For tests in the process. */
unsigned long softnic_stale_transfers(void);
/* Writes the counts to the log, at the end, or where a process leaves without its destructors. */
void softnic_report_counts(void);

/* ---- memory of a GPU (gpu.c) ---------------------------------------------------------------- */

/*
 * Device memory behind a region: the allocations in it, each with the buffer id that it had when
 * the region was registered. Immutable.
 */
struct gpu_piece {
	uint64_t begin, end;
	unsigned long long buffer_id;
};

struct gpu_memory {
	void *context; /* CUcontext */
	void *stream;  /* CUstream of the device's own in that context */
	unsigned count;
	struct gpu_piece pieces[];
};

/* False for host memory, and in a process without libcuda. */
bool gpu_is_device_memory(uint64_t addr);
/*
 * NULL with errno if any part of the range is not device memory; with_free: if none near its begin
 * is.
 */
struct gpu_memory *gpu_describe(uint64_t addr, uint64_t length, bool with_free);

/* Whether each byte still belongs to the allocation that was registered; or which does not. */
struct gpu_change {
	uint64_t addr;
	unsigned long long registered, now; /* buffer ids; now is 0 for freed memory */
};
bool gpu_is_unchanged(const struct gpu_memory *gpu, uint64_t addr, size_t length,
		      struct gpu_change *change);
/* 0 or a CUresult. */
int gpu_read(const struct gpu_memory *gpu, void *to, uint64_t from, size_t length);
int gpu_write(const struct gpu_memory *gpu, uint64_t to, const void *from, size_t length);

/* ---- memory regions (memory.c) -------------------------------------------------------------- */

struct domain {
	struct ibv_pd ibv; /* must be first */
	unsigned users;	   /* regions, queue pairs and SRQs; protected by the lock */
};

void domain_use(struct ibv_pd *pd);
void domain_unuse(struct ibv_pd *pd);

enum access_result { ACCESS_OK, ACCESS_REFUSED };

/*
 * Copies bytes of the region with this key, after checking the domain, the range, the rights, and
 * that the memory is still the one that was registered. `what` is named in the log. Called without
 * the lock.
 */
struct memory_use {
	struct ibv_pd *pd;
	uint32_t key, qp_num;
	uint64_t addr;
	int rights;
	const char *what;
};
enum access_result memory_read(const struct memory_use *use, void *to, size_t length);
enum access_result memory_write(const struct memory_use *use, const void *from, size_t length);
enum access_result memory_check(const struct memory_use *use, size_t length);

/* A list of pieces of local memory as one string of bytes that begins at `offset` of it. */
struct pieces {
	struct ibv_pd *pd;
	const struct ibv_sge *sge;
	int count;
	uint32_t qp_num;
};
enum access_result pieces_read(const struct pieces *pieces, uint64_t offset, void *to,
			       size_t length);
enum access_result pieces_write(const struct pieces *pieces, uint64_t offset, const void *from,
				size_t length);
uint64_t pieces_length(const struct ibv_sge *sge, int count);

/* ---- completions (completion.c) ------------------------------------------------------------- */

struct channel {
	struct ibv_comp_channel ibv; /* must be first */
	struct queue *events;	     /* queues with events that were not read, oldest first */
};

struct queue {
	struct ibv_cq ibv; /* must be first */
	struct ibv_wc *ring;
	uint32_t capacity, first;
	uint32_t count; /* changed under the lock; ibv_poll_cq looks at it without */
	enum { UNARMED, ARMED_SOLICITED, ARMED_ANY } armed;
	bool overrun;
	unsigned users;	    /* queue pairs */
	unsigned unread;    /* events in the channel that were not read */
	unsigned given;	    /* events that were read, to be acknowledged */
	struct queue *next; /* in the channel's list */
};

/* Both with the lock held. */
void completion_add(struct ibv_cq *cq, const struct ibv_wc *wc, bool solicited);
void completion_forget(struct ibv_cq *cq, uint32_t qp_num);

int completion_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int completion_arm(struct ibv_cq *cq, int solicited_only);

/* ---- receive queues (receive.c) ------------------------------------------------------------- */

struct receive {
	uint64_t wr_id;
	int count;
	struct ibv_sge sge[MAX_SGE];
};

struct receive_queue {
	struct receive *ring;
	uint32_t capacity, first, count, max_sge;
};

struct shared_queue {
	struct ibv_srq ibv; /* must be first */
	struct receive_queue queue;
	unsigned users; /* queue pairs */
};

int receive_queue_begin(struct receive_queue *queue, uint32_t capacity, uint32_t max_sge);
void receive_queue_end(struct receive_queue *queue);
/* Both with the lock held. add: 0 or an errno; take: false if it is empty. */
int receive_add(struct receive_queue *queue, const struct ibv_recv_wr *wr);
bool receive_take(struct receive_queue *queue, struct receive *receive);
int receive_post_shared(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- queue pairs (queue_pair.c, post.c, extended.c) ----------------------------------------- */

struct send {
	struct ibv_send_wr wr; /* without its list */
	int count;
	struct ibv_sge sge[MAX_SGE];
	uint64_t length;
	uint8_t *inlined; /* the bytes of IBV_SEND_INLINE, or NULL */
	uint16_t lid;	  /* that a datagram is for */
};

struct queue_pair {
	struct ibv_qp_ex ex; /* must be first; also the struct ibv_qp of programs */
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	struct send *sends; /* ring */
	uint32_t capacity, first, count;
	struct receive_queue receives;

	/* The head of `sends`, as the service thread sends it packet by packet (requester.c). */
	uint64_t offset;     /* bytes that the other side has */
	uint32_t sequence;   /* of the newest packet */
	bool waiting;	     /* for the reply to it */
	unsigned not_ready;  /* number of replies in a row that the receiver is not ready */
	unsigned silences;   /* number of attempts in a row without an answer */
	uint64_t not_before; /* time of the next attempt, in ns; or 0 */

	/* The message that arrives (responder.c). */
	bool receiving;
	struct receive receive;
	uint64_t received;

	struct extended *building; /* extended.c */
};

struct ibv_qp *queue_pair_create(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_qp *extended_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
void extended_end(struct queue_pair *qp);

/* All with the lock held. */
struct queue_pair *queue_pair_find(uint32_t number);
/* NULL where there is none; slots are below queue_pair_slots(). */
struct queue_pair *queue_pair_at(uint32_t slot);
uint32_t queue_pair_slots(void);
/* In a child process: the parent's queue pairs aren't its own. Without the lock. */
void queue_pair_forget_all(void);
/* Completes the oldest send; ends the queue pair on an error. */
void queue_pair_send_done(struct queue_pair *qp, enum ibv_wc_status status);
void queue_pair_receive_done(struct queue_pair *qp, const struct ibv_wc *wc, bool solicited);
/* Enters the error state: all work is completed as flushed. */
void queue_pair_fail(struct queue_pair *qp);

/*
 * The service thread takes a queue pair to use it without the lock. Until it lets it go, no other
 * thread changes its state, ends its work or frees it. The lock is held in both.
 */
void queue_pair_take(struct queue_pair *qp);
void queue_pair_let_go(void);

static inline bool sends_datagrams(const struct queue_pair *qp)
{
	return qp->init.qp_type == IBV_QPT_UD;
}

/* The LID of a path; that of a global one without a LID is in its GID. */
uint16_t lid_of(const struct ibv_ah_attr *path);

/* ---- between processes (transport.c, requester.c, responder.c) ------------------------------ */

enum packet_kind {
	PACKET_SEND,
	PACKET_WRITE,
	PACKET_READ,
	PACKET_COMPARE_SWAP,
	PACKET_FETCH_ADD,
	PACKET_REPLY
};
enum { PACKET_FIRST = 1, PACKET_LAST = 2, PACKET_IMMEDIATE = 4, PACKET_SOLICITED = 8 };
enum reply {
	REPLY_OK,
	REPLY_NOT_READY, /* no receive is posted */
	REPLY_SILENCE,	 /* a card would not answer: there is no such queue pair, or not yet */
	REPLY_ACCESS,
	REPLY_INVALID,
	REPLY_FAILED
};

struct packet {
	uint32_t payload; /* bytes that follow */
	uint8_t kind, flags, reply;
	uint8_t unused;
	uint16_t from_lid, to_lid;
	uint32_t from_qp, to_qp, sequence;
	uint32_t immediate, key;
	uint64_t addr, offset, total; /* total: of the message */
	uint64_t operand, compare;
	uint32_t length; /* of a read */
	uint32_t qkey;	 /* of a datagram */
};

/* ---- datagrams (datagram.c) ----------------------------------------------------------------- */

uint16_t datagram_lid(const struct ibv_ah *ah);
/* Writes it to the receive that the queue pair has taken. */
enum ibv_wc_status datagram_deliver(const struct queue_pair *qp, const struct packet *packet,
				    const uint8_t *payload);

struct connection;

/* Starts the service thread, and gives the process its number; 0 or an errno. */
int transport_begin(void);
/* The upper bits of this process's queue pairs' numbers. */
uint32_t transport_process(void);
#define PROCESS_SHIFT 12
#define MAX_QPS	      (1 << PROCESS_SHIFT)

/* Tells the service thread that there is work. */
void transport_wake(void);

/* For the service thread. false: the process isn't there. */
bool transport_send(const struct packet *packet, const void *payload);
void transport_answer(struct connection *connection, const struct packet *packet,
		      const void *payload);

/* Sends what can be sent; returns the time of the next attempt in ns, or UINT64_MAX. */
uint64_t requester_progress(uint64_t now);
void requester_take_reply(const struct packet *packet, const uint8_t *payload);
/* The connection to a process has ended. */
void requester_lost(uint32_t process);
void responder_take(struct connection *connection, const struct packet *packet,
		    const uint8_t *payload);
uint64_t now_ns(void);

#endif
