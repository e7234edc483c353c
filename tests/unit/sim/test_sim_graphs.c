/* SPDX-License-Identifier: MIT */
/* The simulated driver's graphs and captured streams. */
#include <string.h>

#include "tests/sim/abi.h"
#include "tests/unit/support/sim_support.h"

static void nothing_is_said_about(CUdeviceptr ptr)
{
	size_t size;

	ck_assert_uint_eq(id_of(ptr), 0);
	refused(cu(cuMemGetAddressRange_v2)(NULL, &size, ptr), CUDA_ERROR_NOT_FOUND);
	refused(try_export(ptr, 64 * KIB), CUDA_ERROR_INVALID_VALUE);
}

START_TEST(captured_memory_is_not_known_before_or_after_it_lives)
{
	CUstream stream;
	CUdeviceptr ptr;
	CUgraph graph;
	CUgraphExec exec;
	char back = 0;

	start();
	ok(cu(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(cu(cuMemAllocAsync)(&ptr, 64 * KIB, stream));
	ck_assert_uint_ne(ptr, 0);
	nothing_is_said_about(ptr);
	ok(cu(cuMemsetD8Async)(ptr, 8, 64 * KIB, stream));
	ok(cu(cuMemcpyDtoHAsync_v2)(&back, ptr + 1000, 1, stream));
	ok(cu(cuMemFreeAsync)(ptr, stream));
	ok(cu(cuStreamEndCapture)(stream, &graph));
	ck_assert_int_eq(back, 0);
	ok(cu(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	ok(cu(cuGraphLaunch)(exec, stream));
	ok(cu(cuGraphLaunch)(exec, stream));
	ck_assert_int_eq(back, 8);
	nothing_is_said_about(ptr);
	ok(cu(cuGraphExecDestroy)(exec));
	ok(cu(cuGraphDestroy)(graph));
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
}
END_TEST

static void capture_allocation_and_free(CUstream stream, CUdeviceptr *ptr, size_t size,
					CUgraph *graph)
{
	ok(cu(cuMemAllocAsync)(ptr, size, stream));
	ok(cu(cuMemFreeAsync)(*ptr, stream));
	ok(cu(cuStreamEndCapture)(stream, graph));
}

START_TEST(memory_captured_again_is_what_it_was)
{
	CUgraph graph, again;
	CUdeviceptr ptr, same;
	CUstream stream;

	start();
	ok(cu(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	capture_allocation_and_free(stream, &ptr, MIB, &graph);
	ok(cu(cuStreamBeginRecaptureToGraph)(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, NULL,
					     NULL));
	capture_allocation_and_free(stream, &same, MIB, &again);
	ck_assert_uint_eq(same, ptr);
	ck_assert_ptr_eq(again, graph);
	/* First too little, then something else. */
	ok(cu(cuStreamBeginRecaptureToGraph)(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, NULL,
					     NULL));
	ok(cu(cuMemAllocAsync)(&same, MIB, stream));
	refused(cu(cuStreamEndCapture)(stream, &again), CUDA_ERROR_GRAPH_RECAPTURE_FAILURE);
	ok(cu(cuStreamBeginRecaptureToGraph_ptsz)(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph,
						  NULL, NULL));
	refused(cu(cuMemAllocAsync)(&same, 2 * MIB, stream), CUDA_ERROR_GRAPH_RECAPTURE_FAILURE);
	refused(cu(cuStreamEndCapture)(stream, &again), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	refused(cu(cuStreamBeginRecaptureToGraph)(stream, CU_STREAM_CAPTURE_MODE_RELAXED, NULL,
						  NULL, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuGraphDestroy)(graph));
}
END_TEST

START_TEST(memory_of_an_allocation_node_lives_from_launch_to_free)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = 3 * MIB};
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;
	uint64_t id;

	start();
	ok(cu(cuGraphCreate)(&graph, 0));
	ok(cu(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params));
	ok(cu(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	refused(cu(cuMemsetD8_v2)(params.dptr, 1, 1), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuGraphLaunch)(exec, NULL));
	ok(cu(cuMemsetD8_v2)(params.dptr, 1, 3 * MIB));
	ok(try_export(params.dptr, 3 * MIB));
	id = id_of(params.dptr);
	ck_assert_uint_ne(id, 0);
	refused(cu(cuGraphLaunch)(exec, NULL), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemFree_v2)(params.dptr));
	nothing_is_said_about(params.dptr);
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
	ok(cu(cuGraphLaunch)(exec, NULL));
	ck_assert_uint_gt(id_of(params.dptr), id);
	ok(cu(cuGraphExecDestroy)(exec));
	ok(cu(cuGraphDestroy)(graph));
	ok(cu(cuMemsetD8_v2)(params.dptr, 1, 3 * MIB));
	ok(cu(cuMemFreeAsync)(params.dptr, NULL));
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
}
END_TEST

static void append_letter(void *data)
{
	char *text = data;

	text[strlen(text)] = 'a' + strlen(text);
}

START_TEST(streams_fork_and_join_in_a_capture)
{
	CUstream a, b;
	CUevent fork_event, join_event;
	CUgraphExec exec;
	CUgraph graph;
	size_t count = 0;
	char text[8] = "";

	start();
	ok(cu(cuStreamCreate)(&a, 0));
	ok(cu(cuStreamCreate)(&b, 0));
	ok(cu(cuEventCreate)(&fork_event, 0));
	ok(cu(cuEventCreate)(&join_event, 0));
	ok(cu(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu(cuLaunchHostFunc)(a, append_letter, text));
	ok(cu(cuEventRecord)(fork_event, a));
	ok(cu(cuStreamWaitEvent)(b, fork_event, 0));
	ok(cu(cuLaunchHostFunc)(b, append_letter, text));
	ok(cu(cuEventRecord)(join_event, b));
	ok(cu(cuStreamWaitEvent)(a, join_event, 0));
	ok(cu(cuLaunchHostFunc)(a, append_letter, text));
	ok(cu(cuStreamEndCapture)(a, &graph));
	ok(cu(cuGraphGetNodes)(graph, NULL, &count));
	ck_assert_uint_eq(count, 3);
	ok(cu(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	ck_assert_str_eq(text, "");
	ok(cu(cuGraphLaunch)(exec, a));
	ck_assert_str_eq(text, "abc");
	ok(cu(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cu(cuEventRecord)(fork_event, a));
	ok(cu(cuStreamWaitEvent)(b, fork_event, 0));
	ok(cu(cuLaunchHostFunc)(b, append_letter, text));
	refused(cu(cuStreamEndCapture)(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}
END_TEST

/* Calls that a registration cache must not make without the program's knowledge. */
START_TEST(some_calls_spoil_a_capture)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr ptr;
	CUstream stream;
	CUgraph graph;

	start();
	ptr = allocate(MIB);
	ok(cu(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	ok(cu(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(try_export(ptr, MIB));
	ck_assert_uint_ne(id_of(ptr), 0);
	ok(cu(cuThreadExchangeStreamCaptureMode)(&mode));
	ok(set_sync_memops(ptr));
	ok(cu(cuThreadExchangeStreamCaptureMode)(&mode));
	ok(cu(cuStreamEndCapture)(stream, &graph));
	ok(cu(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	if (_i)
		refused(set_sync_memops(ptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	else
		refused(cu(cuMemFree_v2)(ptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	refused(cu(cuStreamEndCapture)(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_uint_ne(id_of(ptr), 0);
	ok(cu(cuMemFree_v2)(ptr));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: graphs");
	TCase *tests = suite_case(suite, "graphs", NULL, NULL);

	tcase_add_test(tests, captured_memory_is_not_known_before_or_after_it_lives);
	tcase_add_test(tests, memory_captured_again_is_what_it_was);
	tcase_add_test(tests, memory_of_an_allocation_node_lives_from_launch_to_free);
	tcase_add_test(tests, streams_fork_and_join_in_a_capture);
	tcase_add_loop_test(tests, some_calls_spoil_a_capture, 0, 2);
	return run_suite(suite);
}
