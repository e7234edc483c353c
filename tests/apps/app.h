/* SPDX-License-Identifier: MIT */
/*
 * Declarations for all programs here. None of them knows of pindown: they call the CUDA driver and
 * print its results, so that two runs, with and without a preload, can be compared line by line.
 * Each call that begins or ends memory is also noted in the file that APP_CALLS names, so that a
 * trace can be compared with the program's calls.
 *
 * The same sources are compiled in two ways: with APP_TABLE every driver function is called through
 * a table that one of the roads in road.c has filled; without, by its name.
 */
#ifndef APP_H
#define APP_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hook/cuda/abi.h"

#ifdef APP_TABLE
struct app_calls {
#define CALL(symbol, name, version, stream) __typeof__(&symbol) symbol;
#include "calls.def"
#undef CALL
};
extern struct app_calls app_calls;
#define CU(fn)	    (*app_calls.fn)
#define APP_HAS(fn) (app_calls.fn != NULL)
#else
#define CU(fn)	    fn
#define APP_HAS(fn) true
#endif

/* The driver has no such function: printed like a result. */
#define APP_NOT_THERE ((CUresult)-1)

/*
 * WATCHED calls a function that begins or ends memory at `addr` (evaluated after the call; 0: no
 * address), prints and notes the result, and yields it. PLAIN calls any other function.
 */
#define WATCHED(addr, fn, ...)                                                        \
	({                                                                            \
		app_before();                                                         \
		CUresult result_ = APP_HAS(fn) ? CU(fn)(__VA_ARGS__) : APP_NOT_THERE; \
		int errno_ = errno;                                                   \
		app_after(#fn, result_, errno_, (uint64_t)(addr), true);              \
		result_;                                                              \
	})
#define PLAIN(fn, ...)                                                                \
	({                                                                            \
		app_before();                                                         \
		CUresult result_ = APP_HAS(fn) ? CU(fn)(__VA_ARGS__) : APP_NOT_THERE; \
		int errno_ = errno;                                                   \
		app_after(#fn, result_, errno_, 0, false);                            \
		result_;                                                              \
	})

void app_before(void);
void app_after(const char *fn, CUresult result, int error, uint64_t addr, bool watched);

/* Prints with a single write, so that processes that share the output don't mix lines. */
void app_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A letter for each address, in the order of their first use: it shows reuse. */
const char *app_label(uint64_t addr);

/* Threads work at once and in no fixed order: they note their calls but print nothing. */
extern __thread bool app_quiet;

/* Device 0 with its primary context current, as every program begins and ends. */
CUdevice app_begin(void);
void app_end(CUdevice device);

/*
 * Writes a pattern made from seed and reads it back: returns "as written", or the first difference.
 */
const char *app_write_and_read(CUdeviceptr at, size_t size, unsigned seed);

/* Starts this program again, on its road, as `group argument`; returns its pid. */
pid_t app_spawn(const char *group, const char *argument);

/* Waits for a child and prints how it ended. */
void app_wait(pid_t child);

#ifdef APP_TABLE
/* Fills the table by the road of that name; prints a line and returns false when it can't. */
bool app_take_road(const char *road);
#endif

/* The road this program was started with ("linked" when it is none of road.c's). */
extern const char *app_road;

/* The whole program, or a plugin's only entry: argv[at] names the road, argv[at + 1] the group. */
int app_main(int argc, char **argv, int at);

/*
 * Called in each of the handlers that main.c registers with pthread_atfork() before any library is
 * initialized, when it is not NULL. A plugin has none of these.
 */
extern void (*app_at_fork)(const char *when);

/* One function for each group of calls, see groups.def. */
#define GROUP(name) int app_##name(int argc, char **argv);
#include "groups.def"
#undef GROUP

#endif
