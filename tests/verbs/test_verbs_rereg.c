/* SPDX-License-Identifier: MIT */
/*
 * ibv_rereg_mr: regions of GPU memory that are changed, to host memory and back too, and regions of
 * host memory, which are libibverbs' own. The yardstick is libibverbs' answer to the same change
 * from host memory to host memory.
 */
#include <string.h>
#include <unistd.h>

#include "verbs_test.h"

#define MOVE   IBV_REREG_MR_CHANGE_TRANSLATION
#define DOMAIN IBV_REREG_MR_CHANGE_PD
#define ACCESS IBV_REREG_MR_CHANGE_ACCESS

static CUdeviceptr p, q; /* 4 MiB each */
static char *host;	 /* 64 KiB */

static void begin_with_memory(void)
{
	begin();
	p = gpu_alloc(MIB(4));
	q = gpu_alloc(MIB(4));
	host = malloc(KIB(64));
	memset(host, 'h', KIB(64));
}

/* A change without an error leaves errno unchanged. */
static int change(struct ibv_mr *mr, int flags, struct ibv_pd *to, CUdeviceptr addr, size_t length,
		  int access)
{
	int result;

	errno = 4321;
	result = ibv_rereg_mr(mr, flags, to, (void *)addr, length, access);
	ck_assert(result || errno == 4321);
	return result;
}

static void assert_is_of(const struct ibv_mr *mr, struct ibv_pd *in, CUdeviceptr addr,
			 size_t length)
{
	ck_assert_ptr_eq(mr->pd, in);
	ck_assert_ptr_eq(mr->context, in->context);
	ck_assert_uint_eq((uintptr_t)mr->addr, addr);
	ck_assert_uint_eq(mr->length, length);
}

/* Bytes that are copied by its keys come from and arrive at its memory. */
static void assert_leads_to_gpu(const struct ibv_mr *mr, CUdeviceptr addr)
{
	gpu_fill(addr, 'a', 2048);
	gpu_fill(addr + 2048, 'b', 2048);
	ck_assert_int_eq(recorder_copy(mr->lkey, addr, mr->rkey, addr + 2048, 2048), RECORDER_OK);
	ck_assert(gpu_holds(addr, 'a', 4096));
}

/* ---- ours ---- */

START_TEST(a_region_is_changed_in_place)
{
	struct ibv_pd *other;
	struct ibv_mr *mr;

	begin_with_memory();
	other = ibv_alloc_pd(device);
	mr = must_register(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_int_eq(change(mr, MOVE, NULL, q + 4096, 8192, 0), 0);
	ck_assert_uint_eq((uintptr_t)mr->addr, q + 4096);
	ck_assert_uint_eq(mr->length, 8192);
	ck_assert_int_eq(change(mr, ACCESS, NULL, 0, 0, ALL_ACCESS), 0);
	ck_assert_uint_eq((uintptr_t)mr->addr, q + 4096);
	ck_assert_int_eq(change(mr, DOMAIN, other, 0, 0, 0), 0);
	ck_assert_ptr_eq(mr->pd, other);
	ck_assert_int_eq(recorder_copy(mr->lkey, q + 4096, mr->rkey, q + 8192, 100), RECORDER_OK);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0); /* nothing there is in use any more */
	must_deregister(mr);
	ck_assert_int_eq(ibv_dealloc_pd(other), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(recorder_calls(RECORDER_REREG_MR), 0);
}
END_TEST

START_TEST(a_region_becomes_one_of_the_host_and_back)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	for (int i = 0; i < 2; i++) {
		memset(host, 'h', 8192);
		ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, 8192, 0), 0);
		ck_assert_ptr_eq(mr->addr, host);
		ck_assert_int_eq(recorder_copy(mr->lkey, (uintptr_t)host, mr->rkey,
					       (uintptr_t)host + 4096, 10),
				 RECORDER_OK);
		ck_assert_int_eq(change(mr, MOVE, NULL, p, 4096, 0), 0);
		ck_assert_uint_eq((uintptr_t)mr->addr, p);
	}
	ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, 8192, 0), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
	must_deregister(mr);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(a_change_that_makes_no_sense_is_refused)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(change(mr, 8, NULL, 0, 0, 0), IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(change(mr, MOVE, NULL, 0, 4096, 0), IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(change(mr, MOVE, NULL, p, 0, 0), IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(change(mr, DOMAIN, pd, 0, 0, 1), IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(change(mr, 0, NULL, 0, 0, 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(change(mr, MOVE, NULL, p, MIB(64), 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_uint_eq((uintptr_t)mr->addr, p);
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 4096, 10), RECORDER_OK);
	must_deregister(mr);
}
END_TEST

/* The kernel's own iova stays if only the access or the domain changes. */
START_TEST(a_change_of_rights_keeps_the_iova)
{
	const uint64_t iova = 0x700000000000;
	struct ibv_pd *other;
	struct ibv_mr *mr;

	begin_with_memory();
	other = ibv_alloc_pd(device);
	mr = ibv_reg_mr_iova(pd, (void *)p, 8192, iova, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_int_eq(change(mr, ACCESS, NULL, 0, 0, ALL_ACCESS), 0);
	ck_assert_int_eq(recorder_copy(mr->lkey, iova, mr->rkey, iova + 4096, 10), RECORDER_OK);
	ck_assert_int_eq(change(mr, DOMAIN, other, 0, 0, 0), 0);
	ck_assert_int_eq(recorder_copy(mr->lkey, iova, mr->rkey, iova + 4096, 10), RECORDER_OK);
	ck_assert_int_eq(change(mr, MOVE, NULL, q, 8192, 0), 0);
	ck_assert_int_eq(recorder_copy(mr->lkey, q, mr->rkey, q + 4096, 10), RECORDER_OK);
	must_deregister(mr);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

START_TEST(a_region_that_libibverbs_does_not_let_go_stays)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, 8192, 0), 0);
	recorder_fail(RECORDER_DEREG_MR, 1, EBUSY);
	ck_assert_int_eq(change(mr, MOVE, NULL, q, 4096, 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EBUSY);
	assert_is_of(mr, pd, (uintptr_t)host, 8192);
	ck_assert_int_eq(recorder_copy(mr->lkey, (uintptr_t)host, mr->rkey, (uintptr_t)host, 10),
			 RECORDER_OK);
	must_deregister(mr);
	gpu_free(q);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

static bool may_be_written(const struct ibv_mr *mr, CUdeviceptr at)
{
	struct ibv_mr *from = must_register(pd, q, 4096, ALL_ACCESS);
	enum recorder_status status = recorder_copy(from->lkey, q, mr->rkey, at, 10);

	must_deregister(from);
	return status == RECORDER_OK;
}

START_TEST(rights_that_were_taken_away_stay_away)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert(may_be_written(mr, p));
	ck_assert_int_eq(change(mr, ACCESS, NULL, 0, 0, IBV_ACCESS_LOCAL_WRITE), 0);
	ck_assert(!may_be_written(mr, p));
	ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, 4096, 0), 0);
	ck_assert(!may_be_written(mr, (uintptr_t)host));
	ck_assert_int_eq(change(mr, MOVE, NULL, p + 4096, 4096, 0), 0);
	ck_assert(!may_be_written(mr, p + 4096));
	ck_assert_int_eq(change(mr, ACCESS, NULL, 0, 0, ALL_ACCESS), 0);
	ck_assert(may_be_written(mr, p + 4096));
	must_deregister(mr);
}
END_TEST

START_TEST(a_refused_change_leaves_the_region)
{
	struct ibv_mr *mr;
	uint32_t key;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	key = mr->lkey;
	recorder_fail(RECORDER_REG_MR, 1, EIO);
	ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, 4096, 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EIO);
	assert_is_of(mr, pd, p, 4096);
	ck_assert_uint_eq(mr->lkey, key);
	assert_leads_to_gpu(mr, p);
	/* Only libibverbs can bind windows, and it takes no GPU memory. */
	ck_assert_int_eq(
		change(mr, ACCESS, NULL, 0, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND),
		IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EFAULT);
	assert_leads_to_gpu(mr, p);
	recorder_peermem(true);
	ck_assert_int_eq(
		change(mr, ACCESS, NULL, 0, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND), 0);
	assert_is_of(mr, pd, p, 4096);
	gpu_free(p);
	ck_assert_uint_eq(stats().kept_regions, 0); /* it is nvidia-peermem's now */
	must_deregister(mr);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

/* Another device's, or of the same device opened once more. */
START_TEST(a_domain_of_another_context_is_refused)
{
	struct ibv_pd *foreign;
	struct ibv_mr *mr, *of_host;
	uint32_t key;

	begin_with_memory();
	foreign = ibv_alloc_pd(open_device(_i));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	of_host = ibv_reg_mr(pd, host, 4096, ALL_ACCESS);
	key = mr->lkey;
	ck_assert_int_eq(change(of_host, DOMAIN, foreign, 0, 0, 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(change(mr, DOMAIN, foreign, 0, 0, 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(change(mr, DOMAIN | MOVE, foreign, q, 8192, 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(change(mr, DOMAIN | MOVE, foreign, (uintptr_t)host, 8192, 0),
			 IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EINVAL);
	assert_is_of(mr, pd, p, 4096);
	ck_assert_uint_eq(mr->lkey, key);
	assert_leads_to_gpu(mr, p);
	ck_assert_int_eq(ibv_dealloc_pd(foreign), 0);
	/* Without the flag, the argument has no meaning. */
	ck_assert_int_eq(change(mr, MOVE, foreign, q, 4096, 0), 0);
	assert_leads_to_gpu(mr, q);
	must_deregister(mr);
	ck_assert_int_eq(ibv_dereg_mr(of_host), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

START_TEST(the_device_is_closed_meanwhile)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, 4096, 0), 0);
	gpu_free(p); /* its idle registration goes, too */
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_int_eq(ibv_close_device(device), 0);
	must_deregister(mr);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/* ---- libibverbs' ---- */

START_TEST(a_region_of_the_host_is_changed_by_libibverbs)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = ibv_reg_mr(pd, host, 4096, ALL_ACCESS);
	ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, 8192, 0), 0);
	ck_assert_uint_eq(recorder_calls(RECORDER_REREG_MR), 1);
	ck_assert_uint_eq(dmabuf_calls(), 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
}
END_TEST

/* Left to libibverbs, which refuses it unless nvidia-peermem is there. */
START_TEST(a_region_of_the_host_does_not_become_gpu_memory)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = ibv_reg_mr(pd, host, KIB(64), ALL_ACCESS);
	ck_assert_int_eq(change(mr, MOVE, NULL, p, 4096, 0), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EFAULT);
	assert_is_of(mr, pd, (uintptr_t)host, KIB(64));
	ck_assert_int_eq(recorder_copy(mr->lkey, (uintptr_t)host, mr->rkey, (uintptr_t)host, 10),
			 RECORDER_OK);
	recorder_peermem(true);
	ck_assert_int_eq(change(mr, MOVE, NULL, p, 4096, 0), 0);
	assert_is_of(mr, pd, p, 4096);
	ck_assert_uint_eq(recorder_calls(RECORDER_REREG_MR), 2);
	ck_assert_uint_eq(dmabuf_calls(), 0);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

START_TEST(a_dmabuf_s_own_region_is_not_changed)
{
	struct ibv_mr *mr;
	int fd;

	begin_with_memory();
	OK(cuMemGetHandleForAddressRange(&fd, p, MIB(4), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	mr = ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS);
	close(fd);
	ck_assert_int_eq(change(mr, MOVE, NULL, q, 4096, 0), IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
}
END_TEST

START_TEST(a_full_card_gets_room)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = ibv_reg_mr(pd, host, 4096, ALL_ACCESS);
	register_once(pd, q, 4096, ALL_ACCESS);
	ck_assert_uint_eq(recorder_open_dmabuf_mrs(), 1);
	recorder_fail(RECORDER_REREG_MR, 1, ENOMEM);
	ck_assert_int_eq(change(mr, MOVE, NULL, (uintptr_t)host, KIB(64), 0), 0);
	assert_is_of(mr, pd, (uintptr_t)host, KIB(64));
	ck_assert_uint_eq(recorder_open_dmabuf_mrs(), 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
}
END_TEST

/* ---- the yardstick ---- */

struct answer {
	int result, error;
	bool there; /* the registration is as requested */
};

/* Changes a new region at `from` to `to`, in every way that the arguments allow. */
static struct answer answer_to(CUdeviceptr from, CUdeviceptr to, int flags, bool nowhere,
			       size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)from, 8192, ALL_ACCESS);
	struct ibv_pd *other = ibv_alloc_pd(device);
	CUdeviceptr where = flags & MOVE ? to : from;
	struct answer answer = {0};

	ck_assert_ptr_nonnull(mr);
	answer.result = change(mr, flags, other, nowhere ? 0 : to, length, access);
	answer.error = answer.result ? errno : 0;
	answer.there = (uintptr_t)mr->addr == where && mr->pd == (flags & DOMAIN ? other : pd) &&
		       mr->length == (flags & MOVE ? length : 8192);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(other), 0);
	return answer;
}

START_TEST(the_answers_are_libibverbs_own)
{
	const int accesses[] = {0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE};
	CUdeviceptr there, ways[2][2];
	unsigned good = 0;

	begin_with_memory();
	there = (uintptr_t)host + KIB(32);
	memcpy(ways, (CUdeviceptr[2][2]){{p, q}, {p, there}}, sizeof(ways));
	for (int i = 0; i < 16 * 2 * 2 * 3; i++) {
		int flags = i % 16, access = accesses[i / 64];
		bool nowhere = i / 16 % 2;
		size_t length = i / 32 % 2 ? 0 : 4096;
		struct answer want =
			answer_to((uintptr_t)host, there, flags, nowhere, length, access);

		good += want.result == 0;
		for (int w = 0; w < 2; w++) {
			struct answer got =
				answer_to(ways[w][0], ways[w][1], flags, nowhere, length, access);

			ck_assert_msg(
				got.result == want.result && got.error == want.error &&
					got.there == want.there,
				"way %d, flags %d%s length %zu access %d: %d, errno %d, there %d; "
				"libibverbs: %d, errno %d, there %d",
				w, flags, nowhere ? " nowhere" : "", length, access, got.result,
				got.error, got.there, want.result, want.error, want.there);
		}
	}
	ck_assert_uint_ge(good, 8);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs, changes");
	TCase *tc = verbs_case(suite, "ours");

	tcase_add_test(tc, a_region_is_changed_in_place);
	tcase_add_test(tc, a_region_becomes_one_of_the_host_and_back);
	tcase_add_test(tc, a_change_that_makes_no_sense_is_refused);
	tcase_add_test(tc, a_change_of_rights_keeps_the_iova);
	tcase_add_test(tc, a_region_that_libibverbs_does_not_let_go_stays);
	tcase_add_test(tc, rights_that_were_taken_away_stay_away);
	tcase_add_test(tc, a_refused_change_leaves_the_region);
	tcase_add_loop_test(tc, a_domain_of_another_context_is_refused, 0, 2);
	tcase_add_test(tc, the_device_is_closed_meanwhile);
	tc = verbs_case(suite, "libibverbs'");
	tcase_add_test(tc, a_region_of_the_host_is_changed_by_libibverbs);
	tcase_add_test(tc, a_region_of_the_host_does_not_become_gpu_memory);
	tcase_add_test(tc, a_dmabuf_s_own_region_is_not_changed);
	tcase_add_test(tc, a_full_card_gets_room);
	tc = verbs_case(suite, "the yardstick");
	tcase_add_test(tc, the_answers_are_libibverbs_own);
	return run_verbs_tests(argc, argv, suite);
}
