/* SPDX-License-Identifier: MIT */
/*
 * The configuration, from the environment. The table of variables is config.def.
 *
 * A bad value never stops a program: its default is taken and a line says so, at the first use of
 * the driver (a program that never touches CUDA prints nothing). `pindown run` checks values before
 * it starts the program and refuses. Unknown names, which other software may have set, are one
 * line, and stop nothing.
 */
#ifndef PDN_CONFIG_H
#define PDN_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum pdn_backend_choice {
	PDN_BACKEND_AUTO,
	PDN_BACKEND_KMOD,
	PDN_BACKEND_KMOD_PERSISTENT,
	PDN_BACKEND_DMABUF,
	PDN_BACKEND_NONE
};
enum pdn_mapping { PDN_MAPPING_AUTO, PDN_MAPPING_DEFAULT, PDN_MAPPING_PCIE };
enum pdn_verify { PDN_VERIFY_AUTO, PDN_VERIFY_ALWAYS, PDN_VERIFY_NEVER };
enum pdn_held { PDN_HELD_KEEP, PDN_HELD_WARN, PDN_HELD_REVOKE, PDN_HELD_RETIRE };
enum pdn_log_level { PDN_LOG_QUIET, PDN_LOG_ERROR, PDN_LOG_WARN, PDN_LOG_INFO, PDN_LOG_DEBUG };
enum pdn_verbs { PDN_VERBS_OFF, PDN_VERBS_ON, PDN_VERBS_EXACT };
enum { PDN_MOST_FRAMES = 64 }; /* of a call stack in the trace */
enum pdn_deepbind { PDN_DEEPBIND_CLEAR, PDN_DEEPBIND_KEEP };

struct pdn_config {
	bool enabled;
	enum pdn_backend_choice backend;
	enum pdn_mapping dmabuf_mapping; /* of dma-bufs that the driver exports for us */
	uint64_t max_bytes;		 /* 0: pindown sets no limit */
	uint64_t max_regions;		 /* 0: chosen by the cache */
	enum pdn_verify verify;
	enum pdn_held held;
	const char *trace;     /* NULL: off; else an absolute path, in trace_path */
	uint32_t trace_events; /* bits 1 << enum pdn_event */
	uint64_t trace_stacks; /* return addresses at most; 0: none */
	enum pdn_log_level log;
	enum pdn_deepbind deepbind;
	enum pdn_verbs verbs;
	bool rdma_capable;
	bool quiesce; /* a thread answers `pindown quiesce` */

	bool debug; /* report wrong calls of the API */
	bool top;   /* publish the counters for `pindown top` */
	char trace_path[PATH_MAX];
};

extern __attribute__((visibility("hidden"))) const struct pdn_config *pdn_config_known;
const struct pdn_config *pdn_config_read(void);

/*
 * This process's configuration, read from its environment at the first call and never again. A
 * set-user-ID (secure-execution) process ignores its environment. Keeps errno, allocates nothing.
 */
static inline const struct pdn_config *pdn_config(void)
{
	/* Acquire: pairs with pdn_config_read(). */
	const struct pdn_config *config = __atomic_load_n(&pdn_config_known, __ATOMIC_ACQUIRE);

	return __builtin_expect(config != NULL, 1) ? config : pdn_config_read();
}

/*
 * At load: is pindown switched on? A program may change its environment or its directory later, so
 * variables are read now, if there are any; else the defaults are filled in at the first use.
 */
bool pdn_config_at_load(void);

/* At load: another copy of pindown, in that file, sees each call first. This one does nothing. */
void pdn_config_leave_to(const char *file);

/* Print on standard error, once, what was wrong with the environment. For the first driver use. */
void pdn_config_complain(void);

/* ---- for the command and the tests ------------------------------------------------------- */

/*
 * What was wrong, as lines without "pindown: ", each ended by a newline; behind a tab how it is
 * treated by a process that continues all the same.
 */
struct pdn_problems {
	unsigned count;	  /* lines */
	unsigned unknown; /* names that are no variable's; they have one line, the last */
	size_t used;
	char text[4096];
};

/* Fill *config from `environment` (NULL: all defaults) and note every problem. */
void pdn_config_parse(struct pdn_config *config, struct pdn_problems *problems,
		      char *const *environment);

/* Its texts have a fixed size, since a pointer needs a relocation in each process. */
struct pdn_variable {
	char name[24], default_value[9];
	uint8_t kind;
	uint16_t offset, choices; /* see pdn_choices_of() */
};
extern const struct pdn_variable pdn_variables[];
extern const unsigned pdn_variable_count;

/* One after the other, each ended by a zero; an empty one is last. */
const char *pdn_choices_of(const struct pdn_variable *variable);

static inline const char *pdn_next_choice(const char *choice)
{
	return choice + strlen(choice) + 1;
}

/* The same rows for `pindown run` and the manual; the library does not have them (options.c). */
struct pdn_option {
	const char *option, *argument, *help;
};
extern const struct pdn_option pdn_options[];

static inline const struct pdn_option *pdn_option_of(const struct pdn_variable *variable)
{
	return &pdn_options[variable - pdn_variables];
}

/* "one of auto, dmabuf, none" and so on, into `text`; returns text. */
const char *pdn_variable_accepts(const struct pdn_variable *variable, char *text, size_t capacity);

#endif
