/* SPDX-License-Identifier: MIT */
/* Linked with --wrap=pdn_system_call, and with --wrap=syscall for cache/base/lock.c. */
#include "tests/unit/support/syscalls.h"

#include <errno.h>
#include <stdarg.h>

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_pdn_system_call(long number, long a, long b, long c, long d, long e, long f);

long __wrap_pdn_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	const long args[6] = {a, b, c, d, e, f};
	long result;

	if (play_syscall(number, args, &result))
		return result;
	return __real_pdn_system_call(number, a, b, c, d, e, f);
}

long __wrap_syscall(long number, ...)
{
	va_list arguments;
	long args[6], result;

	va_start(arguments, number);
	for (unsigned i = 0; i < 6; i++)
		args[i] = va_arg(arguments, long);
	va_end(arguments);
	if (!play_syscall(number, args, &result))
		return __real_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}
