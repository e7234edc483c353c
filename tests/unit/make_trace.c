// SPDX-License-Identifier: MIT
/* make_trace FILE PROCESS: writes the story of made_trace.c, for scripts. */
#include "made_trace.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	struct made made;

	if (argc != 3)
		return 2;
	made_story(&made, (unsigned)atoi(argv[2]));
	made_write(&made, argv[1]);
	made_free(&made);
	return 0;
}
