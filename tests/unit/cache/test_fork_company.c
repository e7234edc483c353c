/* SPDX-License-Identifier: MIT */
/*
 * fork in a process with other libraries: their atfork handlers run before and after pindown's, and
 * call the cache and watched functions, or wait for threads that do. And children that are not
 * notified of the fork.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "cache/base/process/descriptor.h"
#include "cache/base/process/fork_gate.h"
#include "cache/base/thread/lock.h"
#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "tests/unit/support/fork_test.h"
#include "tests/unit/support/objects_test.h"
#include "tests/unit/support/stepping.h"
#include "tests/unit/support/syscalls.h"

enum side { EARLY, LATE, SIDES }; /* registered before pindown's handlers, and after */
enum when { IN_PREPARE, IN_PARENT, IN_CHILD, WHENS };

static void (*handler)(enum side side, enum when when);
static unsigned calls[SIDES][WHENS];

#define HANDLER(side, when)                  \
	static void side##_##when(void)      \
	{                                    \
		calls[side][when]++;         \
		if (handler)                 \
			handler(side, when); \
	}
HANDLER(EARLY, IN_PREPARE)
HANDLER(EARLY, IN_PARENT)
HANDLER(EARLY, IN_CHILD)
HANDLER(LATE, IN_PREPARE)
HANDLER(LATE, IN_PARENT)
HANDLER(LATE, IN_CHILD)

/* Memory for the handlers of another library, which nothing else uses. */
static uint64_t own(enum side side)
{
	return AT(20 + side);
}

static void begin_with_other_libraries(void)
{
	open_books();
	pdn_fork_wait_ns = PATIENCE_NS;
	fake_handle_forks();
	pthread_atfork(EARLY_IN_PREPARE, EARLY_IN_PARENT, EARLY_IN_CHILD);
	pthread_atfork(pdn_fork_prepare, pdn_fork_parent, pdn_fork_child);
	pthread_atfork(LATE_IN_PREPARE, LATE_IN_PARENT, LATE_IN_CHILD);
	fake_alloc(own(EARLY), PAGE, FAKE_LINEAR);
	fake_alloc(own(LATE), PAGE, FAKE_LINEAR);
}

/* Check can't be used in a child; see EXPECT(). */
static void must(bool ok, unsigned line, enum when when)
{
	if (ok)
		return;
	if (when == IN_CHILD)
		_exit((int)(line % 200 + 1));
	ck_abort_msg("expectation in line %u", line);
}
#define MUST(condition) must(condition, __LINE__, when)

static void call_everything_off(uint64_t at)
{
	struct pindown_stats s;
	pindown_region *region;
	pindown_object *object;

	EXPECT(pindown_get(at, 1, 0, &region) == PINDOWN_ERR_NO_CUDA);
	EXPECT(pindown_attach(consumer, at, 1, 0, KEY(7, 1), NULL, &object) == PINDOWN_ERR_NO_CUDA);
	EXPECT(pindown_end_owner(consumer, 7) == 0);
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK && s.regions == 0);
	EXPECT(watched_free(at) == FAKE_SUCCESS);
	watched_alloc(at, PAGE, FAKE_LINEAR);
	pdn_recheck(NULL);
}

/*
 * A pin, a hit, a free, an allocation, an object: everything that takes the lock, and calls that do
 * not.
 */
static void call_everything(enum side side, enum when when)
{
	uint64_t at = own(side);
	struct pindown_stats s;
	pindown_region *region, *again;
	pindown_object *object;

	if (when == IN_CHILD) {
		call_everything_off(at);
		return;
	}
	MUST(pindown_get(at, 1, 0, &region) == PINDOWN_OK);
	MUST(pindown_get(at, 1, PINDOWN_GET_CACHED, &again) == PINDOWN_OK && again == region);
	MUST(pindown_region_is_live(region));
	MUST(pindown_attach(consumer, at, 1, 0, KEY(7, side), NULL, &object) == PINDOWN_OK);
	pindown_detach(object);
	pindown_put(again);
	pindown_put(region);
	MUST(pindown_end_owner(consumer, 7) == 0);
	MUST(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK && s.regions >= 1);
	MUST(watched_free(at) == FAKE_SUCCESS);
	MUST(pindown_get(at, 1, 0, &region) == PINDOWN_ERR_NOT_DEVICE);
	watched_alloc(at, PAGE, FAKE_LINEAR);
	pdn_recheck(NULL);
}

static void assert_all_ran(unsigned times)
{
	for (enum side side = 0; side < SIDES; side++) {
		ck_assert_uint_eq(calls[side][IN_PREPARE], times);
		ck_assert_uint_eq(calls[side][IN_PARENT], times);
	}
}

static uint64_t parents_id;

static void has_only_its_own(void *arg)
{
	(void)arg;
	EXPECT(calls[EARLY][IN_CHILD] == 1 && calls[LATE][IN_CHILD] == 1);
	EXPECT(fake_open_exports_of(parents_id) == 1); /* the parent's */
	EXPECT(fake_descriptors_here() == 0);
	is_off(NULL);
}

START_TEST(handlers_may_call_everything)
{
	handler = call_everything;
	get_and_put(AT(0), 1);
	parents_id = fake_id(AT(0));
	in_child(has_only_its_own, NULL);
	assert_all_ran(1);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

START_TEST(handlers_may_call_before_anything_else_has)
{
	handler = call_everything;
	pid_t child = start_child(is_off, NULL);
	reap(child);
	assert_all_ran(1);
}
END_TEST

/* ---- what a child handler that runs before pindown's finds ---- */

static pindown_region *parents_region;
static pindown_object *parents_object;

static void finds_nothing_of_the_parents(enum side side, enum when when)
{
	pindown_region *region;
	pindown_object *object;

	if (side != EARLY || when != IN_CHILD)
		return;
	MUST(pindown_get(AT(0), 1, PINDOWN_GET_CACHED, &region) == PINDOWN_ERR_NO_CUDA);
	MUST(pindown_attach(consumer, AT(0), 1, PINDOWN_GET_CACHED, KEY(1, 1), NULL, &object) ==
	     PINDOWN_ERR_NO_CUDA);
	MUST(!pindown_region_is_live(parents_region));
	MUST(pindown_attach_region(consumer, parents_region, 0, 0, 0, KEY(1, 1), NULL, &object) ==
	     PINDOWN_ERR_NOT_DEVICE);
	MUST(fake_descriptors_here() == 0);
}

static void lets_go_later(void *arg)
{
	pindown_put(parents_region);
	pindown_detach(parents_object);
	is_off(arg);
}

START_TEST(a_child_handler_before_ours_finds_nothing_of_the_parents)
{
	handler = finds_nothing_of_the_parents;
	parents_object = must_attach(consumer, AT(0), KEY(1, 1));
	parents_region = must_get(AT(0), 1);
	in_child(lets_go_later, NULL);
	pindown_put(parents_region);
	pindown_detach(parents_object);
}
END_TEST

static void lets_go_of_the_parents(enum side side, enum when when)
{
	if (side != EARLY || when != IN_CHILD)
		return;
	pindown_put(parents_region);
	pindown_put(parents_region);
	pindown_detach(parents_object);
	pindown_detach(parents_object);
}

/* The parent may have freed AT(0), or may be about to. */
static void can_go_on(void *arg)
{
	pindown_object *object;

	EXPECT(fake_descriptors_here() == 0);
	watched_free(AT(0));
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	is_off(arg);
	EXPECT(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object) ==
	       PINDOWN_ERR_NO_CUDA);
}

START_TEST(a_child_handler_before_ours_may_put_the_parents)
{
	handler = lets_go_of_the_parents;
	parents_object = must_attach(consumer, AT(0), KEY(1, 1));
	parents_region = must_get(AT(0), 1);
	in_child(can_go_on, NULL);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	in_child(can_go_on, NULL);
	pindown_put(parents_region);
	pindown_detach(parents_object);
	destroyed(1, PINDOWN_REASON_FREED, 0);
}
END_TEST

/* ---- a handler that waits for a thread that calls the cache ---- */

static struct gate may_pin;
static struct worker pinner;

static void pin_when_told(void *arg)
{
	(void)arg;
	gate_wait(&may_pin);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}

static enum side who_waits;

static void wait_for_a_pinner(enum side side, enum when when)
{
	if (when != IN_PREPARE || side != who_waits)
		return;
	gate_open(&may_pin);
	worker_join(&pinner);
}

static void run_fork_that_waits_for_a_pinner(enum side side)
{
	gate_init(&may_pin);
	handler = wait_for_a_pinner;
	/* a pin waits this long for a fork, and the handler waits for the pin */
	pdn_fork_wait_ns = 100000000;
	who_waits = side;
	worker_start(&pinner, pin_when_told, NULL);
	in_child(can_go_on, NULL);
	ck_assert(worker_is_done(&pinner));
}

/* Its handler runs after pindown's, just before the fork. */
START_TEST(an_early_prepare_handler_may_wait_for_a_pin)
{
	run_fork_that_waits_for_a_pinner(EARLY);
}
END_TEST

START_TEST(a_late_prepare_handler_may_wait_for_a_pin)
{
	run_fork_that_waits_for_a_pinner(LATE);
}
END_TEST

/* ---- a fork without notice ---- */

static void finds_out_by_itself(void *arg)
{
	EXPECT(!is_cached(AT(0), 1));
	EXPECT(fake_descriptors_here() == 0);
	EXPECT(!pindown_region_is_live(parents_region));
	pindown_put(parents_region);
	is_off(arg);
}

START_TEST(a_child_by_clone_finds_out_by_itself)
{
	parents_region = must_get(AT(0), 1);
	pid_t child = (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, NULL, NULL, NULL, NULL);
	if (child == 0) {
		finds_out_by_itself(NULL);
		_exit(0);
	}
	reap(child);
	pindown_put(parents_region);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

/* The child goes on in the callback, and begins again in the first lock after it. */
static pid_t child_of_callback = -1;

static void fork_by_clone(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	child_of_callback = (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, NULL, NULL, NULL, NULL);
}

START_TEST(a_child_by_clone_in_a_callback_may_unsubscribe)
{
	int id = pindown_subscribe(fork_by_clone, NULL);

	get_and_put(AT(0), 1);
	pindown_invalidate(AT(0), 1);
	if (child_of_callback == 0) {
		alarm(10); /* it waited for its own callback to end, for ever */
		EXPECT(pindown_unsubscribe(id) == PINDOWN_OK);
		is_off(NULL);
		_exit(0);
	}
	reap(child_of_callback);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

/* It has the very descriptors of its parent, which go on to be used there. */
START_TEST(a_child_that_shares_the_descriptors_closes_none)
{
	const int flags = CLONE_FILES | 17 /* SIGCHLD */;
	uint64_t offset;
	int fd;

	parents_region = must_get(AT(0), 1);
	ck_assert_int_eq(pindown_region_dmabuf(parents_region, AT(0), &fd, &offset), PINDOWN_OK);
	pdn_descriptor_note(fd, pdn_descriptor_identity(fd));
	pid_t child = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
	if (child == 0) {
		EXPECT(!is_cached(AT(0), 1));
		EXPECT(fake_descriptors_here() == 1);
		_exit(0);
	}
	reap(child);
	ck_assert_uint_eq(fake_descriptors_here(), 1);
	pindown_put(parents_region);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

/* ---- a descriptor that is closed while the process is being forked ---- */

/*
 * The kernel copies the descriptors first and the memory later: this descriptor is open in the
 * child, and belongs to no pin there. A file that has taken the number of another one meanwhile is
 * left alone.
 */
static int ends[2], others[2];

static void note_descriptors(enum side side, enum when when)
{
	if (side != EARLY || when != IN_PREPARE)
		return;
	pdn_descriptor_note(ends[1], pdn_descriptor_identity(ends[1]));
	pdn_descriptor_note(others[1], ~pdn_descriptor_identity(others[1]));
}

START_TEST(a_descriptor_about_to_be_closed_is_closed_in_the_child)
{
	int status;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(pipe(others), 0);
	get_and_put(AT(0), 1);
	handler = note_descriptors; /* runs after pindown's, and before the fork */
	pid_t child = fork();
	if (child == 0)
		_exit((fcntl(ends[1], F_GETFD) == -1 ? 0 : 1) +
		      (fcntl(others[1], F_GETFD) == -1 ? 2 : 0));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	for (unsigned i = 0; i < 2; i++) {
		close(ends[i]);
		close(others[i]);
	}
}
END_TEST

/* Of pdn_descriptor_identity(). */
static void (*at_fstat)(int fd);

bool play_syscall(long number, const long args[6], long *result)
{
	(void)result;
	if (number == SYS_fstat && at_fstat)
		at_fstat((int)args[0]);
	return false;
}

static unsigned looks_at_trial;
static int trial = -1, status_of_child = -1;

/* The first look at the first descriptor is when it is made, the second before it is closed. */
static void fork_in_trial(int fd)
{
	if (trial < 0)
		trial = fd;
	if (fd != trial || ++looks_at_trial != 2)
		return;
	at_fstat = NULL;
	pid_t child = (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, NULL, NULL, NULL, NULL);
	if (child == 0) {
		struct pindown_stats s;

		EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK); /* finds out */
		EXPECT(fcntl(fd, F_GETFD) == -1);
		_exit(0);
	}
	waitpid(child, &status_of_child, 0);
}

/* Smaller pins are made to see how much fits. No flight names their descriptors. */
START_TEST(a_descriptor_made_to_see_whether_it_fits_is_closed_in_the_child)
{
	fake_alloc(AT(10), MIB(16), FAKE_LINEAR);
	fake_pin_space(MIB(8));
	at_fstat = fork_in_trial;
	get_and_put(AT(10), 1);
	at_fstat = NULL;
	ck_assert_int_eq(status_of_child, 0);
	ck_assert_int_eq(watched_free(AT(10)), FAKE_SUCCESS);
}
END_TEST

/*
 * A vfork child uses the parent's memory until it calls exec, and must leave everything as it is.
 */
START_TEST(vfork_is_no_fork)
{
	parents_region = must_get(AT(0), 1);
	pid_t child = vfork();
	if (child == 0)
		_exit(0);
	reap(child);
	ck_assert(pindown_region_is_live(parents_region));
	ck_assert(is_cached(AT(0), 1));
	pindown_put(parents_region);
}
END_TEST

/* ---- the parent ---- */

static void dont_wait_for_long(enum side side, enum when when)
{
	(void)side, (void)when;
}

/*
 * Another library's prepare handler does not return: the fork does not happen, and no handler of
 * the parent runs.
 */
static void *fork_and_leave(void *arg)
{
	(void)arg;
	fork();
	return NULL;
}

static void end_the_thread(enum side side, enum when when)
{
	if (side == EARLY && when == IN_PREPARE)
		pthread_exit(NULL);
}

START_TEST(a_fork_that_never_comes_holds_nobody_up_for_long)
{
	pthread_t thread;

	handler = end_the_thread;
	pdn_fork_wait_ns = 1000000;
	ck_assert_int_eq(pthread_create(&thread, NULL, fork_and_leave, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	handler = dont_wait_for_long;
	for (unsigned i = 0; i < 1000; i++) {
		get_and_put(AT(0), 1);
		ck_assert_int_eq(pindown_flush(), 1);
	}
}
END_TEST

/* ---- a fork at each instruction of another thread ---- */

static void prepare_a_miss(void)
{
	pindown_flush();
	fake_free(AT(0));
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
}

static void prepare_a_region(void)
{
	prepare_a_miss();
	get_and_put(AT(0), 1);
}

static void stepped_get(void)
{
	step_from_here();
	get_and_put(AT(0), 1);
	step_to_here();
}

static void stepped_free(void)
{
	step_from_here();
	watched_free(AT(0));
	step_to_here();
}

static void stepped_attach(void)
{
	step_from_here();
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	step_to_here();
}

static void count_calls(const struct pindown_invalidation *what, void *arg)
{
	(void)what;
	++*(unsigned *)arg;
}

static void stepped_subscription(void)
{
	static unsigned count;

	step_from_here();
	pindown_unsubscribe(pindown_subscribe(count_calls, &count));
	step_to_here();
}

static pid_t forked;
static void (*in_forked)(void *arg);

static void fork_in_company(void)
{
	forked = start_child(in_forked, NULL);
}

static void assert_all_went_on(void)
{
	if (forked)
		reap(forked);
	forked = 0;
	assert_books_balance();
}

static void run_forks(const char *name, void (*prepare)(void), void (*stepped)(void))
{
	const struct race race = {prepare, stepped, fork_in_company, assert_all_went_on};

	handler = call_everything;
	in_forked = can_go_on;
	run_race(name, &race, 120);
	pindown_flush();
}

START_TEST(forks_at_each_instruction_of_a_pin)
{
	run_forks("a pin", prepare_a_miss, stepped_get);
}
END_TEST

START_TEST(forks_at_each_instruction_of_a_hit)
{
	run_forks("a hit", prepare_a_region, stepped_get);
}
END_TEST

START_TEST(forks_at_each_instruction_of_a_free)
{
	run_forks("a free", prepare_a_region, stepped_free);
}
END_TEST

START_TEST(forks_at_each_instruction_of_an_attach)
{
	run_forks("an attach", prepare_a_miss, stepped_attach);
}
END_TEST

START_TEST(forks_at_each_instruction_of_a_subscription)
{
	run_forks("a subscription", prepare_a_region, stepped_subscription);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: fork with other libraries");
	TCase *tc = suite_case(suite, "handlers", begin_with_other_libraries, close_books);

	tcase_add_test(tc, handlers_may_call_everything);
	tcase_add_test(tc, handlers_may_call_before_anything_else_has);
	tcase_add_test(tc, a_child_handler_before_ours_finds_nothing_of_the_parents);
	tcase_add_test(tc, a_child_handler_before_ours_may_put_the_parents);
	tcase_add_test(tc, an_early_prepare_handler_may_wait_for_a_pin);
	tcase_add_test(tc, a_late_prepare_handler_may_wait_for_a_pin);
	tcase_add_test(tc, a_child_by_clone_finds_out_by_itself);
	tcase_add_test(tc, a_child_by_clone_in_a_callback_may_unsubscribe);
	tcase_add_test(tc, a_child_that_shares_the_descriptors_closes_none);
	tcase_add_test(tc, a_descriptor_about_to_be_closed_is_closed_in_the_child);
	tcase_add_test(tc, a_descriptor_made_to_see_whether_it_fits_is_closed_in_the_child);
	tcase_add_test(tc, vfork_is_no_fork);
	tcase_add_test(tc, a_fork_that_never_comes_holds_nobody_up_for_long);
	if (CAN_STEP) {
		tc = suite_case(suite, "at each instruction", begin_with_other_libraries,
				close_books);
		tcase_set_timeout(tc, 600);
		tcase_add_test(tc, forks_at_each_instruction_of_a_pin);
		tcase_add_test(tc, forks_at_each_instruction_of_a_hit);
		tcase_add_test(tc, forks_at_each_instruction_of_a_free);
		tcase_add_test(tc, forks_at_each_instruction_of_an_attach);
		tcase_add_test(tc, forks_at_each_instruction_of_a_subscription);
	}
	return run_suite(suite);
}
