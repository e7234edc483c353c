/* SPDX-License-Identifier: MIT */
/*
 * The dma-buf of a region: which part of the process owns its descriptor, which number it has among
 * the program's own, and what happens when the program closes a descriptor that it doesn't know.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/descriptors.h"
#include "cache/backend/backend.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/hit/region.h"
#include "cache/dmabuf/region_dmabuf.h"

static int dmabuf_of(pindown_region *region, uint64_t addr, uint64_t *offset)
{
	int fd = -1;

	ck_assert_int_eq(pindown_region_dmabuf(region, addr, &fd, offset), PINDOWN_OK);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
	return fd;
}

START_TEST(the_descriptor_is_a_close_on_exec_one_away_from_the_programs)
{
	uint64_t offset;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	int before = dup(0);
	close(before);
	pindown_region *region = must_get(BASE, 1);
	int fd = dmabuf_of(region, BASE, &offset);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_uint_eq(descriptors_like(fd), 2); /* the other end is the fake driver's */
	ck_assert_int_ge(fd, 64);

	/* The program's next descriptor has the number that it would have had without the cache. */
	int after = dup(0);
	ck_assert_int_eq(after, before);
	close(after);
	pindown_put(region);
}
END_TEST

/* A program without a standard input may leave no other number. */
START_TEST(the_descriptor_may_have_the_number_0)
{
	struct pdn_pin pin, other, found;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	pin = other = pdn_region_pin(region);
	other.fd = 0;
	pdn_lock();
	pdn_region_set_dmabuf(region, &other);
	found = pdn_region_pin(region);
	pdn_region_set_dmabuf(region, &pin);
	pdn_unlock();
	ck_assert_int_eq(found.fd, 0);
	ck_assert_uint_ne(found.fd_identity, 0);
	ck_assert_uint_eq(found.fd_identity, pin.fd_identity);
	pindown_put(region);
}
END_TEST

START_TEST(the_offset_is_that_of_the_address_in_the_pin)
{
	uint64_t offset;

	fake_alloc(BASE + 0x400, MIB(3), FAKE_LINEAR);
	pindown_region *region = must_get(BASE + 0x400, 1);
	int fd = dmabuf_of(region, BASE + 0x400, &offset);
	ck_assert_uint_eq(offset, 0x400);
	ck_assert_int_eq(dmabuf_of(region, BASE + MIB(2) + 5, &offset), fd);
	ck_assert_uint_eq(offset, MIB(2) + 5);
	ck_assert_int_eq(dmabuf_of(region, BASE + 0x400 + MIB(3) - 1, &offset), fd);
	ck_assert_uint_eq(offset, 0x400 + MIB(3) - 1);
	pindown_put(region);
}
END_TEST

START_TEST(bad_arguments_leave_the_outputs_alone)
{
	uint64_t offset = 77;
	int fd = 77;

	fake_alloc(BASE + 0x400, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE + 0x400, 1);
	ck_assert_int_lt(pindown_region_dmabuf(region, BASE + 0x3ff, &fd, &offset), 0);
	ck_assert_int_lt(pindown_region_dmabuf(region, BASE + 0x400 + MIB(2), &fd, &offset), 0);
	ck_assert_int_eq(pindown_region_dmabuf(NULL, BASE, &fd, &offset), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE + 0x400, NULL, &offset),
			 PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE + 0x400, &fd, NULL),
			 PINDOWN_ERR_INVALID);
	ck_assert_int_eq(fd, 77);
	ck_assert_uint_eq(offset, 77);
	pindown_put(region);
}
END_TEST

START_TEST(a_closed_dmabuf_is_exported_again)
{
	uint64_t offset;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	dmabuf_of(region, BASE, &offset);
	pindown_region_close_dmabuf(region);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_int_eq(pindown_region_is_live(region), 1);
	pindown_region_close_dmabuf(region);
	ck_assert(is_cached(BASE, 1));

	/* Not in a callback of the driver's, where CUDA forbids its calls. */
	unsigned exports = fake_exports_made();
	int fd = -1;
	fake_fail(FAKE_OTHER, 0, UINT32_MAX, FAKE_NOT_PERMITTED);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_ERR_DRIVER);
	fake_fail(FAKE_OTHER, 0, 0, FAKE_SUCCESS);
	ck_assert_uint_eq(fake_exports_made(), exports);

	fd = dmabuf_of(region, BASE + 100, &offset);
	ck_assert_uint_eq(offset, 100);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_ge(fd, 64);
	ck_assert_uint_eq(fake_open_exports(), 1);
	pindown_put(region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

/* The memory is gone and other memory lies there, which must not be handed out as this region's. */
START_TEST(a_closed_dmabuf_of_dead_memory_stays_closed)
{
	uint64_t offset = 77;
	int fd = 77;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	pindown_region_close_dmabuf(region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset),
				 PINDOWN_ERR_NOT_DEVICE);
		ck_assert_int_eq(fd, 77);
		ck_assert_uint_eq(offset, 77);
		ck_assert_uint_eq(fake_open_exports(), 0);
		if (!round)
			watched_alloc(BASE, MIB(2), FAKE_LINEAR);
	}
	pindown_put(region);
}
END_TEST

/*
 * The memory was freed unseen: the region still counts as live, and only its buffer id shows the
 * free.
 */
START_TEST(a_new_export_is_checked_by_buffer_id)
{
	uint64_t offset;
	int fd;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	pindown_region_close_dmabuf(region);
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(fake_open_exports(), 0);
	pindown_put(region);
	expected_missed = stats().missed_invalidations;
	ck_assert_int_eq(pindown_invalidate(BASE, 0), 1);
}
END_TEST

/* As long as the pin keeps the memory alive, an open descriptor is valid, also after a free. */
START_TEST(an_open_dmabuf_of_a_kept_region_is_still_handed_out)
{
	uint64_t offset;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	int fd = dmabuf_of(region, BASE, &offset);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_int_eq(dmabuf_of(region, BASE, &offset), fd);
	pindown_put(region);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

START_TEST(a_failed_export_can_be_tried_again)
{
	uint64_t offset;
	int fd;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	pindown_region_close_dmabuf(region);
	fake_fail(FAKE_EXPORT, 0, 1, FAKE_UNKNOWN);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(pindown_driver_error(), FAKE_UNKNOWN);
	dmabuf_of(region, BASE, &offset);
	pindown_put(region);
}
END_TEST

/*
 * A daemon closes all descriptors, and its next file gets one of the cache's numbers: now that is
 * the program's file.
 */
START_TEST(a_number_that_is_somebody_elses_by_now_is_left_alone)
{
	struct stat own, st;
	uint64_t offset;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	int fd = dmabuf_of(region, BASE, &offset);
	pindown_put(region);
	close(fd);
	ck_assert_uint_eq(fake_open_exports(), 0);
	int file = open("/dev/null", O_RDWR);
	ck_assert_int_eq(dup2(file, fd), fd);
	ck_assert_int_eq(fstat(file, &own), 0);

	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_ino, own.st_ino);
	ck_assert_uint_eq(st.st_dev, own.st_dev);
	close(fd);
	close(file);
}
END_TEST

/* Nor may that file be handed out as the dma-buf. */
START_TEST(a_number_that_is_somebody_elses_is_not_handed_out)
{
	struct stat own, st;
	uint64_t offset;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	int fd = dmabuf_of(region, BASE, &offset);
	close(fd);
	int file = open("/dev/null", O_RDWR);
	ck_assert_int_eq(dup2(file, fd), fd);
	ck_assert_int_eq(fstat(file, &own), 0);
	int again = dmabuf_of(region, BASE, &offset);
	ck_assert_int_eq(fstat(again, &st), 0);
	ck_assert(st.st_ino != own.st_ino || st.st_dev != own.st_dev);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	pindown_put(region);
	close(fd);
	close(file);
}
END_TEST

START_TEST(a_descriptor_that_was_closed_harms_nobody)
{
	uint64_t offset;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	close(dmabuf_of(region, BASE, &offset));
	pindown_put(region);
	errno = 4711;
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_int_eq(errno, 4711);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/*
 * A consumer's own duplicate is not the cache's to close, and the memory stays exported while it is
 * open.
 */
START_TEST(a_consumers_duplicate_is_its_own)
{
	uint64_t offset;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	int copy = dup(dmabuf_of(region, BASE, &offset));
	pindown_put(region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 1);
	ck_assert_int_ne(fcntl(copy, F_GETFD), -1);
	close(copy);
}
END_TEST

/* ---- a descriptor that is lent for a moment ---- */

static int borrow(pindown_region *region)
{
	int fd = -1;

	ck_assert_int_eq(pdn_dmabuf_borrow(region, &fd), PINDOWN_OK);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
	return fd;
}

START_TEST(the_last_of_its_users_closes_it)
{
	uint64_t offset;

	pdn_dmabuf_close_kept(); /* descriptors are short: none stays */
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	for (int round = 0; round < 2; round++) {
		int fd = borrow(region);

		ck_assert_int_eq(borrow(region), fd);
		ck_assert_uint_eq(pdn_dmabufs_open(), 1);
		pdn_dmabuf_return(region, true);
		ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
		pdn_dmabuf_return(region, true);
		ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
		ck_assert_uint_eq(pdn_dmabufs_open(), 0);
		ck_assert_uint_eq(fake_open_exports(), 0);
	}
	ck_assert_int_eq(pindown_region_is_live(region), 1);
	/* A caller that was given the descriptor without a time limit keeps it... */
	int fd = dmabuf_of(region, BASE, &offset);
	ck_assert_int_eq(borrow(region), fd);
	pdn_dmabuf_return(region, true);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
	/* ...and can't close it while another caller uses it. */
	ck_assert_int_eq(borrow(region), fd);
	pindown_region_close_dmabuf(region);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
	pdn_dmabuf_return(region, true);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	pindown_put(region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(pdn_dmabufs_open(), 0);
}
END_TEST

START_TEST(a_borrowed_one_that_can_not_be_opened)
{
	int fd = 77;

	pdn_dmabuf_close_kept();
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	pindown_region_close_dmabuf(region);
	fake_fail(FAKE_EXPORT, 0, 1, FAKE_UNKNOWN);
	ck_assert_int_eq(pdn_dmabuf_borrow(region, &fd), PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(fd, 77);
	borrow(region);
	pdn_dmabuf_return(region, true);
	ck_assert_uint_eq(fake_open_exports(), 0);
	pindown_put(region);
}
END_TEST

/* The program has taken all descriptors. Held regions keep theirs. */
START_TEST(idle_regions_make_room_for_a_descriptor)
{
	for (unsigned i = 0; i < 3; i++)
		fake_alloc(BASE + MIB(2) * i, MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(BASE, 1);
	pindown_region_close_dmabuf(held);
	pindown_put(must_get(BASE + MIB(2), 1));
	pindown_region *other = must_get(BASE + MIB(4), 1);
	allow_descriptors(400);
	take_descriptors_but(2); /* the fake driver needs three for a moment */
	borrow(held);
	ck_assert_uint_eq(stats().evictions, 1);
	ck_assert(!is_cached(BASE + MIB(2), 1));
	ck_assert_int_eq(pindown_region_is_live(other), 1);
	pdn_dmabuf_return(held, true);
	give_descriptors_back();
	pindown_put(held);
	pindown_put(other);
}
END_TEST

/* A registration was made from it, for which it stays open. */
static pindown_region *keep_one(uint64_t addr)
{
	fake_alloc(addr, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(addr, 1);

	borrow(region);
	pdn_dmabuf_return(region, true);
	ck_assert_uint_eq(pdn_dmabufs_open(), 1);
	return region;
}

START_TEST(a_failed_registration_has_saved_no_export)
{
	pindown_region *region = keep_one(BASE);

	ck_assert_uint_eq(stats().exports_saved, 0);
	for (int i = 0; i < 3; i++) {
		borrow(region);
		pdn_dmabuf_return(region, false);
	}
	ck_assert_uint_eq(stats().exports_saved, 0);
	borrow(region);
	pdn_dmabuf_return(region, true);
	ck_assert_uint_eq(stats().exports_saved, 1);
	pindown_put(region);
}
END_TEST

/* The first one may fail too: then the next one saves nothing. */
START_TEST(the_first_registration_fails)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);

	for (int i = 0; i < 2; i++) {
		borrow(region);
		pdn_dmabuf_return(region, i == 1);
	}
	ck_assert_uint_eq(stats().exports_saved, 0);
	pindown_put(region);
}
END_TEST

/* No other registration is made of memory that has ended. */
START_TEST(one_of_ended_memory_gives_way_too)
{
	pindown_region *region = keep_one(BASE);

	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(pdn_dmabufs_open(), 1);
	ck_assert(pdn_dmabuf_close_kept());
	ck_assert_uint_eq(pdn_dmabufs_open(), 0);
	pindown_put(region);
	ck_assert_uint_eq(pdn_dmabufs_open(), 0);
}
END_TEST

/* pindown itself needs a descriptor of the program's dma-buf for a moment, and there is none. */
START_TEST(a_kept_one_gives_way_to_a_duplicate)
{
	struct pdn_exported part;
	int fd = memfd_create("dmabuf", MFD_CLOEXEC), own;

	allow_descriptors(400);
	pindown_region *region = keep_one(BASE);

	fake_alloc(BASE + MIB(4), MIB(2), FAKE_LINEAR);
	pdn_exported(BASE + MIB(4), MIB(2), 0, fd, pdn_export_begins(BASE + MIB(4), MIB(2)), NULL);
	ck_assert(pdn_export_find(fd, 0, MIB(2), &part));
	take_descriptors_but(0);
	own = pdn_export_open(fd, 0, MIB(2), &part);
	ck_assert_int_ge(own, 0);
	pdn_export_close(own);
	ck_assert_uint_eq(pdn_dmabufs_open(), 0);
	ck_assert_uint_eq(stats().evictions, 0);
	give_descriptors_back();
	close(fd);
	pindown_put(region);
}
END_TEST

static pindown_region *region_of_mine;

static void must_fail_to_borrow(void)
{
	int fd = 77;

	take_descriptors_but(0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_ne(pdn_dmabuf_borrow(region_of_mine, &fd), PINDOWN_OK);
	ck_assert_int_eq(fd, 77);
	give_descriptors_back();
}

START_TEST(without_descriptors_one_line_says_so)
{
	const char *text;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	region_of_mine = must_get(BASE, 1);
	pindown_region_close_dmabuf(region_of_mine);
	allow_descriptors(400);
	text = stderr_of(must_fail_to_borrow);
	ck_assert_uint_eq(lines_of(text), 1);
	ck_assert_ptr_nonnull(strstr(text, "no file descriptor is left for a dma-buf"));
	borrow(region_of_mine);
	pdn_dmabuf_return(region_of_mine, true);
	pindown_put(region_of_mine);
}
END_TEST

/* Two threads want a closed dma-buf again: there is one export and one descriptor. */
static pindown_region *shared;
static int fds[2];

static void want_dmabuf(void *arg)
{
	uint64_t offset;

	*(int *)arg = dmabuf_of(shared, BASE, &offset);
}

static struct worker second;

static void start_second(void *arg)
{
	(void)arg;
	worker_start(&second, want_dmabuf, &fds[1]);
	worker_wait_idle(&second);
}

START_TEST(two_threads_export_again_once)
{
	bool met = true;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	shared = must_get(BASE, 1);
	for (unsigned edge = 0; met; edge++) {
		pindown_region_close_dmabuf(shared);
		fake_at_edge(FAKE_CALLS, edge, start_second, NULL);
		want_dmabuf(&fds[0]);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		if (met) {
			worker_join(&second);
			ck_assert_int_eq(fds[0], fds[1]);
		}
		ck_assert_uint_eq(fake_open_exports(), 1);
	}
	pindown_put(shared);
}
END_TEST

/*
 * A free during the new export: the descriptor must not outlive the region, nor keep the freed
 * memory.
 */
static unsigned exports_when_freed;

static void free_it(void *arg)
{
	(void)arg;
	uint64_t id = fake_id(BASE);
	pdn_guard guard = pdn_end_range(BASE, 0);

	exports_when_freed = fake_open_exports_of(id);
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	pdn_ended(guard);
}

static void start_free(void *arg)
{
	worker_start(&second, free_it, arg);
	worker_wait_idle(&second);
}

START_TEST(a_new_export_loses_against_a_free)
{
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		uint64_t offset;
		int fd;

		fake_alloc(BASE, MIB(2), FAKE_LINEAR);
		shared = must_get(BASE, 1);
		pindown_region_close_dmabuf(shared);
		uint64_t id = fake_id(BASE);
		fake_at_edge(FAKE_CALLS, edge, start_free, NULL);
		int result = pindown_region_dmabuf(shared, BASE, &fd, &offset);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		if (met) {
			worker_join(&second);
			ck_assert(result == PINDOWN_OK || result == PINDOWN_ERR_NOT_DEVICE);
			ck_assert_msg(result == PINDOWN_OK || exports_when_freed == 0,
				      "edge %u: open still when the free went on", edge);
		} else {
			ck_assert_int_eq(result, PINDOWN_OK);
			ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
		}
		pindown_put(shared);
		ck_assert_uint_eq(fake_open_exports_of(id), 0);
	}
}
END_TEST

static void open_and_close_often(void *arg)
{
	uint64_t offset;
	int fd;

	for (unsigned i = 0; i < 500; i++)
		if (pindown_region_dmabuf(arg, BASE, &fd, &offset) == PINDOWN_OK)
			pindown_region_close_dmabuf(arg);
}

/* Each asks for the region's backend while the other one opens or closes the descriptor. */
START_TEST(two_threads_open_and_close_it)
{
	struct worker second;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	worker_start(&second, open_and_close_often, region);
	open_and_close_often(region);
	worker_join(&second);
	ck_assert_uint_eq(stats().dmabufs, 0);
	pindown_put(region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: dma-buf descriptors");
	TCase *tc = cache_case(suite, "ownership");

	tcase_add_test(tc, the_descriptor_is_a_close_on_exec_one_away_from_the_programs);
	tcase_add_test(tc, the_descriptor_may_have_the_number_0);
	tcase_add_test(tc, the_offset_is_that_of_the_address_in_the_pin);
	tcase_add_test(tc, bad_arguments_leave_the_outputs_alone);
	tc = cache_case(suite, "closed early");
	tcase_add_test(tc, a_closed_dmabuf_is_exported_again);
	tcase_add_test(tc, a_closed_dmabuf_of_dead_memory_stays_closed);
	tcase_add_test(tc, a_new_export_is_checked_by_buffer_id);
	tcase_add_test(tc, an_open_dmabuf_of_a_kept_region_is_still_handed_out);
	tcase_add_test(tc, a_failed_export_can_be_tried_again);
	tcase_add_test(tc, the_last_of_its_users_closes_it);
	tcase_add_test(tc, a_borrowed_one_that_can_not_be_opened);
	tcase_add_test(tc, idle_regions_make_room_for_a_descriptor);
	tcase_add_test(tc, a_failed_registration_has_saved_no_export);
	tcase_add_test(tc, the_first_registration_fails);
	tcase_add_test(tc, one_of_ended_memory_gives_way_too);
	tcase_add_test(tc, a_kept_one_gives_way_to_a_duplicate);
	tcase_add_test(tc, without_descriptors_one_line_says_so);
	tcase_add_test(tc, two_threads_export_again_once);
	tcase_add_test(tc, two_threads_open_and_close_it);
	tcase_add_test(tc, a_new_export_loses_against_a_free);
	tc = cache_case(suite, "programs that close what they don't know");
	tcase_add_test(tc, a_number_that_is_somebody_elses_by_now_is_left_alone);
	tcase_add_test(tc, a_number_that_is_somebody_elses_is_not_handed_out);
	tcase_add_test(tc, a_descriptor_that_was_closed_harms_nobody);
	tcase_add_test(tc, a_consumers_duplicate_is_its_own);
	return run_suite(suite);
}
