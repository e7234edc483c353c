/* SPDX-License-Identifier: MIT */
/* Keeps a thread from being cancelled inside pindown. */
#include "cache/base/thread/cancel.h"

#include <pthread.h>

int pdn_cancel_off(void)
{
	int before = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

void pdn_cancel_as_before(const int *before)
{
	pthread_setcancelstate(*before, NULL);
}

int pdn_cancel_later(void)
{
	int before = PTHREAD_CANCEL_DEFERRED;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before);
	return before;
}

void pdn_cancel_type_as_before(const int *before)
{
	if (__builtin_expect(*before != PTHREAD_CANCEL_DEFERRED, 0))
		pthread_setcanceltype(*before, NULL);
}
