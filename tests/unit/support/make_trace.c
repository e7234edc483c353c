// SPDX-License-Identifier: MIT
/*
 * make_trace FILE WHAT: writes a trace for scripts. WHAT is one of the traces of made_trace.c: 0 or
 * 1, the story of one process; "good", without faults; "unfreed"; "crossed"; "many"; "live"
 * PROCESS; "retired" and its kinds; "job" and a number of ranks, where FILE is a folder; or "pins",
 * "hits", "stacks", "early", "threads" or "calls" and the size in MiB.
 */
#include "tests/unit/support/made_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FILE is a folder here. */
static int make_job(const char *folder, unsigned ranks)
{
	for (unsigned rank = 0; rank < ranks; rank++) {
		struct made made;
		char name[4096];

		snprintf(name, sizeof(name), "%s/t.%u.pdt", folder, 10000 + rank);
		made_rank(&made, rank);
		made_write(&made, name);
		made_free(&made);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct made made;

	if (argc == 4 && strcmp(argv[2], "job") == 0)
		return make_job(argv[1], (unsigned)atoi(argv[3]));
	if (argc == 4 && strcmp(argv[2], "retired") == 0)
		made_retired(&made, argv[3]);
	else if (argc == 4 && strcmp(argv[2], "live") == 0)
		made_live(&made, (uint32_t)atoi(argv[3]));
	else if (argc == 4)
		made_much(&made, argv[2], (size_t)atoi(argv[3]) << 20);
	else if (argc != 3)
		return 2;
	else if (strcmp(argv[2], "good") == 0)
		made_good(&made);
	else if (strcmp(argv[2], "unfreed") == 0)
		made_unfreed(&made);
	else if (strcmp(argv[2], "crossed") == 0)
		made_crossed(&made);
	else if (strcmp(argv[2], "many") == 0)
		made_many(&made);
	else
		made_story(&made, (unsigned)atoi(argv[2]));
	made_write(&made, argv[1]);
	made_free(&made);
	return 0;
}
