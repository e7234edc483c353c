/* SPDX-License-Identifier: MIT */
/* The simulated driver's linear memory and its export, as a real GPU was seen to behave. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/sim_support.h"

#define CPU_PAGE ((size_t)sysconf(_SC_PAGESIZE))

START_TEST(small_allocations_are_packed)
{
	CUdeviceptr a, b, c;

	start();
	a = allocate(100);
	b = allocate(100);
	c = allocate(MIB);
	ck_assert_uint_eq(a % (2 * MIB), 0);
	ck_assert_uint_eq(b - a, 0x200);
	ck_assert_uint_eq(c - a, 0x400);
	ck_assert_uint_lt(id_of(a), id_of(b));
	ck_assert_uint_lt(id_of(b), id_of(c));
}
END_TEST

START_TEST(a_freed_address_is_reused_at_once_under_a_later_id)
{
	static const uint64_t sizes[] = {1, 512, 64 * KIB, MIB, 2 * MIB, 3 * MIB + 777, 64 * MIB};
	size_t i;

	start();
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CUdeviceptr neighbour = allocate(sizes[i]), ptr = allocate(sizes[i]), again;
		uint64_t id = id_of(ptr);

		ok(cu(cuMemFree_v2)(ptr));
		ck_assert_uint_eq(id_of(ptr), 0);
		again = allocate(sizes[i]);
		ck_assert_uint_eq(again, ptr);
		ck_assert_uint_gt(id_of(again), id);
		ck_assert_uint_ne(id_of(neighbour), 0);
	}
}
END_TEST

START_TEST(bad_frees_and_allocations_are_refused)
{
	CUdeviceptr ptr, none = 0;

	start();
	ptr = allocate(MIB);
	refused(cu(cuMemAlloc_v2)(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuMemAlloc_v2)(&none, 0), CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuMemAlloc_v2)(&none, 1ull << 45), CUDA_ERROR_OUT_OF_MEMORY);
	refused(cu(cuMemFree_v2)(ptr + 512), CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuMemFree_v2)((CUdeviceptr)&none), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemFree_v2)(0));
	ok(cu(cuMemFree_v2)(ptr));
	refused(cu(cuMemFree_v2)(ptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(none, 0);
}
END_TEST

START_TEST(device_memory_is_not_the_hosts_to_touch)
{
	volatile char *ptr;

	start();
	signal(SIGSEGV, SIG_DFL); /* sanitizers would turn the signal into an exit */
	ptr = (volatile char *)allocate(MIB);
	*ptr = 1;
}
END_TEST

START_TEST(copies_reach_memory_and_only_memory)
{
	char text[16] = "0123456789abcde", back[16] = "";
	CUdeviceptr a, b;

	start();
	a = allocate(3 * MIB);
	b = allocate(100);
	ok(cu(cuMemcpyHtoD_v2)(a + MIB, text, sizeof(text)));
	ok(cu(cuMemcpyDtoD_v2)(b, a + MIB, sizeof(text)));
	ok(cu(cuMemcpyDtoH_v2)(back, b, sizeof(back)));
	ck_assert_str_eq(text, back);
	ok(cu(cuMemsetD32_v2)(b, 0x01020304, 4));
	ok(cu(cuMemcpyDtoH_v2)(back, b, sizeof(back)));
	ck_assert_mem_eq(back, "\4\3\2\1\4\3\2\1\4\3\2\1\4\3\2\1", 16);
	refused(cu(cuMemcpyHtoD_v2)(a + 3 * MIB - 8, text, 16), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemFree_v2)(a));
	refused(cu(cuMemcpyHtoD_v2)(a, text, 16), CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuMemsetD8_v2)(a, 0, 1), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(exports_follow_pages_and_blocks)
{
	CUdeviceptr big, small;

	start();
	big = allocate(3 * MIB + 777);
	small = allocate(100);
	refused(try_export(big, 777), CUDA_ERROR_INVALID_VALUE);
	refused(try_export(big + 512, CPU_PAGE), CUDA_ERROR_INVALID_VALUE);
	refused(try_export(big, 0), CUDA_ERROR_INVALID_VALUE);
	ok(try_export(big, CPU_PAGE));
	ok(try_export(big, 3 * MIB + 64 * KIB));
	ok(try_export(big, 4 * MIB));
	refused(try_export(big, 4 * MIB + 64 * KIB), CUDA_ERROR_INVALID_VALUE);
	ok(try_export(small, 64 * KIB));
	refused(cu(cuMemGetHandleForAddressRange)(&(int){0}, big, CPU_PAGE, 1, 1),
		CUDA_ERROR_NOT_SUPPORTED);
	refused(cu(cuMemGetHandleForAddressRange)(NULL, big, CPU_PAGE, 1, 0),
		CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuMemGetHandleForAddressRange)(&(int){0}, big, CPU_PAGE, 7, 0),
		CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(a_freed_neighbour_can_be_exported_with_its_block)
{
	CUdeviceptr first, second, page;

	start();
	first = allocate(1000);
	second = allocate(64 * KIB);
	page = second & ~(64 * KIB - 1);
	ok(cu(cuMemFree_v2)(first));
	ok(try_export(page, 64 * KIB));
	ok(try_export(page, 2 * MIB));
	ck_assert_uint_eq(id_of(first), 0);
	refused(cu(cuMemGetAddressRange_v2)(&first, NULL, first), CUDA_ERROR_NOT_FOUND);
	refused(try_export(page + 256 * KIB, 64 * KIB), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(an_export_shows_the_memory_from_its_position_on)
{
	CUdeviceptr ptr, inner;
	char *map;
	int fd;

	start();
	allocate(MIB + 512);
	ptr = allocate(300 * KIB);
	ok(cu(cuMemsetD8_v2)(ptr, 0x5a, 300 * KIB));
	inner = (ptr + 64 * KIB) & ~(64 * KIB - 1);
	fd = export_of(inner, 128 * KIB);
	ck_assert_int_eq(byte_of(fd, 0), 0x5a);
	map = mmap(NULL, 128 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   cu(sim_dmabuf_offset)(fd));
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_int_eq(map[128 * KIB - 1], 0x5a);
	map[5] = 0x77;
	ok(cu(cuMemcpyDtoH_v2)(map + 6, inner + 5, 1));
	ck_assert_int_eq(map[6], 0x77);
	munmap(map, 128 * KIB);
	close(fd);
}
END_TEST

/* Programs read it so: pread() from the file position of the descriptor. */
START_TEST(the_position_is_where_the_range_begins_at_any_offset)
{
	uint64_t size = 5 * MIB,
		 offsets[] = {0, CPU_PAGE, 64 * KIB, 2 * MIB + 3 * CPU_PAGE, 5 * MIB - CPU_PAGE};
	CUdeviceptr ptr;
	uint64_t value;
	size_t i;
	int fd;

	start();
	allocate(6 * MIB); /* the next allocation is not at the start of the device's memory */
	ptr = allocate(size);
	for (i = 0; i < size; i += CPU_PAGE) {
		value = ptr + i;
		ok(cu(cuMemcpyHtoD_v2)(ptr + i, &value, sizeof(value)));
	}
	for (i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		fd = export_of(ptr + offsets[i], CPU_PAGE);
		ck_assert_int_eq(pread(fd, &value, 8, lseek(fd, 0, SEEK_CUR)), 8);
		ck_assert_uint_eq(value, ptr + offsets[i]);
		ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), cu(sim_dmabuf_offset)(fd));
		close(fd);
	}
}
END_TEST

START_TEST(an_exported_descriptor_keeps_the_old_memory)
{
	CUdeviceptr ptr, again;
	uint64_t before;
	int fd, other;

	start();
	before = free_bytes();
	ptr = allocate(64 * MIB);
	ck_assert_uint_eq(free_bytes(), before - 64 * MIB);
	ok(cu(cuMemsetD8_v2)(ptr, 0xaa, 64 * MIB));
	fd = export_of(ptr, 64 * MIB);
	ok(cu(cuMemFree_v2)(ptr));
	ck_assert_uint_eq(free_bytes(), before - 64 * MIB);
	ck_assert_uint_eq(cu(sim_kept_bytes)(0), 64 * MIB);
	again = allocate(64 * MIB);
	ck_assert_uint_eq(again, ptr);
	ok(cu(cuMemsetD8_v2)(again, 0x55, 64 * MIB));
	ck_assert_int_eq(byte_of(fd, 0), 0xaa);
	ck_assert_int_eq(byte_of(fd, 64 * MIB - 1), 0xaa);
	ok(cu(cuMemFree_v2)(again));
	other = dup(fd);
	close(fd);
	ck_assert_uint_eq(free_bytes(), before - 64 * MIB);
	close(other);
	ck_assert_uint_eq(free_bytes(), before);
	ck_assert_uint_eq(cu(sim_kept_bytes)(0), 0);
}
END_TEST

START_TEST(a_mapping_keeps_it_too)
{
	CUdeviceptr ptr;
	uint64_t before;
	char *map;
	int fd;

	start();
	before = free_bytes();
	ptr = allocate(2 * MIB);
	fd = export_of(ptr, 2 * MIB);
	map = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, cu(sim_dmabuf_offset)(fd));
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd);
	ok(cu(cuMemFree_v2)(ptr));
	ck_assert_uint_eq(free_bytes(), before - 2 * MIB);
	ck_assert_uint_eq(cu(sim_open_exports)(0), 1);
	munmap(map, 2 * MIB);
	ck_assert_uint_eq(free_bytes(), before);
	ck_assert_uint_eq(cu(sim_open_exports)(0), 0);
}
END_TEST

START_TEST(a_forked_child_keeps_it_until_it_exits)
{
	int fd, go[2], status;
	CUdeviceptr ptr;
	uint64_t before;
	pid_t child;
	char byte;

	start();
	before = free_bytes();
	ptr = allocate(4 * MIB);
	fd = export_of(ptr, 4 * MIB);
	ck_assert_int_eq(pipe(go), 0);
	child = fork();
	if (child == 0) {
		close(go[1]);
		_exit(read(go[0], &byte, 1) != 0);
	}
	close(fd);
	ok(cu(cuMemFree_v2)(ptr));
	ck_assert_uint_eq(free_bytes(), before - 4 * MIB);
	close(go[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(free_bytes(), before);
}
END_TEST

START_TEST(pin_space_is_limited)
{
	CUdeviceptr ptr;
	int fd[2], extra;

	setenv("SIM_PIN_BYTES", "4M", 1);
	start();
	ptr = allocate(8 * MIB);
	fd[0] = export_of(ptr, 2 * MIB);
	fd[1] = export_of(ptr, 2 * MIB);
	refused(try_export(ptr, CPU_PAGE), CUDA_ERROR_OUT_OF_MEMORY);
	refused(try_export(ptr, 8 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	extra = dup(fd[0]);
	close(fd[0]);
	refused(try_export(ptr, CPU_PAGE), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(cu(sim_open_export_bytes)(0), 4 * MIB);
	close(extra);
	ok(try_export(ptr, 2 * MIB));
	ck_assert_uint_eq(cu(sim_open_exports)(0), 1);
	close(fd[1]);
}
END_TEST

START_TEST(memory_runs_out_and_comes_back_when_exports_close)
{
	CUdeviceptr ptr, more;
	int fd;

	setenv("SIM_MEMORY", "64M", 1);
	start();
	ptr = allocate(48 * MIB);
	fd = export_of(ptr, 48 * MIB);
	ok(cu(cuMemFree_v2)(ptr));
	refused(cu(cuMemAlloc_v2)(&more, 32 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	close(fd);
	ok(cu(cuMemAlloc_v2)(&more, 32 * MIB));
}
END_TEST

START_TEST(descriptors_are_close_on_exec_unless_told_otherwise)
{
	int fd;

	if (_i)
		setenv("SIM_EXPORT_CLOEXEC", "0", 1);
	start();
	fd = export_of(allocate(2 * MIB), 2 * MIB);
	ck_assert_int_eq(fcntl(fd, F_GETFD), _i ? 0 : FD_CLOEXEC);
	close(fd);
}
END_TEST

/* SIM_EXPORT_DEFAULT, SIM_EXPORT_PCIE, SIM_COHERENT; then what an export without and with says. */
static const struct {
	const char *options[3];
	CUresult results[2];
} mappings[] = {
	{{"1", "0", "0"}, {CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED}},
	{{"1", "1", "1"}, {CUDA_SUCCESS, CUDA_SUCCESS}},
	{{"1", "2", "1"}, {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE}},
	{{"0", "1", "1"}, {CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS}},
};

START_TEST(exports_have_the_mappings_that_the_driver_has)
{
	const int attribute = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
	const unsigned pcie = CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
	CUdeviceptr ptr;
	int coherent = -1;

	setenv("SIM_EXPORT_DEFAULT", mappings[_i].options[0], 1);
	setenv("SIM_EXPORT_PCIE", mappings[_i].options[1], 1);
	setenv("SIM_COHERENT", mappings[_i].options[2], 1);
	start();
	ok(cu(cuDeviceGetAttribute)(&coherent, (CUdevice_attribute)attribute, 0));
	ck_assert_int_eq(coherent, *mappings[_i].options[2] == '1');
	ptr = allocate(2 * MIB);
	for (unsigned flags = 0; flags <= pcie; flags += pcie) {
		int fd = -1;
		CUresult result = cu(cuMemGetHandleForAddressRange)(
			&fd, ptr, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);

		ck_assert_int_eq(result, mappings[_i].results[flags != 0]);
		if (result == CUDA_SUCCESS) {
			ck_assert_int_eq(cu(sim_dmabuf_is_pcie)(fd), flags != 0);
			close(fd);
		}
	}
}
END_TEST

START_TEST(pitched_memory_has_rows)
{
	CUdeviceptr ptr, base;
	size_t pitch, size;

	start();
	ok(cu(cuMemAllocPitch_v2)(&ptr, &pitch, 1000, 100, 4));
	ck_assert_uint_ge(pitch, 1000);
	ok(cu(cuMemGetAddressRange_v2)(&base, &size, ptr + 50000));
	ck_assert_uint_eq(base, ptr);
	ck_assert_uint_eq(size, pitch * 100);
	refused(cu(cuMemAllocPitch_v2)(&ptr, &pitch, 1000, 100, 5), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(old_calls_have_addresses_of_32_bits)
{
	CUdeviceptr_v1 ptr = 0, base;
	unsigned size;
	char back[4];

	start();
	ok(cu(cuMemAlloc)(&ptr, 5000));
	ck_assert_uint_ne(ptr, 0);
	ok(cu(cuMemsetD8)(ptr, 9, 5000));
	ok(cu(cuMemcpyDtoH)(back, ptr + 4996, 4));
	ck_assert_mem_eq(back, "\11\11\11\11", 4);
	ok(cu(cuMemGetAddressRange)(&base, &size, ptr + 10));
	ck_assert_uint_eq(base, ptr);
	ck_assert_uint_eq(size, 5000);
	ok(cu(cuMemFree)(ptr));
	refused(cu(cuMemFree)(ptr), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: memory");
	TCase *tests = suite_case(suite, "memory", NULL, NULL);

	tcase_add_test(tests, small_allocations_are_packed);
	tcase_add_test(tests, a_freed_address_is_reused_at_once_under_a_later_id);
	tcase_add_test(tests, bad_frees_and_allocations_are_refused);
	tcase_add_test_raise_signal(tests, device_memory_is_not_the_hosts_to_touch, SIGSEGV);
	tcase_add_test(tests, copies_reach_memory_and_only_memory);
	tcase_add_test(tests, exports_follow_pages_and_blocks);
	tcase_add_test(tests, a_freed_neighbour_can_be_exported_with_its_block);
	tcase_add_test(tests, an_export_shows_the_memory_from_its_position_on);
	tcase_add_test(tests, the_position_is_where_the_range_begins_at_any_offset);
	tcase_add_test(tests, an_exported_descriptor_keeps_the_old_memory);
	tcase_add_test(tests, a_mapping_keeps_it_too);
	tcase_add_test(tests, a_forked_child_keeps_it_until_it_exits);
	tcase_add_test(tests, pin_space_is_limited);
	tcase_add_test(tests, memory_runs_out_and_comes_back_when_exports_close);
	tcase_add_loop_test(tests, descriptors_are_close_on_exec_unless_told_otherwise, 0, 2);
	tcase_add_loop_test(tests, exports_have_the_mappings_that_the_driver_has, 0, 4);
	tcase_add_test(tests, pitched_memory_has_rows);
	tcase_add_test(tests, old_calls_have_addresses_of_32_bits);
	return run_suite(suite);
}
