// SPDX-License-Identifier: MIT
/* pindown quiesce: ends what is registered and idle in running processes, before a checkpoint. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/command.h"
#include "tools/quiesce/ask.h"
#include "tools/system/processes.h"

static const char help[] =
	"usage: pindown quiesce [options] PID...\n"
	"\n"
	"Prepares processes for a checkpoint, as CRIU makes: ends the registrations that\n"
	"pindown keeps and nobody uses, closes its dma-bufs and /dev/pindown, and takes\n"
	"its shared memory out of the process. What has ended is made again at its next\n"
	"use, so a program that goes on brings it back: stop its transfers first.\n"
	"\n"
	"A process answers if it was started with PINDOWN_QUIESCE=1. Registrations in use\n"
	"are named, and stay.\n"
	"\n"
	"  --children         also all processes that these have started, and those that\n"
	"                     they have started; others than pindown's are passed over\n"
	"  --timeout SECONDS  how long to wait for each process, 0.1 to 3600 (default: 5)\n"
	"  --color WHEN       auto, always or never\n"
	"  --help             print this text\n"
	"\n"
	"Exit status: 0 if nothing of pindown is left in any of them; 1 if something is\n"
	"left, or a process can't be asked; 2 for bad options.\n";

static bool with_children;
static double timeout;

static bool take_timeout(const char *text)
{
	char *end;

	errno = 0;
	timeout = strtod(text, &end);
	if (!errno && end != text && !*end && timeout >= 0.1 && timeout <= 3600)
		return true;
	complain("--timeout %s: must be a number of seconds, 0.1 to 3600", text);
	return false;
}

/* ---- one process --------------------------------------------------------------------------- */

static void print_held(const struct pdn_top_quiesce *answer)
{
	uint64_t named = answer->held < PDN_TOP_NAMED ? answer->held : PDN_TOP_NAMED;

	for (uint64_t i = 0; i < named; i++)
		out_print("  in use: %s at 0x%llx\n", bytes_text(answer->named[i].length).text,
			  (unsigned long long)answer->named[i].base);
	if (answer->held > named)
		out_print("  in use: %llu more\n", (unsigned long long)(answer->held - named));
}

/* true: nothing is left. */
static bool print_answer(const struct process *process, const struct asked *asked)
{
	const struct pdn_top_quiesce *answer = &asked->answer;

	out_print("%u %s: %llu registered region%s ended", process->pid, process->command,
		  (unsigned long long)answer->ended, answer->ended == 1 ? "" : "s");
	if (answer->held)
		out_print("; %llu of %s stay%s", (unsigned long long)answer->held,
			  bytes_text(answer->held_bytes).text, answer->held == 1 ? "s" : "");
	out_print("\n");
	print_held(answer);
	if (answer->left & PDN_LEFT_TRACE)
		out_print("  its trace stays open, with its shared memory\n");
	if (answer->left & PDN_LEFT_DEVICE)
		out_print("  /dev/pindown stays open: something is pinned, or about to be\n");
	if (asked->attached)
		out_print("  its page of shared memory stays attached\n");
	return !answer->held && !answer->left && !asked->attached;
}

static bool quiesce(const struct process *process)
{
	struct asked asked = quiesce_ask(process, timeout);

	switch (asked.outcome) {
	case ANSWERED:
		return print_answer(process, &asked);
	case NOBODY_LISTENS:
		complain("process %u has no thread that can act: %llu regions of %s stay "
			 "registered, and its page of shared memory stays attached; a process that "
			 "is started with PINDOWN_QUIESCE=1 has one",
			 process->pid, (unsigned long long)process->stats.regions,
			 bytes_text(process->stats.bytes).text);
		return false;
	case NOT_ALLOWED:
		complain("process %u can't be asked: its user, or root, can", process->pid);
		return false;
	case NO_ANSWER:
		break;
	}
	complain("process %u has not answered in %g seconds: is it stopped?", process->pid,
		 timeout);
	return false;
}

/* ---- all of them --------------------------------------------------------------------------- */

static bool is_one_of(uint32_t pid, const uint32_t *pids, int count)
{
	for (int i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/* It, or with --children the process that has started it, and so on. */
static bool is_meant(uint32_t pid, const uint32_t *pids, int count)
{
	for (unsigned steps = 0; pid && steps < 1000; steps++) {
		if (is_one_of(pid, pids, count))
			return true;
		pid = with_children ? process_parent(pid) : 0;
	}
	return false;
}

static int quiesce_all(const uint32_t *pids, int count)
{
	struct processes all = {0};
	int status = STATUS_OK;

	processes_read(&all);
	for (int i = 0; i < count && !with_children; i++)
		if (!processes_have(&all, pids[i]))
			status = STATUS_FOUND;
	for (unsigned i = 0; i < all.count; i++)
		if (is_meant(all.list[i].pid, pids, count) && !quiesce(&all.list[i]))
			status = STATUS_FOUND;
	processes_free(&all);
	out_flush();
	return status;
}

static int run(int argc, char **argv)
{
	uint32_t *pids;
	int status = STATUS_USAGE;

	if (!timeout)
		timeout = 5;
	if (!argc) {
		complain("quiesce needs a process id; see pindown quiesce --help");
		return status;
	}
	pids = allocate((size_t)argc * sizeof(*pids));
	if (processes_parse(argv, pids, (unsigned)argc))
		status = quiesce_all(pids, argc);
	release(pids);
	return status;
}

static const struct setting settings[] = {
	{"children", .flag = &with_children},
	{"timeout", .take = take_timeout},
	{.name = NULL},
};

const struct command command_quiesce = {
	"quiesce",
	"end what is idle in running processes, before a checkpoint",
	help,
	settings,
	ARGUMENTS_PROCESSES,
	.run = run};
