/* SPDX-License-Identifier: MIT */
/*
 * Declarations for all tests of the verbs wrappers. The tests are programs linked with the
 * simulated driver and the recording libibverbs, which start themselves again with libpindown.so
 * preloaded; each test runs in a process of its own.
 */
#ifndef VERBS_TEST_H
#define VERBS_TEST_H

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "hook/cuda/abi.h"
#include "cache/pindown.h"
#include "recorder.h"
#include "tests/sim/sim.h"

#define KIB(n)	   ((uint64_t)(n) << 10)
#define MIB(n)	   ((uint64_t)(n) << 20)
#define OK(call)   ck_assert_int_eq(call, CUDA_SUCCESS)
#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* main() of each of these programs. */
int run_verbs_tests(int argc, char **argv, Suite *suite);
TCase *verbs_case(Suite *suite, const char *name);

/* Makes a CUDA context, a device and a protection domain. */
extern CUcontext cuda;
extern struct ibv_context *device;
extern struct ibv_pd *pd;
void begin(void);

/* The same for a test that sets environment variables of the configuration first. */
struct ibv_context *open_device(int number);

CUdeviceptr gpu_alloc(size_t size);
void gpu_free(CUdeviceptr p);
void gpu_fill(CUdeviceptr p, char c, size_t size);
bool gpu_holds(CUdeviceptr p, char c, size_t size);

/* Registers GPU memory, which must succeed; and the call as the program made it. */
struct ibv_mr *must_register(struct ibv_pd *in, CUdeviceptr addr, size_t length, int access);
void must_deregister(struct ibv_mr *mr);
void register_once(struct ibv_pd *in, CUdeviceptr addr, size_t length, int access);

/* The last call of this kind that has reached libibverbs or libmlx5; there must be one. */
struct recorder_call last_call(enum recorder_verb verb);

/* Runs it in four threads at once. */
void in_four_threads(void *(*run)(void *));

struct pindown_stats stats(void);

/* A function of the driver by a road that nobody watches: through its own symbol table. */
void *unwatched(const char *name);

/* The number of calls that have reached libibverbs. */
#define dmabuf_calls() recorder_calls(RECORDER_REG_DMABUF_MR)
#define host_calls()                                                              \
	(recorder_calls(RECORDER_REG_MR) + recorder_calls(RECORDER_REG_MR_IOVA) + \
	 recorder_calls(RECORDER_REG_MR_IOVA2))
#define dereg_calls() recorder_calls(RECORDER_DEREG_MR)

#endif
