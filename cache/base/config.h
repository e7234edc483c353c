/* SPDX-License-Identifier: MIT */
/*
 * The configuration, from the environment. The table of variables is config.def.
 *
 * A bad value never stops a program: its default is taken and a line says so, at the first use of
 * the driver (a program that never touches CUDA prints nothing). `pindown run` checks before it
 * starts the program and refuses.
 */
#ifndef PD_CONFIG_H
#define PD_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pd_backend_choice {
	PD_BACKEND_AUTO,
	PD_BACKEND_KMOD,
	PD_BACKEND_KMOD_PERSISTENT,
	PD_BACKEND_DMABUF,
	PD_BACKEND_NONE
};
enum pd_verify { PD_VERIFY_AUTO, PD_VERIFY_ALWAYS, PD_VERIFY_NEVER };
enum pd_held { PD_HELD_KEEP, PD_HELD_WARN, PD_HELD_REVOKE };
enum pd_log_level { PD_LOG_QUIET, PD_LOG_ERROR, PD_LOG_WARN, PD_LOG_INFO, PD_LOG_DEBUG };
enum pd_verbs { PD_VERBS_OFF, PD_VERBS_ON, PD_VERBS_EXACT };
enum pd_deepbind { PD_DEEPBIND_CLEAR, PD_DEEPBIND_KEEP };

struct pd_config {
	bool enabled;
	enum pd_backend_choice backend;
	uint64_t max_bytes;   /* 0: pindown sets no limit */
	uint64_t max_regions; /* 0: chosen by the cache */
	enum pd_verify verify;
	enum pd_held held;
	const char *trace;     /* NULL: off; else an absolute path, in trace_path */
	uint32_t trace_events; /* bits 1 << enum pd_event */
	uint64_t trace_stacks; /* return addresses at most; 0: none */
	enum pd_log_level log;
	enum pd_deepbind deepbind;
	enum pd_verbs verbs;
	bool debug; /* report wrong calls of the API */
	bool top;   /* publish the counters for `pindown top` */
	char trace_path[PATH_MAX];
};

extern __attribute__((visibility("hidden"))) const struct pd_config *pd_config_known;
const struct pd_config *pd_config_read(void);

/*
 * This process's configuration, read from its environment at the first call and never again. A
 * set-user-ID (secure-execution) process ignores its environment. Keeps errno, allocates nothing.
 */
static inline const struct pd_config *pd_config(void)
{
	/* Acquire: pairs with pd_config_read(). */
	const struct pd_config *config = __atomic_load_n(&pd_config_known, __ATOMIC_ACQUIRE);

	return __builtin_expect(config != NULL, 1) ? config : pd_config_read();
}

/* Print on standard error, once, what was wrong with the environment. For the first driver use. */
void pd_config_complain(void);

/* ---- for the command and the tests ------------------------------------------------------- */

/*
 * What was wrong, as lines without "pindown: ", each ended by a newline; behind a tab how it is
 * treated by a process that continues all the same.
 */
struct pd_problems {
	unsigned count;
	size_t used;
	char text[4096];
};

/* Fill *config from `environment` (NULL: all defaults) and note every problem. */
void pd_config_parse(struct pd_config *config, struct pd_problems *problems,
		     char *const *environment);

struct pd_variable {
	const char *name, *option, *argument, *standard, *help;
	int kind;
	const char *const *choices;
	size_t offset;
};
extern const struct pd_variable pd_variables[];
extern const unsigned pd_variable_count;

/* "one of auto, dmabuf, none" and so on, into `text`; returns text. */
const char *pd_variable_accepts(const struct pd_variable *variable, char *text, size_t room);

#endif
