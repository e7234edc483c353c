/* SPDX-License-Identifier: MIT */
/*
 * The environment, as it was when the library was loaded. Later, another thread may be in setenv()
 * at any moment, and a walk over `environ` then reads freed memory, whatever lock it takes. So what
 * may be needed later is copied at load. A child that is forked has the copy, too.
 */
#ifndef PDN_ENVIRONMENT_H
#define PDN_ENVIRONMENT_H

#include <stddef.h>
#include <string.h>

/* Behind pdn_config_at_load(): a process that is to write a trace keeps all variables. */
void pdn_environment_at_load(void);

/* The value of a variable whose name has that length; NULL: it is not set, or is not kept. */
const char *pdn_variable_of(const char *name, size_t length);

static inline const char *pdn_variable(const char *name)
{
	return pdn_variable_of(name, strlen(name));
}

/* The NAME=value behind this one, the first one behind NULL; NULL: there is none. */
const char *pdn_next_assignment(const char *assignment);

#endif
