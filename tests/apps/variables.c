/* SPDX-License-Identifier: MIT */
/*
 * A library that is not linked with the driver: it has global variables with the names of the
 * driver's functions and of a verb, and fills them with what it looks up (cuew and its kind).
 */
#include "tests/apps/variables.h"

#include <dlfcn.h>
#include <stdio.h>

init_function *cuInit;
create_function *cuCtxCreate_v2;
allocate_function *cuMemAlloc_v2;
free_function *cuMemFree_v2;
void *ibv_reg_mr;

/* Addresses that the loader fills in without a table of bound functions. */
static void *const places[] = {&cuInit,	      &cuCtxCreate_v2, &cuMemAlloc_v2,
			       &cuMemFree_v2, &ibv_reg_mr,     NULL};

static int not_looked_up(uint64_t address)
{
	(void)address;
	return -1;
}

/* Before anybody's main(), or in the dlopen(). */
__attribute__((constructor)) static void begin(void)
{
	cuMemFree_v2 = not_looked_up;
	ibv_reg_mr = &ibv_reg_mr;
}

int variables_places(void *const others[])
{
	int different = 0;

	for (unsigned i = 0; places[i]; i++)
		different += others[i] != places[i];
	return different;
}

int variables_work(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	uint64_t address = 0;
	int before = cuMemFree_v2(0);

	if (!driver)
		return 1;
	cuInit = (init_function *)dlsym(driver, "cuInit");
	cuCtxCreate_v2 = (create_function *)dlsym(driver, "cuCtxCreate_v2");
	cuMemAlloc_v2 = (allocate_function *)dlsym(driver, "cuMemAlloc_v2");
	cuMemFree_v2 = (free_function *)dlsym(driver, "cuMemFree_v2");
	printf("before %d, init %d", before, cuInit(0));
	printf(", create %d", cuCtxCreate_v2(&context, 0, 0));
	printf(", allocate %d", cuMemAlloc_v2(&address, 1 << 20));
	printf(", free %d", cuMemFree_v2(address));
	printf(", free again %d, a verb %d\n", cuMemFree_v2(address), ibv_reg_mr == &ibv_reg_mr);
	return 0;
}
