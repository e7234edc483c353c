/* SPDX-License-Identifier: MIT */
/*
 * The kernel module and the process: its device is closed, it forks, it is quiesced, and other
 * processes wish for its space.
 */
#define _GNU_SOURCE
#include "cache/show/format.h"
#include "cache/show/page.h"
#include "tests/unit/support/kmod_test.h"

#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/backend/kmod_reclaim.h"
#include "cache/backend/revocation.h"
#include "cache/base/process/descriptor.h"
#include "kmod/pindown_ioctl.h"
#include "tests/unit/support/asleep.h"
#include "tests/unit/support/fork_test.h"
#include "tests/unit/support/sanitizers.h"

static void close_device(void)
{
	char path[64], target[64];

	for (int fd = 3; fd < 1 << 16; fd++) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, target, sizeof(target) - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		if (strstr(target, "memfd:pindown"))
			close(fd);
	}
}

/* One of them is the scripted module's own. */
static unsigned mappings_of_the_area(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	char line[512];

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "memfd:pindown") != NULL;
	fclose(maps);
	return count;
}

START_TEST(a_program_that_closes_the_device)
{
	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	watched_alloc(BASE + GIB(2), PART, FAKE_LINEAR);
	get_and_put(BASE, ALL);
	get_and_put(BASE + GIB(1), PART);
	fake_kmod_fail(0, 1, EINVAL);
	get_and_put(BASE + GIB(2), PART);
	ck_assert_uint_eq(stats().fallbacks, 1);
	ck_assert_uint_eq(mappings_of_the_area(), 2);
	close_device();
	watched_alloc(BASE + GIB(3), PART, FAKE_LINEAR);
	must_refuse(BASE + GIB(3), PART, PINDOWN_ERR_NO_BACKEND);
	ck_assert_uint_eq(mappings_of_the_area(), 1);
	fake_kmod_last_close();
	ck_assert(!is_cached(BASE, ALL));
	ck_assert(!is_cached(BASE + GIB(1), PART));
	/* The driver's dma-buf does not depend on the device. */
	ck_assert(is_cached(BASE + GIB(2), PART));
	expected_missed = 2;
}
END_TEST

/* As `pindown quiesce` wants it; the next pin opens the device again. */
START_TEST(it_is_quiesced_and_goes_on)
{
	for (unsigned round = 0; round < 3; round++) {
		struct pdn_top_quiesce answer = {0};
		unsigned mapped;

		watched_alloc(BASE, PART, FAKE_LINEAR);
		watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
		get_and_put(BASE, PART);
		pindown_region *held = must_get(BASE + GIB(1), PART);

		pdn_on_quiesce_wanted(&answer);
		ck_assert_uint_eq(answer.ended, 1);
		ck_assert_uint_eq(answer.held, 1);
		ck_assert_uint_eq(answer.held_bytes, PART);
		ck_assert_uint_eq(answer.named[0].base, BASE + GIB(1));
		ck_assert_uint_eq(answer.left, PDN_LEFT_DEVICE);
		mapped = mappings_of_the_area();
		ck_assert(is_cached(BASE + GIB(1), PART));
		pindown_put(held);

		memset(&answer, 0, sizeof(answer));
		pdn_on_quiesce_wanted(&answer);
		ck_assert_uint_eq(answer.ended, 1);
		ck_assert_uint_eq(answer.held + answer.left, 0);
		ck_assert_uint_eq(mappings_of_the_area(), mapped - 1);
		get_and_put(BASE, PART);
		ck_assert(is_cached(BASE, PART));
		ck_assert_uint_gt(mappings_of_the_area(), mapped - 1);
		ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
		ck_assert_int_eq(watched_free(BASE + GIB(1)), FAKE_SUCCESS);
	}
}
END_TEST

/* Mapped there, it would keep the device open, after the parent has closed it. */
static void has_no_area(void *words)
{
	const uint32_t *area = words;

	EXPECT(mappings_of_the_area() == 1);
	EXPECT(area[0] == PINDOWN_ABI); /* it is still readable */
	for (unsigned n = 1; n <= PARTS; n++)
		EXPECT(area[sizeof(struct pindown_state) / sizeof(*area) + n] == 0);
	is_off(NULL);
}

START_TEST(a_child_does_not_keep_the_device_open)
{
	map_parts();
	watched_alloc(AT(0), PART, FAKE_LINEAR);
	get_and_put(BASE, ALL);
	handle_forks();
	in_child(has_no_area, (void *)pdn_revocation_words);
	ck_assert(is_cached(BASE, ALL));
}
END_TEST

static bool is_closed(int other_end)
{
	struct pollfd end = {.fd = other_end};

	return poll(&end, 1, 0) == 1 && end.revents & POLLERR;
}

/*
 * By a bare system call: the program closes what another thread uses, as it may. ThreadSanitizer
 * would report its close().
 */
static void close_meanwhile(int fd)
{
	ck_assert_int_eq((int)syscall(SYS_close, fd), 0);
}

/* The number of the thread that waits for wishes; 0 before there is one. */
static int thread_for_wishes(void)
{
	char name[32] = "";
	glob_t tasks;
	int tid = 0;

	if (glob("/proc/self/task/*/comm", 0, NULL, &tasks) != 0)
		return 0;
	for (size_t i = 0; i < tasks.gl_pathc && !tid; i++) {
		FILE *file = fopen(tasks.gl_pathv[i], "r");

		if (file && fgets(name, sizeof(name), file) && strcmp(name, "pindown\n") == 0)
			tid = atoi(tasks.gl_pathv[i] + strlen("/proc/self/task/"));
		if (file)
			fclose(file);
	}
	globfree(&tasks);
	return tid;
}

/* The thread that waits for wishes does not keep the device open. */
START_TEST(a_program_that_closes_the_device_in_a_wait)
{
	struct pindown_state state = {0};
	int device[2];

	ck_assert_int_eq(pipe(device), 0);
	pdn_wish_look_ns = 100000000;
	pdn_kmod_answer_wishes(device[0], pdn_descriptor_identity(device[0]), &state);
	wait_until(thread_for_wishes());
	wait_until_asleep(thread_for_wishes(), "S");
	close_meanwhile(device[0]);
	wait_until(is_closed(device[1]));
	close(device[1]);
}
END_TEST

static int wish[2];

static void use_much_stack(const struct pindown_invalidation *what, void *told)
{
	volatile char room[MIB(1)];

	for (size_t i = 0; i < sizeof(room); i += 1024)
		room[i] = 1;
	ck_assert_int_eq(read(wish[0], (char *)room, 1), 1);
	ck_assert_int_eq(what->reason, PINDOWN_REASON_EVICTED);
	__atomic_store_n((bool *)told, true, __ATOMIC_RELEASE);
}

/* A callback may need as much of the stack there as in the program's own threads. */
START_TEST(a_callback_in_the_thread_that_answers_wishes)
{
	struct pindown_state state = {.wanted = 1, .wanted_bytes = 1};
	bool told = false;
	int id = pindown_subscribe(use_much_stack, &told);

	watched_alloc(BASE, PART, FAKE_LINEAR);
	get_and_put(BASE, PART);
	ck_assert_int_eq(pipe(wish), 0);
	pdn_wish_look_ns = 100000000;
	pdn_kmod_answer_wishes(wish[0], pdn_descriptor_identity(wish[0]), &state);
	ck_assert_int_eq(write(wish[1], "", 1), 1);
	wait_until(__atomic_load_n(&told, __ATOMIC_ACQUIRE));
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	close_meanwhile(wish[0]);
	wait_until(is_closed(wish[1]));
	close(wish[1]);
}
END_TEST

static void has_no_part_in_it(void *arg)
{
	EXPECT(!is_cached(BASE, ALL));
	pindown_put(arg);
	is_off(NULL);
}

START_TEST(a_child_is_off)
{
	map_parts();
	pindown_region *region = must_get(BASE, ALL);
	in_child(has_no_part_in_it, region);
	pindown_put(region);
	ck_assert(is_cached(BASE, ALL));
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
}
END_TEST

/* Both regions would be too little; the one of the other GPU stays. */
START_TEST(a_wish_is_for_the_space_of_one_gpu)
{
	struct pindown_state state = {.wanted = 1, .wanted_bytes = GIB(1)};
	bool told = false;
	int id = pindown_subscribe(use_much_stack, &told);

	state.wanted_gpu[0] = (uint8_t)(1 + _i);
	for (int device = 0; device < 2; device++) {
		fake_alloc_in(BASE + GIB(device), PART, FAKE_LINEAR, FAKE_CONTEXT, device, NULL);
		get_and_put(BASE + GIB(device), PART);
	}
	ck_assert_int_eq(pipe(wish), 0);
	pdn_wish_look_ns = 100000000;
	pdn_kmod_answer_wishes(wish[0], pdn_descriptor_identity(wish[0]), &state);
	ck_assert_int_eq(write(wish[1], "", 1), 1);
	wait_until(__atomic_load_n(&told, __ATOMIC_ACQUIRE));
	close(wish[1]);
	wait_until(!thread_for_wishes()); /* it has given all that it gives */
	ck_assert(is_cached(BASE + GIB(1 - _i), PART));
	ck_assert(!is_cached(BASE + GIB(_i), PART));
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("the kernel module and the process");
	TCase *tc = suite_case(suite, "kmod", begin_kmod, end_kmod);

	tcase_add_test(tc, a_child_is_off);
	tcase_add_test(tc, a_child_does_not_keep_the_device_open);
	tcase_add_test(tc, it_is_quiesced_and_goes_on);
	tc = suite_case(suite, "auto", begin_auto, end_kmod);
	tcase_add_test(tc, a_program_that_closes_the_device);
	tcase_add_test(tc, a_program_that_closes_the_device_in_a_wait);
	tcase_add_test(tc, a_callback_in_the_thread_that_answers_wishes);
	tcase_add_loop_test(tc, a_wish_is_for_the_space_of_one_gpu, 0, 2);
	return run_suite(suite);
}
