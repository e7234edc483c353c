/* SPDX-License-Identifier: MIT */
/* The simulated driver and several processes; and memory that is shared by a descriptor. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/sim_support.h"

START_TEST(a_forked_child_has_no_driver)
{
	CUdeviceptr ptr;
	int status;
	pid_t child;

	refused(cu(cuMemFree_v2)(0), CUDA_ERROR_NOT_INITIALIZED);
	start();
	ptr = allocate(100);
	child = _i ? _Fork() : fork();
	if (child == 0) {
		bool right = cu(cuMemFree_v2)(ptr) == CUDA_ERROR_NOT_INITIALIZED &&
			     cu(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED &&
			     cu(cuCtxGetCurrent)(&(CUcontext){0}) == CUDA_ERROR_NOT_INITIALIZED &&
			     cu(sim_live_allocations)() == 1;

		_exit(right ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_ne(id_of(ptr), 0);
}
END_TEST

START_TEST(a_child_of_a_parent_without_driver_may_have_its_own)
{
	int status;
	pid_t child;

	sim_library();
	child = fork();
	if (child == 0)
		_exit(cu(cuInit)(0));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- checkpoints ---- */

static int to_parent[2], to_child[2];

static void tell(int fd)
{
	ck_assert_int_eq(write(fd, "x", 1), 1);
}

static void wait_for(int fd)
{
	char byte;

	ck_assert_int_eq(read(fd, &byte, 1), 1);
}

/* As seen on an H100 and an H200: addresses, ids and contents stay, and so do old dma-bufs. */
static void be_checkpointed(void)
{
	CUdeviceptr exported = allocate(2 * MIB), other = allocate(2 * MIB);
	uint64_t ids[] = {id_of(exported), id_of(other)}, before = free_bytes();
	int fd, tid = 0;

	ok(cu(cuMemsetD8_v2)(exported, 1, 2 * MIB));
	ok(cu(cuMemsetD8_v2)(other, 2, 2 * MIB));
	fd = export_of(exported, 2 * MIB);
	ok(cu(cuCheckpointProcessGetRestoreThreadId)(getpid(), &tid));
	ck_assert_int_ne(tid, getpid());
	tell(to_parent[1]);
	wait_for(to_child[0]);
	ck_assert_uint_eq(id_of(exported), ids[0]);
	ck_assert_uint_eq(id_of(other), ids[1]);
	ck_assert_uint_eq(free_bytes(), before - 2 * MIB);
	ok(cu(cuMemsetD8_v2)(exported, 3, 1 * MIB));
	ck_assert_int_eq(byte_of(fd, 0), 1);
	close(fd);
	fd = export_of(exported, 2 * MIB);
	ck_assert_int_eq(byte_of(fd, 0), 3);
	ck_assert_int_eq(byte_of(fd, 2 * MIB - 1), 1);
	ck_assert_uint_eq(free_bytes(), before);
}

/* Its calls wait until it is unlocked. */
static void be_locked(void)
{
	tell(to_parent[1]);
	wait_for(to_child[0]);
	allocate(2 * MIB);
	tell(to_parent[1]);
	wait_for(to_child[0]); /* the answer to the unlock comes from this process */
}

static pid_t start_child(void (*run)(void))
{
	pid_t child;

	setenv("SIM_CHECKPOINT", "1", 1);
	sim_library();
	ck_assert_int_eq(pipe(to_parent) | pipe(to_child), 0);
	child = fork();
	if (child == 0) {
		start();
		run();
		_exit(0);
	}
	wait_for(to_parent[0]);
	start();
	return child;
}

static void must_end_well(pid_t child)
{
	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

START_TEST(another_process_makes_a_checkpoint)
{
	pid_t child = start_child(be_checkpointed);

	refused(cu(cuCheckpointProcessCheckpoint)(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	ok(cu(cuCheckpointProcessLock)(child, NULL));
	ok(cu(cuCheckpointProcessCheckpoint)(child, NULL));
	refused(cu(cuCheckpointProcessUnlock)(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	ok(cu(cuCheckpointProcessRestore)(child, NULL));
	ok(cu(cuCheckpointProcessUnlock)(child, NULL));
	tell(to_child[1]);
	must_end_well(child);
	refused(cu(cuCheckpointProcessLock)(child, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(a_locked_process_waits)
{
	pid_t child = start_child(be_locked);
	struct pollfd answer = {.fd = to_parent[0], .events = POLLIN};

	ok(cu(cuCheckpointProcessLock)(child, NULL));
	tell(to_child[1]);
	ck_assert_int_eq(poll(&answer, 1, 100), 0);
	ok(cu(cuCheckpointProcessUnlock)(child, NULL));
	wait_for(to_parent[0]);
	tell(to_child[1]);
	must_end_well(child);
}
END_TEST

static CUdeviceptr at_exit_ptr;

static void at_exit(void)
{
	if (cu(cuMemFree_v2)(at_exit_ptr) != CUDA_ERROR_DEINITIALIZED ||
	    cu(cuInit)(0) != CUDA_ERROR_DEINITIALIZED)
		_exit(1);
	_exit(42);
}

START_TEST(handlers_older_than_cuInit_find_it_shut_down)
{
	int status;
	pid_t child;

	sim_library();
	child = fork();
	if (child == 0) {
		atexit(at_exit);
		start();
		at_exit_ptr = allocate(100);
		exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 42);
}
END_TEST

/* Runs two processes, neither of which is a child of an initialised one. */
static pid_t beside(int *from, int *to, void (*other)(int in, int out))
{
	int down[2], up[2];
	pid_t child;

	ck_assert_int_eq(pipe(down), 0);
	ck_assert_int_eq(pipe(up), 0);
	sim_library();
	child = fork();
	if (child == 0) {
		close(down[1]);
		other(down[0], up[1]);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	*from = up[0];
	*to = down[1];
	return child;
}

static void must_read(int fd, void *to, size_t size)
{
	if (read(fd, to, size) != (ssize_t)size)
		_exit(3);
}

static void must_write(int fd, const void *from, size_t size)
{
	if (write(fd, from, size) != (ssize_t)size)
		_exit(3);
}

static void must(int yes, int code)
{
	if (!yes)
		_exit(code);
}

static void import_memory(int in, int out)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr, again;
	char back[8];

	must_read(in, &handle, sizeof(handle));
	must(start() != NULL, 10);
	must(!cu(cuIpcOpenMemHandle_v2)(&ptr, handle, 1), 11);
	must(!cu(cuIpcOpenMemHandle)(&again, handle, 1) && again == ptr, 12);
	must(!cu(cuMemcpyDtoH_v2)(back, ptr + 100, 8) && back[7] == 0x3c, 13);
	must(!cu(cuMemsetD8_v2)(ptr, 0x44, 1), 14);
	must(!cu(cuIpcCloseMemHandle)(ptr) && id_of(ptr), 15);
	must_write(out, "o", 1);
	must_read(in, back, 1); /* the exporter has freed it */
	must(!cu(cuMemcpyDtoH_v2)(back, ptr + 100, 1) && back[0] == 0x3c, 16);
	must(cu(cuIpcOpenMemHandle)(&again, handle, 1) == CUDA_SUCCESS, 17);
	must(!cu(cuIpcCloseMemHandle)(ptr) && !cu(cuIpcCloseMemHandle)(ptr) && !id_of(ptr), 18);
	must(cu(cuIpcOpenMemHandle)(&again, handle, 1) != CUDA_SUCCESS, 19);
	must_write(out, "c", 1);
}

START_TEST(memory_is_shared_by_ipc_handles)
{
	CUipcMemHandle handle;
	int from, to, status;
	CUdeviceptr ptr;
	uint64_t before;
	pid_t child;
	char byte;

	child = beside(&from, &to, import_memory);
	start();
	before = free_bytes();
	allocate(512);
	ptr = allocate(4000);
	ok(cu(cuMemsetD8_v2)(ptr, 0x3c, 4000));
	ok(cu(cuIpcGetMemHandle)(&handle, ptr));
	must_write(to, &handle, sizeof(handle));
	must_read(from, &byte, 1);
	ok(cu(cuMemcpyDtoH_v2)(&byte, ptr, 1));
	ck_assert_int_eq(byte, 0x44);
	ok(cu(cuMemFree_v2)(ptr));
	ok(cu(cuMemFree_v2)(ptr & ~(2 * MIB - 1)));
	ck_assert_uint_eq(free_bytes(), before - 2 * MIB);
	must_write(to, "f", 1);
	must_read(from, &byte, 1);
	ck_assert_uint_eq(free_bytes(), before);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(external_memory_can_be_mapped_but_not_exported)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = MIB};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 64 * KIB, .size = 128 * KIB};
	CUexternalMemory memory;
	CUdeviceptr ptr;
	int file, kept;
	char byte;

	start();
	file = memfd_create("external", MFD_CLOEXEC);
	kept = dup(file);
	ck_assert_int_eq(ftruncate(file, MIB), 0);
	ck_assert_int_eq(pwrite(file, "z", 1, 64 * KIB + 7), 1);
	desc.handle.fd = file;
	ok(cu(cuImportExternalMemory)(&memory, &desc));
	ck_assert_int_eq(fcntl(file, F_GETFD), -1); /* it belongs to the driver now */
	ok(cu(cuExternalMemoryGetMappedBuffer)(&ptr, memory, &buffer));
	ok(cu(cuMemcpyDtoH_v2)(&byte, ptr + 7, 1));
	ck_assert_int_eq(byte, 'z');
	refused(try_export(ptr, 64 * KIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemsetD8_v2)(ptr, 'y', 128 * KIB));
	ck_assert_int_eq(pread(kept, &byte, 1, 64 * KIB + 7), 1);
	ck_assert_int_eq(byte, 'y');
	ok(cu(cuDestroyExternalMemory)(memory));
	ok(cu(cuMemFree_v2)(ptr));
	ck_assert_uint_eq(id_of(ptr), 0);
}
END_TEST

START_TEST(a_shared_handle_leads_back_to_its_memory)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle, again;
	int fd;

	start();
	ok(cu(cuMemCreate)(&handle, 2 * MIB, &prop, 0));
	ok(cu(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0));
	ok(cu(cuMemImportFromShareableHandle)(&again, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ok(cu(cuMemRelease)(handle));
	ok(cu(cuMemRelease)(again));
	ck_assert_uint_eq(cu(sim_kept_bytes)(0), 2 * MIB);
	close(fd);
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
	ck_assert_uint_eq(cu(sim_open_exports)(0), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: processes");
	TCase *tests = suite_case(suite, "processes", NULL, NULL);

	tcase_add_loop_test(tests, a_forked_child_has_no_driver, 0, 2);
	tcase_add_test(tests, a_child_of_a_parent_without_driver_may_have_its_own);
	tcase_add_test(tests, another_process_makes_a_checkpoint);
	tcase_add_test(tests, a_locked_process_waits);
	tcase_add_test(tests, handlers_older_than_cuInit_find_it_shut_down);
	tcase_add_test(tests, memory_is_shared_by_ipc_handles);
	tcase_add_test(tests, external_memory_can_be_mapped_but_not_exported);
	tcase_add_test(tests, a_shared_handle_leads_back_to_its_memory);
	return run_suite(suite);
}
