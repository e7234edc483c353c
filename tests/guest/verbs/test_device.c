// SPDX-License-Identifier: MIT
/*
 * The guest's RDMA device itself, with host memory: real rdma-core above it, the kernel's ib_core
 * below. Its refusals matter as much as its transfers: the tests with GPU memory rely on them.
 */
#include "connection.h"
#include "tests/guest/guest.h"

#define SIZE 4096u

struct buffer {
	char *data;
	struct ibv_mr *mr;
};

static struct buffer buffer_new(struct connection *connection, int access)
{
	struct buffer buffer;

	/* Across the end of a page. */
	buffer.data = (char *)aligned_alloc(4096, 4 * SIZE) + 1024;
	buffer.mr = ibv_reg_mr(connection->pd, buffer.data, SIZE, access);
	if (!buffer.mr)
		fail("ibv_reg_mr: %s", strerror(errno));
	return buffer;
}

static struct place start_of(const struct buffer *buffer)
{
	return (struct place){(uintptr_t)buffer->data, buffer->mr->lkey};
}

static struct place in(const struct buffer *buffer, int64_t offset)
{
	return (struct place){(uintptr_t)buffer->data + offset, buffer->mr->rkey};
}

TEST(bytes_move)
{
	struct connection pair = connect_pair();
	struct buffer here = buffer_new(&pair, ALL_ACCESS), there = buffer_new(&pair, ALL_ACCESS);
	unsigned long bytes = hca_count("bytes");

	fill(here.data, SIZE, 1);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, start_of(&here), in(&there, 0), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(differs(there.data, SIZE, 1), SIZE);
	fill(there.data, SIZE, 2);
	check_equal(rdma(&pair, IBV_WR_RDMA_READ, start_of(&here), in(&there, 0), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(differs(here.data, SIZE, 2), SIZE);
	check_equal(hca_count("bytes") - bytes, 2 * SIZE);
	check_equal(ibv_dereg_mr(here.mr), 0);
	check_equal(ibv_dereg_mr(there.mr), 0);
	disconnect(&pair);
	check_equal(hca_count("live_mrs"), 0);
}

TEST(atomic_operations)
{
	struct connection pair = connect_pair();
	struct buffer here = buffer_new(&pair, ALL_ACCESS);
	struct buffer there = buffer_new(&pair, ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC);
	struct buffer plain = buffer_new(&pair, ALL_ACCESS);
	uint64_t *old = (uint64_t *)here.data, *word = (uint64_t *)there.data;

	*word = 40;
	check_equal(rdma_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, start_of(&here), in(&there, 0),
				2, 0),
		    IBV_WC_SUCCESS);
	check_equal(*old, 40);
	check_equal(*word, 42);
	check_equal(rdma_atomic(&pair, IBV_WR_ATOMIC_CMP_AND_SWP, start_of(&here), in(&there, 0),
				41, 7),
		    IBV_WC_SUCCESS);
	check_equal(*old, 42);
	check_equal(*word, 42);
	check_equal(rdma_atomic(&pair, IBV_WR_ATOMIC_CMP_AND_SWP, start_of(&here), in(&there, 0),
				42, 7),
		    IBV_WC_SUCCESS);
	check_equal(*word, 7);
	check_equal(rdma_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, start_of(&here), in(&plain, 0),
				1, 0),
		    IBV_WC_REM_ACCESS_ERR);
	reconnect(&pair);
	check_equal(rdma_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, start_of(&here), in(&there, 4),
				1, 0),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(*word, 7);
}

/* Requests that must fail, with their status; then the connection is made again. */
static void refused(struct connection *pair, enum ibv_wr_opcode opcode, struct place local,
		    struct place remote, uint32_t length, enum ibv_wc_status status)
{
	enum ibv_wc_status is = rdma(pair, opcode, local, remote, length);

	if (is != status)
		fail("%s, not %s", ibv_wc_status_str(is), ibv_wc_status_str(status));
	reconnect(pair);
}

TEST(bounds)
{
	struct connection pair = connect_pair();
	struct buffer here = buffer_new(&pair, ALL_ACCESS), there = buffer_new(&pair, ALL_ACCESS);

	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, in(&here, SIZE - 8), in(&there, SIZE - 8), 8),
		    IBV_WC_SUCCESS);
	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&here), in(&there, -1), 8,
		IBV_WC_REM_ACCESS_ERR);
	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&here), in(&there, SIZE - 7), 8,
		IBV_WC_REM_ACCESS_ERR);
	refused(&pair, IBV_WR_RDMA_READ, start_of(&here), in(&there, 0), SIZE + 1,
		IBV_WC_LOC_PROT_ERR);
	refused(&pair, IBV_WR_RDMA_WRITE, in(&here, -8), in(&there, 0), 8, IBV_WC_LOC_PROT_ERR);
}

TEST(keys)
{
	struct connection pair = connect_pair();
	struct buffer here = buffer_new(&pair, ALL_ACCESS), there = buffer_new(&pair, ALL_ACCESS);
	struct place old = in(&there, 0), wrong = in(&there, 0);

	wrong.key ^= 1;
	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&here), wrong, 8, IBV_WC_REM_ACCESS_ERR);
	wrong.key = 0;
	refused(&pair, IBV_WR_RDMA_READ, wrong, in(&here, 0), 8, IBV_WC_LOC_PROT_ERR);
	check_equal(ibv_dereg_mr(there.mr), 0);
	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&here), old, 8, IBV_WC_REM_ACCESS_ERR);
	/* The same memory again has another key. */
	there.mr = ibv_reg_mr(pair.pd, there.data, SIZE, ALL_ACCESS);
	check(there.mr && there.mr->rkey != old.key);
	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&here), old, 8, IBV_WC_REM_ACCESS_ERR);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, start_of(&here), in(&there, 0), 8),
		    IBV_WC_SUCCESS);
}

TEST(access_rights)
{
	struct connection pair = connect_pair();
	struct buffer all = buffer_new(&pair, ALL_ACCESS), none = buffer_new(&pair, 0);
	struct buffer readable = buffer_new(&pair, IBV_ACCESS_REMOTE_READ);

	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&all), in(&none, 0), 8, IBV_WC_REM_ACCESS_ERR);
	refused(&pair, IBV_WR_RDMA_READ, start_of(&all), in(&none, 0), 8, IBV_WC_REM_ACCESS_ERR);
	refused(&pair, IBV_WR_RDMA_READ, start_of(&none), in(&all, 0), 8, IBV_WC_LOC_PROT_ERR);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, start_of(&none), in(&all, 0), 8),
		    IBV_WC_SUCCESS);
	check_equal(rdma(&pair, IBV_WR_RDMA_READ, start_of(&all), in(&readable, 0), 8),
		    IBV_WC_SUCCESS);
	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&all), in(&readable, 0), 8,
		IBV_WC_REM_ACCESS_ERR);
	check(!ibv_reg_mr(pair.pd, all.data, 8, ALL_ACCESS | IBV_ACCESS_ON_DEMAND));
	check(errno == EINVAL || errno == EOPNOTSUPP); /* kernels differ */
	check(!ibv_reg_mr(pair.pd, all.data, 8, IBV_ACCESS_REMOTE_WRITE));
	check_equal(errno, EINVAL);
}

TEST(protection_domains)
{
	struct connection pair = connect_pair();
	struct buffer here = buffer_new(&pair, ALL_ACCESS), there = buffer_new(&pair, ALL_ACCESS);
	struct ibv_pd *other = ibv_alloc_pd(pair.context);
	struct ibv_mr *foreign;

	check(other);
	foreign = ibv_reg_mr(other, there.data, SIZE, ALL_ACCESS);
	check(foreign);
	refused(&pair, IBV_WR_RDMA_WRITE, start_of(&here),
		(struct place){(uintptr_t)there.data, foreign->rkey}, 8, IBV_WC_REM_ACCESS_ERR);
	check_equal(ibv_dealloc_pd(other), EBUSY);
}

TEST(an_error_ends_the_connection)
{
	struct connection pair = connect_pair();
	struct buffer here = buffer_new(&pair, ALL_ACCESS), there = buffer_new(&pair, ALL_ACCESS);
	struct place wrong = in(&there, SIZE);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, start_of(&here), wrong, 8),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, start_of(&here), in(&there, 0), 8),
		    IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < 2; i++) {
		check_equal(ibv_query_qp(pair.qp[i], &attr, IBV_QP_STATE, &init), 0);
		check_equal(attr.qp_state, IBV_QPS_ERR);
	}
}

TEST(memory_that_is_not_there)
{
	struct connection pair = connect_pair();

	check(!ibv_reg_mr(pair.pd, (void *)0x10000, 4096, ALL_ACCESS));
	check_equal(errno, EFAULT);
}
