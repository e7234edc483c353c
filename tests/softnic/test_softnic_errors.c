/* SPDX-License-Identifier: MIT */
/* The software card: what it refuses, what it notices, and how it is made nasty. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "tests/softnic/ends.h"
#include "tests/unit/support/suite.h"

enum { KINDS = 2 };

static struct end end;
static struct partner *partner;
static struct address other;

static void begin(int kind, struct setup setup)
{
	struct address own;

	partner = kind ? in_other_process : in_process;
	other = partner_begin(partner, &setup);
	own = end_begin(&end, &setup);
	partner_connect(partner, &setup, &own);
	end_connect(&end, &setup, &other);
}

static void finish(void)
{
	partner_finish(partner);
	end_finish(&end);
}

static int post_from(uint64_t from, enum ibv_wr_opcode opcode, uint32_t own_key, uint32_t key,
		     uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {from, length, own_key};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {addr, key},
				 };

	return ibv_post_send(end.qp, &wr, &bad);
}

static int post_to(enum ibv_wr_opcode opcode, uint32_t own_key, uint32_t key, uint64_t addr,
		   uint32_t length)
{
	return post_from(end.buffer, opcode, own_key, key, addr, length);
}

static void must_fail(enum ibv_wr_opcode opcode, uint32_t own_key, uint32_t key, uint64_t addr,
		      enum ibv_wc_status status)
{
	ck_assert_int_eq(post_to(opcode, own_key, key, addr, 100), 0);
	ck_assert_int_eq(end_wait(&end).status, status);
	ck_assert_int_eq(end.qp->state, IBV_QPS_ERR);
}

/* By the InfiniBand specification: an operation of no bytes checks no key. */
START_TEST(an_access_of_no_bytes_checks_no_key)
{
	begin(_i, (struct setup){0});
	ck_assert_int_eq(post_to(IBV_WR_RDMA_WRITE, end.mr->lkey + 1000, 0xff, 0, 0), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(post_to(IBV_WR_RDMA_READ, end.mr->lkey + 1000, 0xff, 0, 0), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
	must_fail(IBV_WR_RDMA_READ, end.mr->lkey, 0xff, 0, IBV_WC_REM_ACCESS_ERR);
	finish();
}
END_TEST

/* ---- rights --------------------------------------------------------------------------------- */

START_TEST(an_unknown_key_is_refused)
{
	begin(_i, (struct setup){0});
	must_fail(IBV_WR_RDMA_WRITE, end.mr->lkey, other.key + 1000, other.addr,
		  IBV_WC_REM_ACCESS_ERR);
	finish();
}
END_TEST

START_TEST(an_unknown_local_key_is_refused)
{
	begin(_i, (struct setup){0});
	must_fail(IBV_WR_RDMA_WRITE, end.mr->lkey + 1000, other.key, other.addr,
		  IBV_WC_LOC_PROT_ERR);
	finish();
}
END_TEST

START_TEST(an_access_beyond_the_region_is_refused)
{
	begin(_i, (struct setup){0});
	must_fail(IBV_WR_RDMA_READ, end.mr->lkey, other.key, other.addr + BUFFER - 99,
		  IBV_WC_REM_ACCESS_ERR);
	finish();
}
END_TEST

START_TEST(an_access_before_the_region_is_refused)
{
	begin(_i, (struct setup){0});
	must_fail(IBV_WR_RDMA_WRITE, end.mr->lkey, other.key, other.addr - 1,
		  IBV_WC_REM_ACCESS_ERR);
	finish();
}
END_TEST

START_TEST(a_write_without_the_right_is_refused)
{
	begin(_i, (struct setup){.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
	must_fail(IBV_WR_RDMA_WRITE, end.mr->lkey, other.key, other.addr, IBV_WC_REM_ACCESS_ERR);
	finish();
}
END_TEST

START_TEST(a_deregistered_key_is_refused)
{
	struct ibv_mr *more;

	begin(_i, (struct setup){0});
	more = ibv_reg_mr(end.pd, (void *)end.buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(more);
	uint32_t key = more->lkey;

	ck_assert_int_eq(ibv_dereg_mr(more), 0);
	must_fail(IBV_WR_RDMA_WRITE, key, other.key, other.addr, IBV_WC_LOC_PROT_ERR);
	finish();
}
END_TEST

/* ---- keys ----------------------------------------------------------------------------------- */

static struct ibv_mr *register_bytes(struct ibv_pd *pd, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)end.buffer, length, access);

	ck_assert_ptr_nonnull(mr);
	return mr;
}

START_TEST(keys_are_used_again_last_in_first_out)
{
	struct ibv_mr *first, *second, *third;
	uint32_t one, two;

	begin(0, (struct setup){0});
	first = register_bytes(end.pd, 5 * 4096, 0);
	second = register_bytes(end.pd, 8 * 4096, 0);
	one = first->rkey;
	two = second->rkey;
	ck_assert_uint_ne(one, two);
	ck_assert_int_eq(ibv_dereg_mr(first), 0);
	ck_assert_int_eq(ibv_dereg_mr(second), 0);
	first = register_bytes(end.pd, 4 * 4096, 0); /* of the class below */
	second = register_bytes(end.pd, 6 * 4096, IBV_ACCESS_LOCAL_WRITE);
	third = register_bytes(end.pd, 7 * 4096 + 1, 0);
	ck_assert_uint_ne(first->rkey, one);
	ck_assert_uint_ne(first->rkey, two);
	ck_assert_uint_eq(second->rkey, two);
	ck_assert_uint_eq(third->rkey, one);
	ck_assert_int_eq(ibv_dereg_mr(first), 0);
	ck_assert_int_eq(ibv_dereg_mr(second), 0);
	ck_assert_int_eq(ibv_dereg_mr(third), 0);
	finish();
}
END_TEST

/* The old keys work on the new region, as far as domain, range and rights are the same. */
START_TEST(a_key_that_is_used_again_has_the_new_region)
{
	const int access = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint32_t key;

	begin(_i, (struct setup){0});
	mr = register_bytes(end.pd, 4096, access);
	key = mr->lkey;
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	mr = register_bytes(end.pd, 4096, access);
	ck_assert_uint_eq(mr->lkey, key);
	ck_assert_int_eq(post_to(IBV_WR_RDMA_WRITE, key, other.key, other.addr, 100), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);

	pd = ibv_alloc_pd(end.device);
	mr = register_bytes(pd, 4096, access);
	ck_assert_uint_eq(mr->lkey, key);
	must_fail(IBV_WR_RDMA_WRITE, key, other.key, other.addr, IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	finish();
}
END_TEST

/* ---- stale registrations -------------------------------------------------------------------- */

static unsigned lines_in_log(const char *log, const char *text)
{
	unsigned count = 0;
	char line[1024];
	FILE *file = fopen(log, "r");

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, text) != NULL;
	fclose(file);
	return count;
}

START_TEST(a_stale_remote_registration_is_counted_and_named)
{
	const struct {
		enum ibv_wr_opcode opcode;
		const char *what;
	} cases[] = {{IBV_WR_RDMA_WRITE, "stale remote write"},
		     {IBV_WR_RDMA_READ, "stale remote read"}};
	char log[] = "/tmp/softnic-test-XXXXXX", wanted[100];

	close(mkstemp(log));
	setenv("SOFTNIC_LOG", log, 1);
	begin(_i & 1, (struct setup){.memory = GPU});
	partner_replace(partner);
	partner_fill(partner, 9, 0, 1000);
	must_fail(cases[_i >> 1].opcode, end.mr->lkey, other.key, other.addr,
		  IBV_WC_REM_ACCESS_ERR);
	ck_assert_uint_eq(partner_stale(partner), 1);
	ck_assert(partner_holds(partner, 9, 0, 1000));
	snprintf(wanted, sizeof(wanted),
		 "%s qp 0x%x key 0x%x addr 0x%llx length 100: ", cases[_i >> 1].what, other.qp_num,
		 other.key, (unsigned long long)other.addr);
	ck_assert_uint_eq(lines_in_log(log, wanted), 1);
	ck_assert_uint_eq(lines_in_log(log, "softnic: test_softnic_errors["),
			  lines_in_log(log, ""));
	unlink(log);
	finish();
}
END_TEST

START_TEST(a_stale_local_registration_is_counted)
{
	begin(_i, (struct setup){.memory = GPU});
	end_replace(&end);
	must_fail(IBV_WR_RDMA_WRITE, end.mr->lkey, other.key, other.addr, IBV_WC_LOC_PROT_ERR);
	ck_assert_uint_eq(softnic_stale_transfers(), 1);
	finish();
}
END_TEST

/* The receiver's own registration: it gets an error, and so does the sender. */
START_TEST(a_stale_receive_is_counted)
{
	begin(_i, (struct setup){.memory = GPU});
	partner_replace(partner);
	partner_post_receive(partner, 7, 0, 100);
	must_fail(IBV_WR_SEND, end.mr->lkey, 0, 0, IBV_WC_REM_OP_ERR);
	ck_assert_int_eq(partner_wait(partner).status, IBV_WC_LOC_PROT_ERR);
	ck_assert_uint_eq(partner_stale(partner), 1);
	finish();
}
END_TEST

static void must_succeed(enum ibv_wr_opcode opcode, uint32_t key, uint64_t addr)
{
	ck_assert_int_eq(post_to(opcode, end.mr->lkey, key, addr, 100), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
}

/* A dma-buf keeps its memory: a card goes on using that, and reports no error. */
START_TEST(a_stale_dmabuf_reaches_the_old_memory)
{
	char log[] = "/tmp/softnic-test-XXXXXX";

	close(mkstemp(log));
	setenv("SOFTNIC_LOG", log, 1);
	begin(_i, (struct setup){.memory = GPU_DMABUF});
	partner_fill(partner, 8, 0, 1000);
	partner_replace(partner);
	partner_fill(partner, 9, 0, 1000);
	must_succeed(IBV_WR_RDMA_READ, other.key, other.addr);
	ck_assert(end_holds(&end, 8, 0, 100));
	end_fill(&end, 7, 0, 100);
	must_succeed(IBV_WR_RDMA_WRITE, other.key, other.addr);
	end_fill(&end, 6, 0, 100);
	must_succeed(IBV_WR_RDMA_READ, other.key, other.addr);
	ck_assert(end_holds(&end, 7, 0, 100));
	partner_post_receive(partner, 7, 0, 100);
	must_succeed(IBV_WR_SEND, 0, 0);
	ck_assert_int_eq(partner_wait(partner).status, IBV_WC_SUCCESS);
	ck_assert(partner_holds(partner, 9, 0, 1000));
	ck_assert_uint_eq(partner_stale(partner), 4);
	ck_assert_uint_eq(lines_in_log(log, "stale remote read"), 2);
	ck_assert_uint_eq(lines_in_log(log, "stale remote write"), 1);
	ck_assert_uint_eq(lines_in_log(log, "stale local write"), 1);
	unlink(log);
	finish();
}
END_TEST

START_TEST(a_stale_local_dmabuf_sends_the_old_bytes)
{
	begin(_i, (struct setup){.memory = GPU_DMABUF});
	end_fill(&end, 8, 0, 100);
	end_replace(&end);
	end_fill(&end, 9, 0, 100);
	must_succeed(IBV_WR_RDMA_WRITE, other.key, other.addr);
	ck_assert(partner_holds(partner, 8, 0, 100));
	ck_assert_uint_eq(softnic_stale_transfers(), 1);
	finish();
}
END_TEST

/* ---- dma-bufs ------------------------------------------------------------------------------- */

static struct ibv_mr *import(int fd, uint64_t offset, size_t length, uint64_t iova)
{
	return ibv_reg_dmabuf_mr(end.pd, offset, length, iova, fd, IBV_ACCESS_LOCAL_WRITE);
}

/* How a transfer of 100 bytes at this I/O address to the other side ends. */
static enum ibv_wc_status write_from(const struct ibv_mr *mr, uint64_t iova)
{
	ck_assert_int_eq(post_from(iova, IBV_WR_RDMA_WRITE, mr->lkey, other.key, other.addr, 100),
			 0);
	return end_wait(&end).status;
}

START_TEST(a_dmabuf_has_any_io_address)
{
	const uint64_t offset = 3 * 4096 + 8, iovas[] = {8, 4096 + 8};
	struct ibv_mr *mr;

	begin(0, (struct setup){.memory = GPU_DMABUF});
	end_fill(&end, 4, offset, 5000);
	mr = import(end.fd, offset, 5000, iovas[_i]);
	ck_assert_ptr_nonnull(mr);
	ck_assert_int_eq(write_from(mr, iovas[_i]), IBV_WC_SUCCESS);
	ck_assert(partner_holds(partner, 4, 0, 100));
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	finish();
}
END_TEST

/* As a GPU's own: it is reached by its address, and refused where that is other memory by now. */
START_TEST(a_dmabuf_that_cannot_be_read_is_reached_by_its_address)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	CUdeviceptr before, live;
	struct ibv_mr *mr;

	begin(0, (struct setup){.memory = GPU});
	ck_assert_int_eq(cuMemAlloc_v2(&before, 8192), CUDA_SUCCESS);
	ck_assert_int_eq(cuMemAlloc_v2(&live, 8192), CUDA_SUCCESS);
	ck_assert_uint_eq(live, before + 8192);
	ck_assert_int_eq(cuMemsetD8_v2(live, 5, 100), CUDA_SUCCESS);
	ck_assert_int_eq(cuMemFree_v2(before), CUDA_SUCCESS);
	mr = import(fd, 0, 64 << 10, before);
	ck_assert_ptr_nonnull(mr);
	ck_assert_int_eq(write_from(mr, live), IBV_WC_SUCCESS);
	ck_assert_uint_eq(partner_word(partner, 8), 0x0505050505050505);
	ck_assert_int_eq(cuMemFree_v2(live), CUDA_SUCCESS);
	ck_assert_int_eq(write_from(mr, live), IBV_WC_LOC_PROT_ERR);
	ck_assert_uint_eq(softnic_stale_transfers(), 1);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	/* Not EOPNOTSUPP: other dma-bufs can be imported. */
	ck_assert_ptr_null(import(fd, 0, 64 << 10, 4096));
	ck_assert_int_eq(errno, EFAULT);
	close(fd);
	finish();
}
END_TEST

/* A card would reach the old pages, and a copy by the processor would crash. */
START_TEST(unmapped_host_memory_is_an_error)
{
	void *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_sge sge = {(uintptr_t)pages, 100, 0};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mr *mr;

	if (emulator_lacks("process_vm_readv"))
		return;
	begin(_i, (struct setup){0});
	mr = ibv_reg_mr(end.pd, pages, 8192, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(mr);
	sge.lkey = mr->lkey;
	wr.wr.rdma.rkey = other.key;
	wr.wr.rdma.remote_addr = other.addr;
	munmap(pages, 8192);
	ck_assert_int_eq(ibv_post_send(end.qp, &wr, &bad), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_ptr_null(ibv_reg_mr(end.pd, pages, 8192, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, EFAULT);
	finish();
}
END_TEST

/* ---- the other side ------------------------------------------------------------------------- */

START_TEST(a_receiver_that_is_never_ready_is_given_up)
{
	begin(_i, (struct setup){.rnr_tries = 2});
	must_fail(IBV_WR_SEND, end.mr->lkey, 0, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	finish();
}
END_TEST

START_TEST(a_receive_that_is_too_small_is_an_error)
{
	begin(_i, (struct setup){0});
	partner_post_receive(partner, 7, 0, 99);
	must_fail(IBV_WR_SEND, end.mr->lkey, 0, 0, IBV_WC_REM_INV_REQ_ERR);
	ck_assert_int_eq(partner_wait(partner).status, IBV_WC_LOC_LEN_ERR);
	finish();
}
END_TEST

START_TEST(a_process_that_is_gone_is_noticed)
{
	begin(1, (struct setup){0});
	partner_kill(partner);
	must_fail(IBV_WR_RDMA_WRITE, end.mr->lkey, other.key, other.addr, IBV_WC_RETRY_EXC_ERR);
	end_finish(&end);
}
END_TEST

START_TEST(work_of_a_failed_queue_pair_is_flushed)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	begin(_i, (struct setup){0});
	end_post_receive(&end, 3, 0, 100);
	ck_assert_int_eq(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_WR_FLUSH_ERR);
	must_fail(IBV_WR_SEND, end.mr->lkey, 0, 0, IBV_WC_WR_FLUSH_ERR);
	end_post_receive(&end, 4, 0, 100);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_WR_FLUSH_ERR);
	finish();
}
END_TEST

START_TEST(a_full_send_queue_is_refused)
{
	int error = 0, posted = 0;

	begin(_i, (struct setup){0});
	/* Without a receive nothing completes. */
	while (posted < 100 && !(error = post_to(IBV_WR_SEND, end.mr->lkey, 0, 0, 10)))
		posted++;
	ck_assert_int_eq(error, ENOMEM);
	ck_assert_int_eq(posted, 32);
	finish();
}
END_TEST

/* ---- what is not there ---------------------------------------------------------------------- */

START_TEST(what_is_not_there_is_refused)
{
	struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_UC};

	begin(0, (struct setup){0});
	init.send_cq = init.recv_cq = end.cq;
	ck_assert_ptr_null(ibv_create_qp(end.pd, &init));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_ptr_null(ibv_alloc_mw(end.pd, IBV_MW_TYPE_1));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(ibv_rereg_mr(end.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_ptr_null(ibv_import_mr(end.pd, 1));
	ck_assert_int_eq(post_to(IBV_WR_LOCAL_INV, end.mr->lkey, 0, 0, 0), EOPNOTSUPP);
	ck_assert_int_eq(ibv_dealloc_pd(end.pd), EBUSY);
	ck_assert_int_eq(ibv_destroy_cq(end.cq), EBUSY);
	ck_assert_int_eq(ibv_destroy_comp_channel(end.channel), EBUSY);
	finish();
}
END_TEST

/* ---- options -------------------------------------------------------------------------------- */

static struct ibv_mr *register_again(void)
{
	if (end.memory == GPU_DMABUF)
		return ibv_reg_dmabuf_mr(end.pd, 0, BUFFER, end.buffer, end.fd, 0);
	return ibv_reg_mr(end.pd, (void *)end.buffer, BUFFER, 0);
}

static void must_register(bool succeeds, int error)
{
	struct ibv_mr *mr = register_again();

	ck_assert_int_eq(mr != NULL, succeeds);
	if (mr)
		ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	else
		ck_assert_int_eq(errno, error);
}

static void begin_alone(enum memory memory)
{
	struct setup setup = {.memory = memory};

	end_begin(&end, &setup);
}

START_TEST(a_device_has_few_regions)
{
	struct ibv_device_attr attr;
	struct ibv_mr *second;

	setenv("SOFTNIC_MAX_MR", "2", 1);
	begin_alone(HOST);
	ck_assert_int_eq(ibv_query_device(end.device, &attr), 0);
	ck_assert_int_eq(attr.max_mr, 2);
	second = register_again();
	ck_assert_ptr_nonnull(second);
	must_register(false, ENOMEM);
	ck_assert_int_eq(ibv_dereg_mr(second), 0);
	must_register(true, 0);
	end_finish(&end);
}
END_TEST

START_TEST(some_registrations_fail)
{
	setenv("SOFTNIC_ENOMEM_EVERY", "3", 1);
	begin_alone(HOST); /* the first */
	for (int i = 2; i < 20; i++)
		must_register(i % 3 != 0, ENOMEM);
	end_finish(&end);
}
END_TEST

/* The times are compared with the option, which a loaded machine only makes longer. */
START_TEST(registrations_are_slow)
{
	struct timespec before, after;
	long long ns;

	setenv("SOFTNIC_SLOW_NS_PER_PAGE", "10000", 1);
	begin_alone(HOST);
	clock_gettime(CLOCK_MONOTONIC, &before);
	must_register(true, 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	ns = (after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec;
	ck_assert_int_ge(ns, BUFFER / 4096 * 10000ll);
	end_finish(&end);
}
END_TEST

START_TEST(a_device_has_no_dmabufs)
{
	setenv("SOFTNIC_NO_DMABUF", "1", 1);
	begin_alone(GPU);
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(end.pd, 0, BUFFER, end.buffer, 0, 0));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	must_register(true, 0);
	end_finish(&end);
}
END_TEST

START_TEST(a_machine_has_no_peermem)
{
	setenv("SOFTNIC_NO_PEERMEM", "1", 1);
	begin_alone(GPU_DMABUF);
	must_register(true, 0);
	ck_assert_ptr_null(ibv_reg_mr(end.pd, (void *)end.buffer, BUFFER, 0));
	ck_assert_int_eq(errno, EFAULT);
	end_finish(&end);
}
END_TEST

START_TEST(there_are_several_devices)
{
	struct ibv_device **list;
	struct ibv_port_attr port;
	struct ibv_context *context;
	char name[20];
	int count;

	setenv("SOFTNIC_DEVICES", "3", 1);
	list = ibv_get_device_list(&count);
	ck_assert_int_eq(count, 3);
	ck_assert_ptr_null(list[3]);
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "softnic_test%d", i);
		ck_assert_str_eq(ibv_get_device_name(list[i]), name);
		context = ibv_open_device(list[i]);
		ck_assert_int_eq(ibv_query_port(context, 1, &port), 0);
		ck_assert_int_eq(port.lid, i + 1);
		ck_assert_int_eq(ibv_close_device(context), 0);
	}
	ibv_free_device_list(list);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("softnic_errors");
	TCase *tc = suite_case(suite, "errors", NULL, NULL);

	tcase_add_loop_test(tc, an_access_of_no_bytes_checks_no_key, 0, KINDS);
	tcase_add_loop_test(tc, an_unknown_key_is_refused, 0, KINDS);
	tcase_add_loop_test(tc, an_unknown_local_key_is_refused, 0, KINDS);
	tcase_add_loop_test(tc, an_access_beyond_the_region_is_refused, 0, KINDS);
	tcase_add_loop_test(tc, an_access_before_the_region_is_refused, 0, KINDS);
	tcase_add_loop_test(tc, a_write_without_the_right_is_refused, 0, KINDS);
	tcase_add_loop_test(tc, a_deregistered_key_is_refused, 0, KINDS);
	tcase_add_test(tc, keys_are_used_again_last_in_first_out);
	tcase_add_loop_test(tc, a_key_that_is_used_again_has_the_new_region, 0, KINDS);
	tcase_add_loop_test(tc, a_stale_remote_registration_is_counted_and_named, 0, 2 * KINDS);
	tcase_add_loop_test(tc, a_stale_local_registration_is_counted, 0, KINDS);
	tcase_add_loop_test(tc, a_stale_receive_is_counted, 0, KINDS);
	tcase_add_loop_test(tc, a_stale_dmabuf_reaches_the_old_memory, 0, KINDS);
	tcase_add_loop_test(tc, a_stale_local_dmabuf_sends_the_old_bytes, 0, KINDS);
	tcase_add_loop_test(tc, a_dmabuf_has_any_io_address, 0, 2);
	tcase_add_test(tc, a_dmabuf_that_cannot_be_read_is_reached_by_its_address);
	tcase_add_loop_test(tc, unmapped_host_memory_is_an_error, 0, KINDS);
	tcase_add_loop_test(tc, a_receiver_that_is_never_ready_is_given_up, 0, KINDS);
	tcase_add_loop_test(tc, a_receive_that_is_too_small_is_an_error, 0, KINDS);
	tcase_add_test(tc, a_process_that_is_gone_is_noticed);
	tcase_add_loop_test(tc, work_of_a_failed_queue_pair_is_flushed, 0, KINDS);
	tcase_add_loop_test(tc, a_full_send_queue_is_refused, 0, KINDS);
	tcase_add_test(tc, what_is_not_there_is_refused);
	tcase_add_test(tc, a_device_has_few_regions);
	tcase_add_test(tc, some_registrations_fail);
	tcase_add_test(tc, registrations_are_slow);
	tcase_add_test(tc, a_device_has_no_dmabufs);
	tcase_add_test(tc, a_machine_has_no_peermem);
	tcase_add_test(tc, there_are_several_devices);
	return run_suite(suite);
}
