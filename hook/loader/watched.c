/* SPDX-License-Identifier: MIT */
/* The real functions behind the wrappers, and the wrapper for a function that a look-up found. */
#include <stdbool.h>
#include <stddef.h>

#include "hook/loader/watched.h"

void *pdn_watched_real(const struct pdn_watched *watched)
{
	void *real = __atomic_load_n(watched->linked_real, __ATOMIC_RELAXED);

	if (real)
		return real;
	real = watched->next(watched->symbol);
	if (real)
		__atomic_store_n(watched->linked_real, real, __ATOMIC_RELAXED);
	return real;
}

void *pdn_watched_wrapper(const struct pdn_watched *watched, void *found)
{
	void *known = NULL;

	if (found == watched->linked || found == watched->looked_up)
		return found;
	if (found == pdn_watched_real(watched))
		return watched->linked;
	/*
	 * Release pairs with no acquire: the wrapper loads the slot relaxed, and its caller got the
	 * wrapper's address from here, after this store.
	 */
	if (__atomic_compare_exchange_n(watched->looked_up_real, &known, found, false,
					__ATOMIC_RELEASE, __ATOMIC_RELAXED) ||
	    known == found)
		return watched->looked_up;
	return NULL;
}
