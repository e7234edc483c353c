/* SPDX-License-Identifier: MIT */
/*
 * The library's own small functions of the C library do what the C library's do. The source is
 * included under other names, so that both can be called.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/support/suite.h"

#define strnlen	    own_strnlen
#define strlen	    own_strlen
#define strncmp	    own_strncmp
#define strcmp	    own_strcmp
#define strncpy	    own_strncpy
#define strcpy	    own_strcpy
#define strncat	    own_strncat
#define memchr	    own_memchr
#define strchr	    own_strchr
#define strrchr	    own_strrchr
#define strspn	    own_strspn
#define strcspn	    own_strcspn
#define memmem	    own_memmem
#define strstr	    own_strstr
#define snprintf    own_snprintf
#define sprintf	    own_sprintf
#define sigemptyset own_sigemptyset
#define sigaddset   own_sigaddset
#define sigdelset   own_sigdelset
#define sigismember own_sigismember
#define sigfillset  own_sigfillset
#define getpid	    own_getpid
#define getppid	    own_getppid
#define geteuid	    own_geteuid
#define uname	    own_uname
#define time	    own_time
#include "cache/base/environment/text.c"
#undef strnlen
#undef strlen
#undef strncmp
#undef strcmp
#undef strncpy
#undef strcpy
#undef strncat
#undef memchr
#undef strchr
#undef strrchr
#undef strspn
#undef strcspn
#undef memmem
#undef strstr
#undef snprintf
#undef sprintf
#undef sigemptyset
#undef sigaddset
#undef sigdelset
#undef sigismember
#undef sigfillset
#undef getpid
#undef getppid
#undef geteuid
#undef uname
#undef time

/* Each pair of these is an input. They lie in buffers of their own, with other bytes behind. */
static const char *const texts[] = {"",	       "a",	 "b",		"ab",	   "aba",
				    "abc",     "abab",	 "\xff",	"\x80z",   "zzzz",
				    "aab",     "/usr/x", "aaab\n",	"PINDOWN", "PINDOWN_",
				    "aaaaaab", "ba:;b",	 "\x01\xfe\x7f"};
#define TEXTS (sizeof(texts) / sizeof(*texts))
#define ROOM  64

struct buffer {
	char at[ROOM];
};

static struct buffer holding(const char *text)
{
	struct buffer buffer;

	memset(buffer.at, '#', sizeof(buffer.at));
	memcpy(buffer.at, text, strlen(text) + 1);
	return buffer;
}

static int sign(int of)
{
	return (of > 0) - (of < 0);
}

static void of_one(const char *text)
{
	struct buffer a = holding(text);

	ck_assert_uint_eq(own_strlen(a.at), strlen(a.at));
	for (size_t most = 0; most < 12; most++)
		ck_assert_uint_eq(own_strnlen(a.at, most), strnlen(a.at, most));
	for (int c = 0; c < 256; c++) {
		ck_assert_ptr_eq(own_strchr(a.at, c), strchr(a.at, c));
		ck_assert_ptr_eq(own_strrchr(a.at, c), strrchr(a.at, c));
		ck_assert_ptr_eq(own_strrchr(a.at, (char)c), strrchr(a.at, (char)c));
		for (size_t size = 0; size < 12; size++)
			ck_assert_ptr_eq(own_memchr(a.at, c, size), memchr(a.at, c, size));
	}
}

static void of_two(const char *one, const char *other)
{
	struct buffer a = holding(one), b = holding(other), to, should;

	ck_assert_int_eq(sign(own_strcmp(a.at, b.at)), sign(strcmp(a.at, b.at)));
	ck_assert_uint_eq(own_strspn(a.at, b.at), strspn(a.at, b.at));
	ck_assert_uint_eq(own_strcspn(a.at, b.at), strcspn(a.at, b.at));
	ck_assert_ptr_eq(own_strstr(a.at, b.at), strstr(a.at, b.at));
	ck_assert_ptr_eq(own_memmem(a.at, strlen(one), b.at, strlen(other)),
			 memmem(a.at, strlen(one), b.at, strlen(other)));
	for (size_t most = 0; most < 12; most++) {
		ck_assert_int_eq(sign(own_strncmp(a.at, b.at, most)),
				 sign(strncmp(a.at, b.at, most)));
		to = should = a;
		ck_assert_ptr_eq(own_strncpy(to.at, b.at, most), to.at);
		strncpy(should.at, b.at, most);
		ck_assert_mem_eq(to.at, should.at, ROOM);
		to = should = a;
		ck_assert_ptr_eq(own_strncat(to.at, b.at, most), to.at);
		strncat(should.at, b.at, most);
		ck_assert_mem_eq(to.at, should.at, ROOM);
	}
	to = should = a;
	ck_assert_ptr_eq(own_strcpy(to.at, b.at), to.at);
	strcpy(should.at, b.at);
	ck_assert_mem_eq(to.at, should.at, ROOM);
}

START_TEST(as_in_the_c_library)
{
	of_one(texts[_i]);
	for (unsigned i = 0; i < TEXTS; i++)
		of_two(texts[_i], texts[i]);
}
END_TEST

START_TEST(numbers_are_written)
{
	char to[ROOM];

	memset(to, '#', sizeof(to));
	ck_assert_int_eq(own_snprintf(to, 5, "%d-%s", 123, "abc"), 7);
	ck_assert_mem_eq(to, "123-\0#", 6);
	ck_assert_int_eq(own_sprintf(to, "%s:%u", "abcdefghij", 4000000000u), 21);
	ck_assert_str_eq(to, "abcdefghij:4000000000");
}
END_TEST

/* The kernel's view of a set is its first eight bytes. */
START_TEST(signals)
{
	sigset_t own, libcs;
	const int last = SIGRTMAX;

	own_sigemptyset(&own);
	for (size_t i = 0; i < sizeof(own); i++)
		ck_assert_uint_eq(((const unsigned char *)&own)[i], 0);
	sigemptyset(&libcs);
	for (int signal = 1; signal <= last; signal += signal == 31 ? SIGRTMIN - 31 : 1) {
		ck_assert_int_eq(own_sigaddset(&own, signal), 0);
		sigaddset(&libcs, signal);
		ck_assert_mem_eq(&own, &libcs, 8);
		for (int other = 1; other <= last; other++)
			ck_assert_int_eq(own_sigismember(&own, other), sigismember(&libcs, other));
	}
	for (int signal = last; signal > 0; signal -= signal == SIGRTMIN ? SIGRTMIN - 31 : 3) {
		ck_assert_int_eq(own_sigdelset(&own, signal), 0);
		sigdelset(&libcs, signal);
		ck_assert_mem_eq(&own, &libcs, 8);
	}
}
END_TEST

/* All but those two that the C library keeps for itself: a thread that blocks these stops all. */
START_TEST(all_signals)
{
	sigset_t own, libcs;

	memset(&own, 0x55, sizeof(own));
	ck_assert_int_eq(own_sigfillset(&own), 0);
	sigfillset(&libcs);
	ck_assert_mem_eq(&own, &libcs, 8);
	ck_assert_int_eq(own_sigismember(&own, 32), 0);
	ck_assert_int_eq(own_sigismember(&own, 33), 0);
	ck_assert_int_eq(own_sigismember(&own, 31), 1);
	ck_assert_int_eq(own_sigismember(&own, 34), 1);
	ck_assert_int_eq(own_sigismember(&own, 64), 1);
}
END_TEST

START_TEST(questions)
{
	struct utsname own, libcs;
	time_t before = time(NULL), now, stored = -1;

	ck_assert_int_eq(own_getpid(), getpid());
	ck_assert_int_eq(own_getppid(), getppid());
	ck_assert_int_eq((int)own_geteuid(), (int)geteuid());
	memset(&own, 0, sizeof(own));
	memset(&libcs, 0, sizeof(libcs));
	ck_assert_int_eq(own_uname(&own), 0);
	uname(&libcs);
	ck_assert_str_eq(own.release, libcs.release);
	ck_assert_str_eq(own.machine, libcs.machine);
	errno = 0;
	ck_assert_int_eq(own_uname(NULL), -1);
	ck_assert_int_eq(errno, 0);
	now = own_time(&stored);
	ck_assert_int_eq(now, stored);
	ck_assert_int_ge(now, before - 1); /* the two clocks may be of different ticks */
	ck_assert_int_le(own_time(NULL), time(NULL) + 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("functions of the C library");
	TCase *tc = suite_case(suite, "each", NULL, NULL);

	tcase_add_loop_test(tc, as_in_the_c_library, 0, TEXTS);
	tcase_add_test(tc, numbers_are_written);
	tcase_add_test(tc, signals);
	tcase_add_test(tc, all_signals);
	tcase_add_test(tc, questions);
	return run_suite(suite);
}
