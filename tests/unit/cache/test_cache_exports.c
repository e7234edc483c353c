/* SPDX-License-Identifier: MIT */
/*
 * Which memory a descriptor of the program's own stands for. A file of its own plays the dma-buf of
 * each export; the memory is the scripted driver's. test_cache_exports_table has many of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache/dmabuf/foreign_table.h"
#include "tests/unit/support/exports_test.h"

/* ---- ranges ---- */

static void replace(void *arg)
{
	(void)arg;
	fake_free(BASE);
	fake_alloc(BASE, 2 * SIZE, FAKE_LINEAR);
}

/* At each edge of a call of the driver: what is remembered is all of one, or all of the other. */
START_TEST(memory_that_is_replaced_while_the_driver_is_asked)
{
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		uint64_t before, meanwhile, after;

		fake_alloc(BASE, SIZE, FAKE_LINEAR);
		before = pdn_export_begins(BASE, SIZE);
		fake_at_edge(FAKE_CALLS, edge, replace, NULL);
		meanwhile = pdn_export_begins(BASE, SIZE);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		after = pdn_export_begins(BASE, SIZE);
		ck_assert_msg(meanwhile && (meanwhile == before || meanwhile == after), "edge %u",
			      edge);
		ck_assert(met == (before != after));
		fake_free(BASE);
	}
}
END_TEST

START_TEST(a_part_of_an_allocation)
{
	struct pdn_exported part;
	int fd = a_file();

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	pdn_exported(BASE + KIB(64), KIB(128), 1, fd, pdn_export_begins(BASE + KIB(64), KIB(128)),
		     NULL);
	ck_assert(pdn_export_find(fd, 4096, 8192, &part));
	ck_assert_uint_eq(part.addr, BASE + KIB(64) + 4096);
	ck_assert_uint_eq(part.memory.base, BASE);
	ck_assert_uint_eq(part.memory.end, BASE + SIZE);
	ck_assert_uint_eq(part.buffer_id, fake_id(BASE));
	ck_assert_uint_eq(part.flags, 1);
}
END_TEST

START_TEST(a_range_that_the_dmabuf_does_not_have)
{
	int fd = export_new(BASE);

	ck_assert(is_known(fd, 0, SIZE));
	ck_assert(is_known(fd, SIZE - 1, 1));
	ck_assert(!is_known(fd, 0, SIZE + 1));
	ck_assert(!is_known(fd, SIZE, 1));
	ck_assert(!is_known(fd, 0, 0));
	ck_assert(!is_known(fd, 1, UINT64_MAX));
	ck_assert(!is_known(fd, UINT64_MAX, 2));
}
END_TEST

/* The allocation in the middle was meant; a part that lies in the neighbour is not known. */
START_TEST(a_range_rounded_out_to_pages)
{
	int fd = a_file();

	fake_alloc(BASE, 1024, FAKE_LINEAR);
	fake_alloc(BASE + 1024, 8192, FAKE_LINEAR);
	export_as(fd, BASE, 12288);
	ck_assert(is_known(fd, 0, 12288));
	ck_assert(is_known(fd, 1024, 8192));
	ck_assert(!is_known(fd, 0, 1024));
	ck_assert(!is_known(fd, 1024 + 8192, 100));
}
END_TEST

START_TEST(a_range_over_two_mappings)
{
	struct pdn_exported part;
	int fd = a_file();

	fake_reserved = BASE;
	fake_reserved_size = 2 * SIZE;
	pdn_is_mapped = fake_is_mapped;
	fake_alloc(BASE, SIZE, FAKE_VMM);
	fake_alloc(BASE + SIZE, SIZE, FAKE_VMM);
	export_as(fd, BASE, 2 * SIZE);
	ck_assert(pdn_export_find(fd, SIZE, SIZE, &part));
	ck_assert_uint_eq(part.memory.base, BASE);
	ck_assert_uint_eq(part.memory.end, BASE + 2 * SIZE);
	/* The second mapping is replaced unseen; the first one stays. */
	ck_assert_int_eq(fake_free(BASE + SIZE), FAKE_SUCCESS);
	fake_alloc(BASE + SIZE, SIZE, FAKE_VMM);
	ck_assert(!is_known(fd, 0, SIZE));
}
END_TEST

/* ---- descriptors ---- */

START_TEST(a_duplicate_is_the_same_export)
{
	int fd = export_new(BASE), other = dup(fd);

	assert_stands_for(other, BASE, BASE);
	close(fd);
	assert_stands_for(other, BASE, BASE);
}
END_TEST

static void send_descriptor(int to, int fd)
{
	union {
		struct cmsghdr first;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char byte = 0;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	control.first = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.first), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(to, &message, 0), 1);
}

static int receive_descriptor(int from)
{
	union {
		struct cmsghdr first;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char byte;
	int fd;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	ck_assert_int_eq(recvmsg(from, &message, 0), 1);
	memcpy(&fd, CMSG_DATA(&control.first), sizeof(fd));
	return fd;
}

START_TEST(one_that_was_received_in_a_message)
{
	int fd = export_new(BASE), pair[2], other;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	send_descriptor(pair[0], fd);
	close(fd);
	other = receive_descriptor(pair[1]);
	assert_stands_for(other, BASE, BASE);
}
END_TEST

START_TEST(an_export_of_the_same_range)
{
	int first = export_new(BASE), second = a_file();

	export_as(second, BASE, SIZE);
	assert_stands_for(first, BASE, BASE);
	assert_stands_for(second, BASE, BASE);
	export_as(first, BASE, SIZE); /* a driver that gives the same file again */
	assert_stands_for(first, BASE, BASE);
}
END_TEST

/* Linux before 5.3: one inode for all. */
START_TEST(one_file_for_different_memory_is_not_known)
{
	int fd = export_new(BASE);

	fake_alloc(BASE + SIZE, SIZE, FAKE_LINEAR);
	export_as(fd, BASE + SIZE, SIZE);
	ck_assert(!is_known(fd, 0, 1));
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	assert_stands_for(fd, BASE + SIZE, BASE + SIZE);
}
END_TEST

START_TEST(one_file_for_different_ranges_is_not_known)
{
	int whole = export_new(BASE), part = dup(whole);

	export_as(part, BASE, SIZE / 2);
	ck_assert(!is_known(whole, 0, 1));
	close(part);
	part = dup(whole); /* the number of a closed one */
	export_as(part, BASE, SIZE / 2);
	ck_assert(!is_known(part, 0, 1));
}
END_TEST

START_TEST(one_file_for_different_mappings_is_not_known)
{
	int fd = export_new(BASE);

	pdn_exported(BASE, SIZE, 1, fd, pdn_export_begins(BASE, SIZE), NULL);
	ck_assert(!is_known(fd, 0, 1));
}
END_TEST

START_TEST(a_position_tells_parts_of_one_file_apart)
{
	char path[32];
	int fd = export_new(BASE), other;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR);
	ck_assert_int_eq(lseek(other, 4096, SEEK_SET), 4096);
	fake_alloc(BASE + SIZE, SIZE, FAKE_LINEAR);
	export_as(other, BASE + SIZE, SIZE);
	assert_stands_for(fd, BASE, BASE);
	assert_stands_for(dup(other), BASE + SIZE, BASE + SIZE);
}
END_TEST

START_TEST(a_number_that_another_file_has)
{
	int fd = export_new(BASE), other = dup(fd);

	close(fd);
	ck_assert(!is_known(fd, 0, 1));
	ck_assert_int_eq(a_file(), fd);
	ck_assert(!is_known(fd, 0, 1));
	assert_stands_for(other, BASE, BASE);
	ck_assert(!is_known(-1, 0, 1));
}
END_TEST

/* The same hash as that of another file; but for the device, the same inode even. */
START_TEST(a_file_of_the_same_hash_is_another_one)
{
	const uint64_t per_device = 0x9e3779b97f4a7c15u;
	struct pdn_export other = {.memory = {.base = BASE + SIZE, .end = BASE + 2 * SIZE},
				   .begin = BASE + SIZE,
				   .length = SIZE,
				   .fd = -1};
	int fd = a_file();

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	fake_alloc(BASE + SIZE, SIZE, FAKE_LINEAR);
	other.buffer_id = fake_id(BASE + SIZE);
	ck_assert(pdn_file_of(fd, &other.file));
	other.file.device++;
	other.file.inode -= per_device;
	pdn_lock();
	ck_assert_uint_ne(pdn_foreign_add(&other), 0);
	pdn_unlock();
	ck_assert(!is_known(fd, 0, 1));
	export_as(fd, BASE, SIZE);
	assert_stands_for(fd, BASE, BASE);
	pdn_lock();
	ck_assert_uint_ne(pdn_foreign_add(&other), 0); /* now it is met first */
	pdn_unlock();
	assert_stands_for(fd, BASE, BASE);
	ck_assert_int_eq(watched_free(BASE + SIZE), FAKE_SUCCESS);
	assert_stands_for(fd, BASE, BASE);
}
END_TEST

START_TEST(each_of_the_three_tells_files_apart)
{
	const struct pdn_file file = {.inode = 7, .device = 8, .position = 9};
	struct pdn_file inode = file, device = file, position = file;

	inode.inode++;
	device.device++;
	position.position++;
	ck_assert(pdn_file_is(&file, &file));
	ck_assert(!pdn_file_is(&file, &inode));
	ck_assert(!pdn_file_is(&file, &device));
	ck_assert(!pdn_file_is(&file, &position));
}
END_TEST

/* ---- between two looks at the memory ---- */

/* Other threads free the memory, and allocate, while the driver exports it. */
START_TEST(memory_that_is_replaced_while_it_is_exported)
{
	int fd = a_file();
	uint64_t before;

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	before = pdn_export_begins(BASE, SIZE);
	ck_assert_uint_ne(before, 0);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	watched_alloc(BASE, SIZE, FAKE_LINEAR);
	pdn_exported(BASE, SIZE, 0, fd, before, NULL);
	ck_assert(!is_known(fd, 0, 1));
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert(!any_remembered());
}
END_TEST

START_TEST(memory_that_was_not_there_before_the_export)
{
	int fd = a_file();
	uint64_t before = pdn_export_begins(BASE, SIZE);

	ck_assert_uint_eq(before, 0);
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	pdn_exported(BASE, SIZE, 0, fd, before, NULL);
	ck_assert(!is_known(fd, 0, 1));
}
END_TEST

/* The second of two mappings is replaced: the first one's id stays. */
START_TEST(a_mapping_that_is_replaced_while_it_is_exported)
{
	int fd = a_file();
	uint64_t before;

	fake_reserved = BASE;
	fake_reserved_size = 2 * SIZE;
	pdn_is_mapped = fake_is_mapped;
	fake_alloc(BASE, SIZE, FAKE_VMM);
	fake_alloc(BASE + SIZE, SIZE, FAKE_VMM);
	before = pdn_export_begins(BASE, 2 * SIZE);
	ck_assert_int_eq(watched_unmap(BASE + SIZE, SIZE), FAKE_SUCCESS);
	watched_alloc(BASE + SIZE, SIZE, FAKE_VMM);
	pdn_exported(BASE, 2 * SIZE, 0, fd, before, NULL);
	ck_assert(!is_known(fd, 0, SIZE));
	ck_assert(!is_known(fd, 0, 2 * SIZE));
}
END_TEST

/* An unmap of one mapping ends the exports that reach into it, and no other. */
START_TEST(an_unmap_of_the_second_of_two_mappings)
{
	int both = a_file(), first = a_file();

	fake_reserved = BASE;
	fake_reserved_size = 2 * SIZE;
	pdn_is_mapped = fake_is_mapped;
	fake_alloc(BASE, SIZE, FAKE_VMM);
	fake_alloc(BASE + SIZE, SIZE, FAKE_VMM);
	export_as(both, BASE, 2 * SIZE);
	export_as(first, BASE, SIZE);
	ck_assert_int_eq(watched_unmap(BASE + SIZE, SIZE), FAKE_SUCCESS);
	ck_assert_uint_eq(pdn_foreign_count(), 1);
	watched_alloc(BASE + SIZE, SIZE, FAKE_VMM); /* it grows again, in place */
	ck_assert(!is_known(both, 0, 1));
	assert_stands_for(first, BASE, BASE);
}
END_TEST

/* No driver exports these. */
START_TEST(a_range_that_overflows)
{
	int fd = a_file();

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	export_as(fd, BASE, 0 - BASE + 4096);
	export_as(fd, UINT64_MAX - 4095, 4096);
	export_as(fd, BASE, 0);
	ck_assert(!is_known(fd, 0, 1));
	ck_assert(!any_remembered());
}
END_TEST

/* ---- duplicates for registrations ---- */

START_TEST(a_duplicate_is_the_part_that_was_found)
{
	int fd = export_new(BASE), other = export_new(BASE + SIZE), own;
	struct pdn_exported part;

	ck_assert(pdn_export_find(fd, 4096, 4096, &part));
	errno = 4321;
	own = pdn_export_open(fd, 4096, 4096, &part);
	ck_assert_int_eq(errno, 4321);
	ck_assert_int_ge(own, 0);
	ck_assert_int_eq(fcntl(own, F_GETFD), FD_CLOEXEC);
	assert_stands_for(own, BASE, BASE);
	pdn_export_close(own);
	ck_assert_int_eq(fcntl(own, F_GETFD), -1);
	/* Another thread gives the number to another file. */
	ck_assert_int_eq(dup2(other, fd), fd);
	ck_assert_int_lt(pdn_export_open(fd, 4096, 4096, &part), 0);
	close(fd);
	ck_assert_int_lt(pdn_export_open(fd, 4096, 4096, &part), 0);
	ck_assert_int_eq(fcntl(own, F_GETFD), -1);
}
END_TEST

/* ---- the end ---- */

START_TEST(freed_memory_has_no_export)
{
	int fd = export_new(BASE), other = export_new(BASE + SIZE);

	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert(!is_known(fd, 0, 1));
	ck_assert(any_remembered());
	watched_alloc(BASE, SIZE, FAKE_LINEAR);
	ck_assert(!is_known(fd, 0, 1));
	assert_stands_for(other, BASE + SIZE, BASE + SIZE);
	ck_assert_int_eq(watched_free(BASE + SIZE), FAKE_SUCCESS);
	ck_assert(!any_remembered());
}
END_TEST

/* Nobody sees the free: the buffer id tells. */
START_TEST(other_memory_at_the_address_is_not_the_export)
{
	int fd = export_new(BASE);
	struct pdn_exported part;

	ck_assert(pdn_export_find(fd, 0, 1, &part));
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	ck_assert(!is_known(fd, 0, 1));
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	ck_assert(!is_known(fd, 0, 1));
	ck_assert(!pdn_export_is_still_there(&part));
}
END_TEST

START_TEST(the_end_of_a_context)
{
	int fd = export_new(BASE), pool = a_file();

	fake_alloc(BASE + SIZE, SIZE, FAKE_POOL);
	export_as(pool, BASE + SIZE, SIZE);
	watched_context_destroy(FAKE_CONTEXT);
	ck_assert(!is_known(fd, 0, 1));
	assert_stands_for(pool, BASE + SIZE, BASE + SIZE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: the program's own dma-bufs");
	TCase *tc = cache_case(suite, "ranges");

	tcase_add_test(tc, memory_that_is_replaced_while_the_driver_is_asked);
	tcase_add_test(tc, a_part_of_an_allocation);
	tcase_add_test(tc, a_range_that_the_dmabuf_does_not_have);
	tcase_add_test(tc, a_range_rounded_out_to_pages);
	tcase_add_test(tc, a_range_over_two_mappings);
	tc = cache_case(suite, "descriptors");
	tcase_add_test(tc, a_duplicate_is_the_same_export);
	tcase_add_test(tc, one_that_was_received_in_a_message);
	tcase_add_test(tc, an_export_of_the_same_range);
	tcase_add_test(tc, one_file_for_different_memory_is_not_known);
	tcase_add_test(tc, one_file_for_different_ranges_is_not_known);
	tcase_add_test(tc, one_file_for_different_mappings_is_not_known);
	tcase_add_test(tc, a_position_tells_parts_of_one_file_apart);
	tcase_add_test(tc, a_number_that_another_file_has);
	tcase_add_test(tc, a_file_of_the_same_hash_is_another_one);
	tcase_add_test(tc, each_of_the_three_tells_files_apart);
	tcase_add_test(tc, a_duplicate_is_the_part_that_was_found);
	tc = cache_case(suite, "between two looks");
	tcase_add_test(tc, memory_that_is_replaced_while_it_is_exported);
	tcase_add_test(tc, memory_that_was_not_there_before_the_export);
	tcase_add_test(tc, a_mapping_that_is_replaced_while_it_is_exported);
	tcase_add_test(tc, an_unmap_of_the_second_of_two_mappings);
	tcase_add_test(tc, a_range_that_overflows);
	tc = cache_case(suite, "the end");
	tcase_add_test(tc, freed_memory_has_no_export);
	tcase_add_test(tc, other_memory_at_the_address_is_not_the_export);
	tcase_add_test(tc, the_end_of_a_context);
	return run_suite(suite);
}
