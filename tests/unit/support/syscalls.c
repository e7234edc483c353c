/* SPDX-License-Identifier: MIT */
/* Linked with --wrap=pdn_system_call. */
#include "tests/unit/support/syscalls.h"

long __wrap_pdn_system_call(long number, long a, long b, long c, long d, long e, long f);

long __wrap_pdn_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	const long args[6] = {a, b, c, d, e, f};
	long result;

	if (play_syscall(number, args, &result))
		return result;
	return __real_pdn_system_call(number, a, b, c, d, e, f);
}
