/* SPDX-License-Identifier: MIT */
/* Uses the variables of another library: as a library, or as a program, which may copy them. */
#include "tests/apps/variables.h"

#include <stdio.h>

static void *const places[] = {&cuInit, &cuCtxCreate_v2, &cuMemAlloc_v2, &cuMemFree_v2,
			       &ibv_reg_mr};

int variables_use(void)
{
	printf("at other places %d, before %d; ", variables_places(places), cuMemFree_v2(0));
	if (variables_work())
		return 1;
	printf("free here %d\n", cuMemFree_v2(0));
	return 0;
}

#ifdef VARIABLES_PROGRAM
int main(void)
{
	return variables_use();
}
#endif
