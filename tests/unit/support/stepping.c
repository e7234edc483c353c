/* SPDX-License-Identifier: MIT */
/*
 * Stops a thread at a single instruction of its own by the processor's trap flag: see stepping.h.
 */
#define _GNU_SOURCE
#include "tests/unit/support/stepping.h"

#include <errno.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <ucontext.h>

#include "tests/unit/support/asleep.h"
#include "tests/unit/support/cache_test.h"

#define TRAP_FLAG 0x100u
#define PATIENCE \
	20000000 /* ns that the stopped thread waits for one that neither ends nor sleeps */

/* Under AddressSanitizer most instructions are its own: short rounds stop at a quarter of them. */
#define FEW_TURNS 30

static struct {
	unsigned target, at;
	unsigned calls;	      /* of the system */
	bool on, met, inside; /* inside: the other thread ended while the first was stopped */
	sem_t go;
	bool started, ended; /* the other thread's: it began, it called race_ends_here() */
	struct worker other;
	/* runs in place of the other thread; NULL: the other thread runs */
	void (*in_handler)(void);
	void (*at_each)(unsigned); /* or NULL */
} turn;

#if CAN_STEP

/* All of this runs in a signal handler, so it makes system calls only. */
static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void let_other_run(void)
{
	long long deadline = now() + PATIENCE;

	turn.met = true;
	sem_post(&turn.go);
	for (;;) {
		if (worker_is_done(&turn.other) || __atomic_load_n(&turn.ended, __ATOMIC_ACQUIRE)) {
			turn.inside = true;
			return;
		}
		if (__atomic_load_n(&turn.started, __ATOMIC_ACQUIRE) &&
		    thread_state(turn.other.tid) == 'S')
			return; /* it waits for the stopped thread */
		if (now() > deadline)
			return; /* or it spins for the stopped thread */
		sched_yield();
	}
}

/* The interrupted thread's next instruction is `syscall`. */
static bool makes_system_call(const ucontext_t *interrupted)
{
	const unsigned char *next = (const unsigned char *)interrupted->uc_mcontext.gregs[REG_RIP];

	return next[0] == 0x0f && next[1] == 0x05;
}

static void trapped(int signal, siginfo_t *info, void *context)
{
	int saved = errno;

	(void)signal, (void)info;
	turn.calls += turn.on && makes_system_call(context);
	if (turn.on && turn.at_each)
		turn.at_each(turn.at);
	if (turn.on && turn.at++ == turn.target) {
		ucontext_t *interrupted = context;

		interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
		if (turn.in_handler) {
			turn.met = turn.inside = true;
			turn.in_handler();
		} else {
			let_other_run();
		}
	}
	errno = saved;
}

static void __attribute__((noinline)) set_trap_flag(bool on)
{
	volatile size_t none = 0;

	/*
	 * This makes the compiler keep a frame pointer, so that a thread that is cancelled here can
	 * be unwound.
	 */
	__asm__ volatile("" : : "r"(__builtin_alloca(none)));
	/* The push must not overwrite the red zone. */
	if (on)
		__asm__ volatile("subq $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; "
				 "addq $128, %%rsp" ::
					 : "memory", "cc");
	else
		__asm__ volatile("subq $128, %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; "
				 "addq $128, %%rsp" ::
					 : "memory", "cc");
}

#else

static void trapped(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
}

static void set_trap_flag(bool on)
{
	(void)on;
}

#endif

void step_from_here(void)
{
	turn.at = turn.calls = 0;
	turn.on = true;
	set_trap_flag(true);
}

void step_to_here(void)
{
	set_trap_flag(false);
	turn.on = false;
}

void race_ends_here(void)
{
	__atomic_store_n(&turn.ended, true, __ATOMIC_RELEASE); /* partner: let_other_run() */
}

bool race_met(void)
{
	return turn.met;
}

bool race_was_inside(void)
{
	return turn.inside;
}

unsigned race_instruction(void)
{
	return turn.target;
}

static void other_main(void *arg)
{
	const struct race *race = arg;

	while (sem_wait(&turn.go) && errno == EINTR)
		;
	__atomic_store_n(&turn.started, true, __ATOMIC_RELEASE);
	race->other();
}

static void one_turn(const struct race *race, unsigned target)
{
	race->prepare();
	turn.target = target;
	turn.met = turn.inside = turn.started = turn.ended = false;
	sem_init(&turn.go, 0, 0);
	if (target != UINT_MAX && !turn.in_handler) {
		worker_start(&turn.other, other_main, (void *)(uintptr_t)race);
		while (!__atomic_load_n(&turn.other.tid, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	race->stepped();
	if (target != UINT_MAX && !turn.in_handler) {
		/*
		 * fewer instructions than when they were counted: the other thread runs after them
		 */
		if (!turn.met)
			sem_post(&turn.go);
		worker_join(&turn.other);
	}
	race->check();
}

static void catch_traps(void)
{
	struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};

	ck_assert_int_eq(sigaction(SIGTRAP, &action, NULL), 0);
}

unsigned count_instructions(void (*stepped)(void))
{
	catch_traps();
	turn.target = UINT_MAX;
	stepped();
	return turn.at;
}

unsigned look_at_each(void (*stepped)(void), void (*at_each)(unsigned))
{
	unsigned length;

	turn.at_each = at_each;
	length = count_instructions(stepped);
	turn.at_each = NULL;
	return length;
}

unsigned count_system_calls(void (*stepped)(void))
{
	count_instructions(stepped);
	return turn.calls;
}

unsigned fewest_instructions(void (*stepped)(void))
{
	unsigned fewest = UINT_MAX;

	for (unsigned i = 0; i < 5; i++) {
		unsigned length = count_instructions(stepped);

		if (length < fewest)
			fewest = length;
	}
	return fewest;
}

void run_race(const char *name, const struct race *race, unsigned turns)
{
	unsigned met = 0, inside = 0, tried = 0, length, dense, step;

	if (getenv("STEP_TURNS"))
		turns = (unsigned)atoi(getenv("STEP_TURNS"));
	else if (UNDER_ASAN && !wants_long_rounds() && turns >= 4 * FEW_TURNS)
		turns /= 4;
	catch_traps();
	one_turn(race, UINT_MAX);
	one_turn(race, UINT_MAX); /* by now all one-time initialization has been done */
	length = turn.at;
	/*
	 * The code takes fewer locks at its beginning, so stop at each instruction of the first
	 * half.
	 */
	dense = length <= turns ? length : turns / 2;
	step = (length - dense) / (turns - turns / 2) + 1;
	/* On a machine with much else to do, it may be that the other thread never runs in time. */
	for (unsigned round = 0; round < 5 && !inside; round++) {
		for (unsigned target = 0; target < length; target += target < dense ? 1 : step) {
			one_turn(race, target);
			tried++;
			met += turn.met;
			inside += turn.inside;
		}
	}
	printf("%s: %u instructions, stopped at %u of them; %s ran through %u times\n", name,
	       length, met, turn.in_handler ? "the handler" : "the other thread", inside);
	fflush(stdout);
	ck_assert_uint_gt(met, tried / 2);
	ck_assert_uint_gt(inside, 0);
}

void run_race_in_handler(const char *name, const struct race *race, unsigned turns)
{
	turn.in_handler = race->other;
	run_race(name, race, turns);
	turn.in_handler = NULL;
}

/* A runner owns its suite. */
static int skip_suite(Suite *suite, const char *why)
{
	srunner_free(srunner_create(suite));
	printf("skipped: %s\n", why);
	return 77;
}

int run_stepped_suite(Suite *suite)
{
	if (CAN_STEP)
		return run_suite(suite);
	return skip_suite(suite, "single-stepping is for x86-64, and not under ThreadSanitizer");
}

int run_counting_suite(Suite *suite)
{
	if (CAN_COUNT)
		return run_suite(suite);
	return skip_suite(suite, "instructions are counted on x86-64, and not a sanitizer's");
}
