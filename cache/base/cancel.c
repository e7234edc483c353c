/* SPDX-License-Identifier: MIT */
/* Keeps a thread from being cancelled inside pindown. */
#include "cache/base/cancel.h"

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
