/* SPDX-License-Identifier: MIT */
/* The functions that all tests of the wrappers share. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verbs_test.h"

#include "tests/unit/support/suite.h"
#include "hook/loader/loaded/symtab.h"

CUcontext cuda;
struct ibv_context *device;
struct ibv_pd *pd;

/*
 * Starts this program again, with the preload. A sanitizer's runtime must come before it (tests/run
 * sets it).
 */
static void preload(char **argv)
{
	const char *build = getenv("BUILD"), *sanitizer = getenv("SAN_PRELOAD");
	const char *given = getenv("ASAN_OPTIONS");
	char *list, *options;

	if (getenv("VERBS_TEST_PRELOADED"))
		return;
	if (!build) {
		fprintf(stderr, "BUILD is not set: run this by make check-unit\n");
		exit(2);
	}
	if (asprintf(&list, "%s%s%s/libpindown.so", sanitizer ? sanitizer : "",
		     sanitizer && *sanitizer ? ":" : "", build) < 0 ||
	    asprintf(&options, "%s:detect_leaks=0:verify_asan_link_order=0", given ? given : "") <
		    0)
		exit(2);
	setenv("LD_PRELOAD", list, 1);
	setenv("VERBS_TEST_PRELOADED", "1", 1);
	setenv("ASAN_OPTIONS", options, 1);
	execv("/proc/self/exe", argv);
	perror("exec");
	exit(2);
}

int run_verbs_tests(int argc, char **argv, Suite *suite)
{
	(void)argc;
	preload(argv);
	return run_suite(suite);
}

/* After every test: libibverbs was never given a foreign pointer, and no free was missed. */
static void end(void)
{
	ck_assert_uint_eq(recorder_strangers(), 0);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}

TCase *verbs_case(Suite *suite, const char *name)
{
	return suite_case(suite, name, NULL, end);
}

struct ibv_context *open_device(int number)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened = ibv_open_device(list[number]);

	ibv_free_device_list(list);
	ck_assert_ptr_nonnull(opened);
	return opened;
}

void begin(void)
{
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&cuda, 0, 0));
	device = open_device(0);
	pd = ibv_alloc_pd(device);
	ck_assert_ptr_nonnull(pd);
}

CUdeviceptr gpu_alloc(size_t size)
{
	CUdeviceptr p = 0;

	OK(cuMemAlloc_v2(&p, size));
	return p;
}

void gpu_free(CUdeviceptr p)
{
	OK(cuMemFree_v2(p));
}

void gpu_fill(CUdeviceptr p, char c, size_t size)
{
	OK(cuMemsetD8_v2(p, (unsigned char)c, size));
}

bool gpu_holds(CUdeviceptr p, char c, size_t size)
{
	char *bytes = malloc(size);
	bool same = true;

	OK(cuMemcpyDtoH_v2(bytes, p, size));
	for (size_t i = 0; i < size && same; i++)
		same = bytes[i] == c;
	free(bytes);
	return same;
}

struct ibv_mr *must_register(struct ibv_pd *in, CUdeviceptr addr, size_t length, int access)
{
	struct ibv_mr *mr;

	errno = 4321;
	mr = ibv_reg_mr(in, (void *)addr, length, access);
	ck_assert_msg(mr != NULL, "ibv_reg_mr: errno %d", errno);
	ck_assert_int_eq(errno, 4321);
	ck_assert_ptr_eq(mr->context, in->context);
	ck_assert_ptr_eq(mr->pd, in);
	ck_assert_uint_eq((uintptr_t)mr->addr, addr);
	ck_assert_uint_eq(mr->length, length);
	return mr;
}

void must_deregister(struct ibv_mr *mr)
{
	errno = 4321;
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(errno, 4321);
}

void register_once(struct ibv_pd *in, CUdeviceptr addr, size_t length, int access)
{
	must_deregister(must_register(in, addr, length, access));
}

struct recorder_call last_call(enum recorder_verb verb)
{
	struct recorder_call call;

	ck_assert(recorder_last(verb, &call));
	return call;
}

void in_four_threads(void *(*run)(void *))
{
	pthread_t threads[4];

	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run, NULL), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

struct pindown_stats stats(void)
{
	struct pindown_stats s;

	ck_assert_int_eq(pindown_stats(&s, sizeof(s), -1), 0);
	return s;
}

static int find_libcuda(struct dl_phdr_info *info, size_t size, void *object)
{
	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC &&
		    pdn_elf_read(object, info->dlpi_addr,
				 (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr)) &&
		    pdn_elf_same(((struct pdn_elf *)object)->soname, "libcuda.so.1"))
			return 1;
	return 0;
}

void *unwatched(const char *name)
{
	struct pdn_elf object;

	ck_assert_int_eq(dl_iterate_phdr(find_libcuda, &object), 1);
	return pdn_elf_find(&object, name);
}
