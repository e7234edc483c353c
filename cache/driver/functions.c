/* SPDX-License-Identifier: MIT */
/* Finds the CUDA driver's functions, each at its first use. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/driver/driver.h"
#include "cache/driver/functions.h"

PDN_AT_LOAD void *(*pdn_find_driver_symbol)(const char *name);
struct pdn_driver_functions pdn_driver;
PDN_AT_LOAD bool pdn_driver_forgotten;

void *pdn_driver_look_up(void **slot, const char *name)
{
	int saved = errno;
	void *found = pdn_find_driver_symbol ? pdn_find_driver_symbol(name) : NULL;

	/* Every driver has cuPointerGetAttribute: until that is found, no driver is loaded. */
	if (!found && REAL(cuPointerGetAttribute))
		found = PDN_ABSENT;
	__atomic_store_n(slot, found, __ATOMIC_RELAXED);
	errno = saved;
	return found;
}

void *pdn_driver_find_rarely(void **slot, const char *name)
{
	return pdn_driver_find(slot, name);
}

/*
 * The pointers stay, since another thread may be about to call through one. Relaxed: pairs with
 * pdn_driver_find(); it matters only to later calls.
 */
void pdn_driver_forget(void)
{
	__atomic_store_n(&pdn_driver_forgotten, true, __ATOMIC_RELAXED);
}
