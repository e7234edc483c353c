/* SPDX-License-Identifier: MIT */
/*
 * Prints a line with a single write, so that processes that share the output don't mix lines. For
 * the programs here, and for the preloaded libraries beside them, which have no object in common.
 */
#ifndef SAY_H
#define SAY_H

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static inline void say_list(const char *format, va_list arguments)
{
	char line[512];
	int length = vsnprintf(line, sizeof(line) - 1, format, arguments);

	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)length) != length)
		_exit(121);
}

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say_list(format, arguments);
	va_end(arguments);
}

#endif
