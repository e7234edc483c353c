/* SPDX-License-Identifier: MIT */
/* Variables with the driver's names, and who has them. */
#ifndef VARIABLES_H
#define VARIABLES_H

#include <stddef.h>
#include <stdint.h>

typedef int init_function(unsigned flags);
typedef int create_function(void **context, unsigned flags, int device);
typedef int allocate_function(uint64_t *address, size_t size);
typedef int free_function(uint64_t address);

extern init_function *cuInit;
extern create_function *cuCtxCreate_v2;
extern allocate_function *cuMemAlloc_v2;
extern free_function *cuMemFree_v2;
extern void *ibv_reg_mr;

int variables_work(void);

/* How many of the variables are at another place for the caller, who has these. */
int variables_places(void *const others[]);

/* Of a library, or a program, that uses the variables of another one. */
int variables_use(void);

#endif
