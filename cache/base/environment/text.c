/* SPDX-License-Identifier: MIT */
/*
 * Functions of the C library in a few instructions each, for this library alone. Every process of a
 * job loads it, and the loader would look each of them up there, for a thousand instructions and
 * eighty bytes apiece. No interposer in the process sees these calls, or changes what they do. Unit
 * tests are linked with them, too, so each does what the standard says of valid arguments.
 *
 * Compiled without the compiler's own ideas of these functions, and without link-time optimization:
 * see cache/build.mk.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/process/system.h"
#include "cache/base/visible.h"

/* ---- text ---------------------------------------------------------------------------------- */

PDN_HIDDEN size_t strnlen(const char *text, size_t most)
{
	size_t length = 0;

	while (length < most && text[length])
		length++;
	return length;
}

PDN_HIDDEN size_t strlen(const char *text)
{
	return strnlen(text, SIZE_MAX);
}

PDN_HIDDEN PDN_STARTS int strncmp(const char *a, const char *b, size_t most)
{
	for (size_t i = 0; i < most; i++)
		if (a[i] != b[i] || !a[i])
			return (unsigned char)a[i] - (unsigned char)b[i];
	return 0;
}

PDN_HIDDEN int strcmp(const char *a, const char *b)
{
	return strncmp(a, b, SIZE_MAX);
}

PDN_HIDDEN char *strncpy(char *restrict to, const char *restrict from, size_t size)
{
	size_t length = strnlen(from, size);

	memmove(to, from, length);
	while (length < size)
		to[length++] = 0;
	return to;
}

PDN_HIDDEN char *strcpy(char *restrict to, const char *restrict from)
{
	return memmove(to, from, strlen(from) + 1);
}

PDN_HIDDEN char *strncat(char *restrict to, const char *restrict from, size_t most)
{
	size_t length = strnlen(from, most);
	char *end = to + strlen(to);

	memmove(end, from, length);
	end[length] = 0;
	return to;
}

PDN_HIDDEN void *memchr(const void *from, int c, size_t size)
{
	const unsigned char *at = from;

	for (; size; at++, size--)
		if (*at == (unsigned char)c)
			return (void *)at;
	return NULL;
}

/* Also of the terminating zero. */
PDN_HIDDEN char *strchr(const char *text, int c)
{
	return memchr(text, c, strlen(text) + 1);
}

PDN_HIDDEN char *strrchr(const char *text, int c)
{
	for (size_t i = strlen(text) + 1; i > 0; i--)
		if (text[i - 1] == (char)c)
			return (char *)text + i - 1;
	return NULL;
}

PDN_HIDDEN size_t strspn(const char *text, const char *accept)
{
	size_t length = 0;

	while (text[length] && strchr(accept, text[length]))
		length++;
	return length;
}

PDN_HIDDEN size_t strcspn(const char *text, const char *reject)
{
	size_t length = 0;

	while (!strchr(reject, text[length])) /* its terminating zero is found in any case */
		length++;
	return length;
}

PDN_HIDDEN void *memmem(const void *from, size_t size, const void *what, size_t length)
{
	const char *at = from;

	for (; size >= length; at++, size--)
		if (memcmp(at, what, length) == 0)
			return (void *)at;
	return NULL;
}

PDN_HIDDEN char *strstr(const char *text, const char *what)
{
	return memmem(text, strlen(text), what, strlen(what));
}

PDN_HIDDEN int snprintf(char *restrict to, size_t size, const char *restrict format, ...)
{
	va_list values;
	int length;

	va_start(values, format);
	length = vsnprintf(to, size, format, values);
	va_end(values);
	return length;
}

PDN_HIDDEN int sprintf(char *restrict to, const char *restrict format, ...)
{
	va_list values;
	int length;

	va_start(values, format);
	length = vsnprintf(to, INT_MAX, format, values);
	va_end(values);
	return length;
}

/* ---- sets of signals ----------------------------------------------------------------------- */

#define BITS (8 * sizeof(unsigned long))

static unsigned long *word_of(const sigset_t *set, int signal)
{
	return (unsigned long *)set + (unsigned)(signal - 1) / BITS;
}

static unsigned long bit_of(int signal)
{
	return 1ul << (unsigned)(signal - 1) % BITS;
}

PDN_HIDDEN int sigemptyset(sigset_t *set)
{
	*set = (sigset_t){0};
	return 0;
}

PDN_HIDDEN int sigaddset(sigset_t *set, int signal)
{
	*word_of(set, signal) |= bit_of(signal);
	return 0;
}

PDN_HIDDEN int sigdelset(sigset_t *set, int signal)
{
	*word_of(set, signal) &= ~bit_of(signal);
	return 0;
}

PDN_HIDDEN int sigismember(const sigset_t *set, int signal)
{
	return (*word_of(set, signal) & bit_of(signal)) != 0;
}

/* Not the two that the C library itself uses, for cancellation and setuid(). */
PDN_HIDDEN int sigfillset(sigset_t *set)
{
	for (int signal = 1; signal <= (int)(8 * sizeof(*set)); signal++)
		sigaddset(set, signal);
	sigdelset(set, 32);
	sigdelset(set, 33);
	return 0;
}

/* In glibc before 2.32 it is in another library. */
PDN_HIDDEN int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
	return -(int)pdn_sys(SYS_rt_sigprocmask, how, set, before, sizeof(uint64_t));
}

/* ---- questions to the system ---------------------------------------------------------------- */

PDN_HIDDEN PDN_STARTS pid_t getpid(void)
{
	return (pid_t)pdn_sys(SYS_getpid);
}

PDN_HIDDEN pid_t getppid(void)
{
	return (pid_t)pdn_sys(SYS_getppid);
}

PDN_HIDDEN uid_t geteuid(void)
{
	return (uid_t)pdn_sys(SYS_geteuid);
}

PDN_HIDDEN int uname(struct utsname *name)
{
	return pdn_sys(SYS_uname, name) == 0 ? 0 : -1;
}

PDN_HIDDEN time_t time(time_t *where)
{
	time_t now = (time_t)(pdn_sys_clock(CLOCK_REALTIME) / 1000000000u);

	if (where)
		*where = now;
	return now;
}
