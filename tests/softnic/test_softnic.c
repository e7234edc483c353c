/* SPDX-License-Identifier: MIT */
/*
 * The software card: each operation, within a process and between two, on host memory and on
 * memory of the simulated driver, registered by its address and as a dma-buf.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "tests/softnic/ends.h"
#include "tests/unit/support/suite.h"

enum { MEMORIES = 3, KINDS = 2 * MEMORIES };
#define SIGNALED IBV_SEND_SIGNALED

static struct end end;
static struct partner *partner;
static struct address other;

/* Kind: where the partner is, and the memory of both. */
static void begin_with(int kind, struct setup setup)
{
	struct address own;

	partner = kind < MEMORIES ? in_process : in_other_process;
	setup.memory = kind % MEMORIES;
	other = partner_begin(partner, &setup);
	own = end_begin(&end, &setup);
	partner_connect(partner, &setup, &own);
	end_connect(&end, &setup, &other);
}

static void begin(int kind)
{
	begin_with(kind, (struct setup){0});
}

static void finish(void)
{
	ck_assert_uint_eq(softnic_stale_transfers(), 0);
	ck_assert_uint_eq(partner_stale(partner), 0);
	partner_finish(partner);
	end_finish(&end);
}

/* A request for `length` bytes at `offset` on both sides. */
static void post(enum ibv_wr_opcode opcode, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = {end.buffer + offset, length, end.mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = opcode + 100,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = SIGNALED,
					 .imm_data = htonl(0x12345678),
					 .wr.rdma = {other.addr + offset, other.key},
				 };

	ck_assert_int_eq(ibv_post_send(end.qp, &wr, &bad), 0);
}

static void must_complete(enum ibv_wr_opcode opcode, enum ibv_wc_opcode as)
{
	struct ibv_wc wc = end_wait(&end);

	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, as);
	ck_assert_uint_eq(wc.wr_id, opcode + 100);
	ck_assert_uint_eq(wc.qp_num, end.qp->qp_num);
}

static void must_receive(uint64_t wr_id, enum ibv_wc_opcode as, uint32_t length, bool immediate)
{
	struct ibv_wc wc = partner_wait(partner);

	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, as);
	ck_assert_uint_eq(wc.wr_id, wr_id);
	ck_assert_uint_eq(wc.byte_len, length);
	ck_assert_uint_eq(wc.src_qp, end.qp->qp_num);
	ck_assert_int_eq(wc.wc_flags, immediate ? IBV_WC_WITH_IMM : 0);
	if (immediate)
		ck_assert_uint_eq(ntohl(wc.imm_data), 0x12345678);
}

/* ---- send and receive ----------------------------------------------------------------------- */

static void send_once(enum ibv_wr_opcode opcode, uint32_t length)
{
	end_fill(&end, 1, 64, length);
	partner_fill(partner, 2, 64, length);
	partner_post_receive(partner, 7, 64, length);
	post(opcode, 64, length);
	must_complete(opcode, IBV_WC_SEND);
	must_receive(7, IBV_WC_RECV, length, opcode == IBV_WR_SEND_WITH_IMM);
	ck_assert(partner_holds(partner, 1, 64, length));
}

START_TEST(sends_arrive)
{
	begin(_i);
	send_once(IBV_WR_SEND, 1000);
	send_once(IBV_WR_SEND_WITH_IMM, 1000);
	send_once(IBV_WR_SEND, 0);
	send_once(IBV_WR_SEND, BUFFER - 64);
	finish();
}
END_TEST

START_TEST(sends_arrive_by_an_srq)
{
	begin_with(_i, (struct setup){.shared = true});
	send_once(IBV_WR_SEND, 1000);
	send_once(IBV_WR_SEND, BUFFER - 64);
	finish();
}
END_TEST

START_TEST(a_send_waits_for_a_receive)
{
	begin(_i);
	end_fill(&end, 1, 0, 100);
	post(IBV_WR_SEND, 0, 100);
	partner_fill(partner, 2, 0, 100);
	partner_post_receive(partner, 7, 0, 100);
	must_complete(IBV_WR_SEND, IBV_WC_SEND);
	must_receive(7, IBV_WC_RECV, 100, false);
	ck_assert(partner_holds(partner, 1, 0, 100));
	finish();
}
END_TEST

/* From two pieces, and from bytes that are changed after the post. */
START_TEST(pieces_and_inline_data_are_gathered)
{
	uint8_t bytes[200];
	struct ibv_sge sge[2] = {{end.buffer, 100, 0}, {0, 50, 0}};
	struct ibv_send_wr *bad, wr = {.sg_list = sge, .num_sge = 2, .opcode = IBV_WR_SEND};

	begin(_i);
	end_fill(&end, 1, 0, 300);
	sge[0] = (struct ibv_sge){end.buffer, 100, end.mr->lkey};
	sge[1] = (struct ibv_sge){end.buffer + 100, 200, end.mr->lkey};
	partner_post_receive(partner, 7, 0, 300);
	ck_assert_int_eq(ibv_post_send(end.qp, &wr, &bad), 0);
	must_receive(7, IBV_WC_RECV, 300, false);
	ck_assert(partner_holds(partner, 1, 0, 300));

	memset(bytes, 0, sizeof(bytes));
	sge[0] = (struct ibv_sge){(uintptr_t)bytes, 8, 0};
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE | SIGNALED;
	wr.wr_id = IBV_WR_SEND + 100;
	bytes[0] = 42;
	partner_post_receive(partner, 8, 0, 300);
	ck_assert_int_eq(ibv_post_send(end.qp, &wr, &bad), 0);
	bytes[0] = 43;
	must_complete(IBV_WR_SEND, IBV_WC_SEND);
	must_receive(8, IBV_WC_RECV, 8, false);
	ck_assert_uint_eq(partner_word(partner, 0), 42);
	finish();
}
END_TEST

/* ---- writes and reads ----------------------------------------------------------------------- */

static void write_once(uint32_t length)
{
	end_fill(&end, 3, 128, length);
	partner_fill(partner, 4, 128, length);
	post(IBV_WR_RDMA_WRITE, 128, length);
	must_complete(IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE);
	ck_assert(partner_holds(partner, 3, 128, length));
}

static void read_once(uint32_t length)
{
	end_fill(&end, 5, 128, length);
	partner_fill(partner, 6, 128, length);
	post(IBV_WR_RDMA_READ, 128, length);
	must_complete(IBV_WR_RDMA_READ, IBV_WC_RDMA_READ);
	ck_assert(end_holds(&end, 6, 128, length));
}

START_TEST(writes_arrive)
{
	begin(_i);
	write_once(1);
	write_once(1000);
	write_once(BUFFER - 128);
	finish();
}
END_TEST

START_TEST(writes_with_immediate_complete_a_receive)
{
	begin(_i);
	end_fill(&end, 3, 0, BUFFER);
	partner_post_receive(partner, 9, 0, 0);
	post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, BUFFER);
	must_complete(IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE);
	must_receive(9, IBV_WC_RECV_RDMA_WITH_IMM, BUFFER, true);
	ck_assert(partner_holds(partner, 3, 0, BUFFER));
	finish();
}
END_TEST

START_TEST(reads_return)
{
	begin(_i);
	read_once(1);
	read_once(1000);
	read_once(BUFFER - 128);
	finish();
}
END_TEST

/* ---- atomic operations ---------------------------------------------------------------------- */

static void atomic(enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {end.buffer, 8, end.mr->lkey};
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = opcode + 100,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = SIGNALED,
			.wr.atomic = {other.addr + 8, compare_add, swap, other.key},
		};

	ck_assert_int_eq(ibv_post_send(end.qp, &wr, &bad), 0);
	must_complete(opcode,
		      opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
}

START_TEST(atomic_operations_return_the_old_value)
{
	uint64_t old;

	begin(_i);
	partner_fill(partner, 11, 8, 8);
	old = partner_word(partner, 8);
	atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0);
	ck_assert_uint_eq(end_word(&end, 0), old);
	ck_assert_uint_eq(partner_word(partner, 8), old + 5);
	atomic(IBV_WR_ATOMIC_CMP_AND_SWP, old, 77);
	ck_assert_uint_eq(end_word(&end, 0), old + 5);
	ck_assert_uint_eq(partner_word(partner, 8), old + 5);
	atomic(IBV_WR_ATOMIC_CMP_AND_SWP, old + 5, 77);
	ck_assert_uint_eq(partner_word(partner, 8), 77);
	finish();
}
END_TEST

/* ---- the newer way to post, many requests, and events --------------------------------------- */

START_TEST(sends_are_built_by_wr_start)
{
	struct ibv_qp_ex *ex;

	begin_with(_i, (struct setup){.extended = true});
	ex = ibv_qp_to_qp_ex(end.qp);
	ck_assert_ptr_nonnull(ex);
	end_fill(&end, 3, 0, 2000);
	partner_post_receive(partner, 9, 3000, 50);
	ibv_wr_start(ex);
	ex->wr_id = IBV_WR_RDMA_WRITE + 100;
	ex->wr_flags = SIGNALED;
	ibv_wr_rdma_write(ex, other.key, other.addr);
	ibv_wr_set_sge(ex, end.mr->lkey, end.buffer, 2000);
	ex->wr_id = IBV_WR_SEND + 100;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, end.mr->lkey, end.buffer, 50);
	ck_assert_int_eq(ibv_wr_complete(ex), 0);
	must_complete(IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE);
	must_complete(IBV_WR_SEND, IBV_WC_SEND);
	must_receive(9, IBV_WC_RECV, 50, false);
	ck_assert(partner_holds(partner, 3, 0, 2000));
	finish();
}
END_TEST

START_TEST(requests_complete_in_order)
{
	begin(_i);
	end_fill(&end, 3, 0, BUFFER);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 16; i++)
			post(i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i * 1000, 1000);
		for (int i = 0; i < 16; i++)
			ck_assert_uint_eq(end_wait(&end).wr_id,
					  100 + (i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE));
	}
	finish();
}
END_TEST

START_TEST(a_channel_reports_completions)
{
	struct pollfd ready;
	struct ibv_cq *cq;
	void *context;

	begin(_i);
	ready = (struct pollfd){.fd = end.channel->fd, .events = POLLIN};
	/* Not armed: no event. */
	write_once(10);
	ck_assert_int_eq(poll(&ready, 1, 0), 0);
	ck_assert_int_eq(ibv_req_notify_cq(end.cq, 0), 0);
	ck_assert_int_eq(poll(&ready, 1, 0), 0);
	post(IBV_WR_RDMA_WRITE, 0, 10);
	ck_assert_int_eq(ibv_get_cq_event(end.channel, &cq, &context), 0);
	ck_assert_ptr_eq(cq, end.cq);
	ck_assert_ptr_eq(context, &end);
	ibv_ack_cq_events(cq, 1);
	must_complete(IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE);
	/* One event for each arming. */
	write_once(10);
	ck_assert_int_eq(poll(&ready, 1, 0), 0);
	finish();
}
END_TEST

/* ---- datagrams ------------------------------------------------------------------------------ */

static void send_datagram(uint64_t offset, uint32_t length, uint32_t qkey)
{
	struct ibv_ah_attr path = {.dlid = other.lid, .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(end.pd, &path);
	struct ibv_sge sge = {end.buffer + offset, length, end.mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = SIGNALED,
					 .wr.ud = {ah, other.qp_num, qkey},
				 };

	ck_assert_ptr_nonnull(ah);
	ck_assert_int_eq(ibv_post_send(end.qp, &wr, &bad), 0);
	/* It is of no more use when the post returns. */
	ck_assert_int_eq(ibv_destroy_ah(ah), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
}

/* Those that no receive waits for, or that have another key, are lost without an error. */
START_TEST(datagrams_arrive_or_are_lost)
{
	const uint32_t header = 40, length = 1000;
	struct ibv_wc wc;

	begin_with(_i, (struct setup){.datagrams = true});
	end_fill(&end, 1, 0, length);
	end_fill(&end, 2, length, length);
	send_datagram(0, length, QKEY);
	partner_post_receive(partner, 7, 0, header + length);
	send_datagram(0, length, QKEY + 1);
	send_datagram(length, length, QKEY);
	wc = partner_wait(partner);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.wr_id, 7);
	ck_assert_uint_eq(wc.byte_len, header + length);
	ck_assert_uint_eq(wc.src_qp, end.qp->qp_num);
	ck_assert_uint_eq(wc.slid, 1);
	ck_assert(partner_holds(partner, 2, header, length));
	finish();
}
END_TEST

START_TEST(a_datagram_is_a_short_send_with_an_address)
{
	struct ibv_sge sge = {0};
	struct ibv_ah_attr path = {.dlid = 1, .port_num = 2};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	begin_with(0, (struct setup){.datagrams = true});
	ck_assert_ptr_null(ibv_create_ah(end.pd, &path));
	ck_assert_int_ne(ibv_post_send(end.qp, &wr, &bad), 0);
	path.port_num = 1;
	wr.wr.ud.ah = ibv_create_ah(end.pd, &path);
	sge = (struct ibv_sge){end.buffer, 4097, end.mr->lkey};
	ck_assert_int_ne(ibv_post_send(end.qp, &wr, &bad), 0);
	sge.length = 8;
	wr.opcode = IBV_WR_RDMA_WRITE;
	ck_assert_int_ne(ibv_post_send(end.qp, &wr, &bad), 0);
	ck_assert_int_eq(ibv_dealloc_pd(end.pd), EBUSY);
	ck_assert_int_eq(ibv_destroy_ah(wr.wr.ud.ah), 0);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("softnic");
	TCase *tc = suite_case(suite, "transfers", NULL, NULL);

	tcase_add_loop_test(tc, sends_arrive, 0, KINDS);
	tcase_add_loop_test(tc, sends_arrive_by_an_srq, 0, KINDS);
	tcase_add_loop_test(tc, a_send_waits_for_a_receive, 0, KINDS);
	tcase_add_loop_test(tc, pieces_and_inline_data_are_gathered, 0, KINDS);
	tcase_add_loop_test(tc, writes_arrive, 0, KINDS);
	tcase_add_loop_test(tc, writes_with_immediate_complete_a_receive, 0, KINDS);
	tcase_add_loop_test(tc, reads_return, 0, KINDS);
	tcase_add_loop_test(tc, atomic_operations_return_the_old_value, 0, KINDS);
	tcase_add_loop_test(tc, sends_are_built_by_wr_start, 0, KINDS);
	tcase_add_loop_test(tc, requests_complete_in_order, 0, KINDS);
	tcase_add_loop_test(tc, datagrams_arrive_or_are_lost, 0, KINDS);
	tcase_add_test(tc, a_datagram_is_a_short_send_with_an_address);
	tcase_add_loop_test(tc, a_channel_reports_completions, 0, KINDS);
	return run_suite(suite);
}
