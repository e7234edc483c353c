/* SPDX-License-Identifier: MIT */
/* Linked with --wrap=syscall. */
#include "tests/unit/support/syscalls.h"

#include <stdarg.h>

long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	va_list args;
	long a[6], result;

	va_start(args, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (play_syscall(number, a, &result))
		return result;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
