// SPDX-License-Identifier: MIT
/*
 * The page is its owner's, who may have made it so that an access raises SIGBUS. So it is read and
 * written by system calls only.
 */
#define _GNU_SOURCE
#include "tools/quiesce/ask.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/memory/safe_read.h"

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void rest(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static bool write_number(uint64_t at, uint32_t number)
{
	struct iovec here = {&number, sizeof(number)}, there = {(void *)at, sizeof(number)};

	return process_vm_writev(getpid(), &here, 1, &there, 1, 0) == (ssize_t)sizeof(number);
}

/* `at`: of the struct pdn_top_quiesce. */
static bool wish(uint64_t at, uint32_t number)
{
	uint64_t wanted = at + offsetof(struct pdn_top_quiesce, wanted);

	if (!write_number(wanted, number))
		return false;
	syscall(SYS_futex, wanted, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return true;
}

/* Before this returns it has let go of the page as well, or has said that it can't. */
static bool is_over(const struct process *process, struct asked *asked, uint64_t at,
		    uint32_t number)
{
	struct shmid_ds about;

	if (asked->outcome != ANSWERED) {
		if (!pdn_safe_read(&asked->answer, at, sizeof(asked->answer)) ||
		    asked->answer.answered != number)
			return false;
		asked->outcome = ANSWERED;
	}
	/* This process has it attached, too. */
	asked->attached = shmctl(process->segment, IPC_STAT, &about) == 0 && about.shm_nattch > 1;
	return !asked->attached || asked->answer.left & PDN_LEFT_SEGMENT;
}

static struct asked ask_at(const struct process *process, uint64_t at, double seconds)
{
	struct asked asked = {.outcome = NOBODY_LISTENS, .attached = true};
	double until = now() + seconds;
	uint32_t number;

	if (!pdn_safe_read(&asked.answer, at, sizeof(asked.answer)) || !asked.answer.listens)
		return asked;
	number = asked.answer.wanted + 1;
	asked.outcome = wish(at, number) ? NO_ANSWER : NOT_ALLOWED;
	while (asked.outcome != NOT_ALLOWED && !is_over(process, &asked, at, number) &&
	       now() < until)
		rest();
	return asked;
}

struct asked quiesce_ask(const struct process *process, double seconds)
{
	void *page = shmat(process->segment, NULL, 0);
	struct asked asked = {.outcome = NOT_ALLOWED, .attached = true};

	if (page == (void *)-1)
		return asked;
	asked = ask_at(process, (uint64_t)page + offsetof(struct pdn_top_page, quiesce), seconds);
	shmdt(page);
	return asked;
}
