// SPDX-License-Identifier: MIT
/* pindown doctor --try: what all attempts do, with cards and with storage. */
#include <errno.h>
#include <time.h>

#include "tools/doctor/try.h"

bool attempt_failed(struct attempt *attempt, enum source source, int error)
{
	attempt->source = source;
	attempt->error = error ? error : EIO;
	attempt->ended = true;
	return false;
}

uint64_t attempt_now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void attempt_pattern(uint8_t *bytes, size_t length, uint32_t seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(seed + i * 7 + (i >> 8) * 3 + (i >> 16));
}
