/* SPDX-License-Identifier: MIT */
/*
 * One line on standard error: "pindown: ...". A line is one write(2), so that lines of several
 * processes don't mix. Nothing here allocates, changes errno, is a cancellation point, or can kill
 * the program (a closed pipe on standard error raises no SIGPIPE), or stop it.
 */
#ifndef PDN_LOG_H
#define PDN_LOG_H

#include <signal.h>
#include <stdbool.h>

#include "cache/base/environment/config.h"

/* printf's format, without the final newline; cut at 1000 bytes. */
void pdn_log(enum pdn_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Notes what standard error is. A file of the program's own that gets its number has no lines. */
void pdn_log_at_load(void);

/* Whether a line of this level is printed. */
bool pdn_logging(enum pdn_log_level level);

/*
 * For "pindown switches X off, because ...": only the first call with this flag prints. Relaxed: it
 * only decides which is the first.
 */
#define pdn_log_once(flag, level, ...)                                    \
	do {                                                              \
		if (!__atomic_exchange_n((flag), true, __ATOMIC_RELAXED)) \
			pdn_log((level), __VA_ARGS__);                    \
	} while (0)

/* The words for an errno that can happen to a trace; glibc before 2.32 has none without locale. */
const char *pdn_error_text(int error);

/*
 * Between these two calls, signals that a system call of ours raises in this thread do not reach
 * the program: SIGPIPE, SIGXFSZ and SIGTTOU. Nothing may return to the program before the second
 * call.
 */
struct pdn_shield {
	sigset_t mask, pending;
	int cancel;
	int error;
};
void pdn_shield_up(struct pdn_shield *shield);
void pdn_shield_down(struct pdn_shield *shield);

/* Of this thread, which has blocked the signal: is one there, and away with it. */
bool pdn_signal_is_pending(int signal);
void pdn_signal_consume(int signal);

#endif
