/* SPDX-License-Identifier: MIT */
/*
 * A round is a process that begins with an empty cache, plays, and ends. So it can be repeated from
 * its operations alone, and a crash ends only this process.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "cache/trust/trust.h"
#include "model.h"

/* The seconds of a round, more for a long one: a round that hangs has failed. */
#define PATIENCE	       60
#define OPERATIONS_IN_A_SECOND 5000 /* the minimum */

struct log *this_log;
uint64_t max_ops;
bool is_replay, in_child, used_gpu, is_off;

void make_log(uint64_t max)
{
	void *p = mmap(NULL, sizeof(struct log) + max * sizeof(struct op), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("model: no memory for a log");
		exit(2);
	}
	this_log = p;
	max_ops = max;
}

void disagree(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(this_log->message, sizeof(this_log->message), format, args);
	va_end(args);
	this_log->cause = (uintptr_t)format;
	_exit(1);
}

void one_random_operation(void)
{
	struct op *op;

	if (this_log->count == max_ops)
		return;
	op = &this_log->ops[this_log->count];
	*op = next_op();
	this_log->count++;
	this_log->kinds[op->code]++;
	perform(op);
	this_log->done++;
}

static void begin(bool checks, uint64_t count)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);  /* ends with the parent */
	setenv("PINDOWN_LOG", "quiet", 1); /* "warn" would print too many lines */
	memory_reset();
	pins_reset();
	lists_reset();
	objects_reset();
	put_when_told = detach_when_told = in_child = used_gpu = is_off = false;
	checks_all = checks;
	pdn_find_driver_symbol = memory_symbol;
	pdn_is_mapped = memory_is_mapped;
	pdn_set_intercepting(!checks);
	pdn_hits_for_a_look = 1u << 29; /* only those that the model knows of */
	perform(&(struct op){OP_BUDGET, {0, 0}});
	for (uint32_t i = 0; i < CONSUMERS; i++)
		perform(&(struct op){OP_CONSUMER_ADD, {i}});
	AGREE(pindown_subscribe(saw_end, NULL) > 0, "no place for a subscriber");
	alarm((unsigned)(PATIENCE + count / OPERATIONS_IN_A_SECOND));
}

static void add_to_seen(void)
{
	const uint64_t *from = (const uint64_t *)&counts;
	uint64_t *to = (uint64_t *)&this_log->seen;

	for (size_t i = 0; i < sizeof(counts) / sizeof(*from); i++)
		to[i] += from[i];
}

/* Puts all holds; nothing may be left. */
void end_round(void)
{
	for (bool any = true; any;) {
		any = false;
		for (unsigned i = 0; i < region_count; i++)
			any |= regions[i]->holds > 0;
		if (any)
			perform(&(struct op){OP_PUT, {0}});
	}
	while (nth_held_object(0))
		perform(&(struct op){OP_DETACH, {0}});
	perform(&(struct op){OP_FLUSH, {0}});
	AGREE(pins_open == 0, "%u pins are open at the end", pins_open);
	AGREE(object_count == 0, "%u objects are there at the end", object_count);
	add_to_seen();
}

static bool wait_for_round(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) != child)
		;
	if (WIFSIGNALED(status))
		this_log->cause = (uint64_t)WTERMSIG(status);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(this_log->message, sizeof(this_log->message), "it hangs");
	else if (WIFSIGNALED(status) && !this_log->message[0])
		snprintf(this_log->message, sizeof(this_log->message), "killed by signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (status && !this_log->message[0])
		snprintf(this_log->message, sizeof(this_log->message), "exit status %d",
			 WEXITSTATUS(status));
	return status == 0;
}

bool play_sequence(bool checks, const struct op *ops, uint64_t count)
{
	pid_t child;

	this_log->message[0] = '\0';
	child = fork();
	if (child == 0) {
		is_replay = true;
		begin(checks, count);
		for (uint64_t i = 0; i < count; i++)
			perform(&ops[i]);
		end_round();
		_exit(0);
	}
	return wait_for_round(child);
}

bool play_random(bool checks, uint64_t seed, uint64_t count)
{
	pid_t child;

	this_log->message[0] = '\0';
	this_log->count = 0;
	child = fork();
	if (child == 0) {
		is_replay = false;
		dice_reset(seed);
		begin(checks, count);
		for (uint64_t i = 0; i < count; i++)
			one_random_operation();
		end_round();
		_exit(0);
	}
	return wait_for_round(child);
}
