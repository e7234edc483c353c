// SPDX-License-Identifier: MIT
/* make_trace FILE PROCESS: writes the story of made_trace.c, for scripts; "good": one without faults. */
#include "made_trace.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct made made;

	if (argc != 3)
		return 2;
	if (strcmp(argv[2], "good") == 0)
		made_good(&made);
	else
		made_story(&made, (unsigned)atoi(argv[2]));
	made_write(&made, argv[1]);
	made_free(&made);
	return 0;
}
