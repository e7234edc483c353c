/* SPDX-License-Identifier: MIT */
/* A signal handler records events while its thread is writing one, at any instruction of that. */
#define _GNU_SOURCE
#include "tests/unit/support/trace_test.h"

#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include "tests/unit/support/stepping.h"
#include "cache/base/thread/thread.h"

enum { IN_HANDLER = 2500 }; /* more than a piece holds */
static volatile uint64_t handled;

static void write_in_handler(int signal)
{
	(void)signal;
	for (unsigned i = 0; i < IN_HANDLER; i++)
		call_at(1ull << 32 | (handled + i));
	handled += IN_HANDLER;
}

/*
 * Each of the two writers has its events in the order in which it wrote them, and each event is
 * there or counted as lost. Events are lost only where a handler's events took the space that was
 * just found.
 */
static void check_trace(uint64_t written, uint64_t most_lost)
{
	uint64_t next[2] = {0, 0};

	read_back("t.pdt");
	for (unsigned i = 0; i < event_count; i++) {
		uint64_t which = events[i].record.addr >> 32;

		if (events[i].record.event == PDN_EV_LOST)
			continue;
		ck_assert_uint_lt(which, 2);
		ck_assert_uint_ge(events[i].record.addr & 0xffffffff, next[which]);
		next[which] = (events[i].record.addr & 0xffffffff) + 1;
	}
	ck_assert_uint_eq(event_count - count_events(PDN_EV_LOST) + counters.lost, written);
	ck_assert_uint_le(counters.lost, most_lost);
}

/* Signals come anywhere in the writing of an event, and make the thread move to its next piece. */
START_TEST(calls_in_signal_handlers)
{
	const struct itimerval often = {{0, 500}, {0, 500}}, never = {0};
	struct sigaction action = {.sa_handler = write_in_handler, .sa_flags = SA_RESTART};
	uint64_t count = 0;

	pdn_trace_open();
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (; handled < 100 * IN_HANDLER; count++)
		call_at(count);
	setitimer(ITIMER_REAL, &never, NULL);
	check_trace(count + handled, 100);
}
END_TEST

#if CAN_STEP

#define TRAP_FLAG 0x100
static struct {
	unsigned target, at, events;
	uint64_t number;
} step;

/*
 * By the trap flag the processor calls this after each instruction. At the target instruction, it
 * records a handler's events.
 */
static void trapped(int signal, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;

	(void)signal;
	(void)info;
	if (step.at++ != step.target)
		return;
	interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
	for (unsigned i = 0; i < step.events; i++)
		call_at(1ull << 32 | step.number++);
}

static void __attribute__((noinline)) trap_from_here(void)
{
	__asm__ volatile("subq $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; addq $128, %%rsp" ::
				 : "memory", "cc");
}

static void __attribute__((noinline)) trap_to_here(void)
{
	__asm__ volatile(
		"subq $128, %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; addq $128, %%rsp" ::
			: "memory", "cc");
}

/* Fills the piece up, so that the stepped code finds space for one event and no more. */
static uint64_t fill_up(uint64_t number)
{
	const struct pdn_thread *self = pdn_self();

	do
		call_at(number++);
	while (self->trace_end - self->trace_at >= 64 || self->trace_end - self->trace_at < 32);
	return number;
}

static void step_through(unsigned events_in_handler)
{
	struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
	uint64_t number = 0;

	pdn_trace_open();
	sigaction(SIGTRAP, &action, NULL);
	step.events = events_in_handler;
	do {
		number = fill_up(number);
		step.at = 0;
		trap_from_here();
		call_at(number++);
		trap_to_here();
	} while (step.at > step.target++);
	ck_assert_uint_gt(step.target, 50);
	check_trace(number + step.number, step.target);
}

/*
 * At each instruction of the writing of an event: one event that takes the last space, and as many
 * events as make the thread move to its next piece.
 */
START_TEST(a_call_at_each_instruction)
{
	step_through(1);
}
END_TEST

START_TEST(many_calls_at_each_instruction)
{
	step_through(IN_HANDLER);
}
END_TEST

#endif

int main(void)
{
	Suite *suite = suite_create("trace: calls in signal handlers");

	add_case(suite, "by a timer", (const TTest *const[]){calls_in_signal_handlers, NULL});
#if CAN_STEP
	add_case(suite, "at each instruction",
		 (const TTest *const[]){a_call_at_each_instruction, many_calls_at_each_instruction,
					NULL});
#endif
	return run_suite(suite);
}
