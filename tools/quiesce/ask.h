/* SPDX-License-Identifier: MIT */
/* Asking one process, through its page. */
#ifndef QUIESCE_ASK_H
#define QUIESCE_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/show/format.h"
#include "tools/system/processes.h"

enum outcome {
	ANSWERED,
	NOBODY_LISTENS,
	NOT_ALLOWED, /* to write to the page, which is its owner's */
	NO_ANSWER,   /* in time */
};

/* The answer is the process's, and not to be trusted. `attached`: so is its page, still. */
struct asked {
	enum outcome outcome;
	struct pdn_top_quiesce answer;
	bool attached;
};

struct asked quiesce_ask(const struct process *process, double seconds);

#endif
