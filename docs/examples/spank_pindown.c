/* SPDX-License-Identifier: MIT */
/*
 * A plug-in for Slurm (SPANK): `srun --pindown ./app` preloads libpindown.so into the job's tasks,
 * and `srun --pindown=TRACE ./app` also writes a trace of each.
 *
 *	gcc -shared -fPIC -o spank_pindown.so spank_pindown.c       needs slurm/spank.h
 *
 * In plugstack.conf, on the hosts that submit and on the compute nodes:
 *
 *	optional /usr/lib/slurm/spank_pindown.so library=/usr/lib/libpindown.so [default=on]
 *
 * With default=on all tasks are preloaded, and `--pindown=off` leaves a job alone. Only the task is
 * preloaded, not srun or slurmstepd. A value of LD_PRELOAD that the job has comes first and stays.
 */
#include <limits.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(pindown, 1)

static const char *library = "/usr/lib/libpindown.so";
static int wanted;
static char trace[PATH_MAX];

/* Called in srun, and again in slurmstepd (remote) with what srun was given. */
static int take_option(int value, const char *argument, int remote)
{
	(void)value, (void)remote;
	wanted = !argument || strcmp(argument, "off") != 0;
	trace[0] = '\0';
	if (!argument || !wanted || strcmp(argument, "on") == 0)
		return ESPANK_SUCCESS;
	if (strlen(argument) >= sizeof(trace)) {
		slurm_error("pindown: the name of the trace is too long");
		return ESPANK_BAD_ARG;
	}
	strcpy(trace, argument);
	return ESPANK_SUCCESS;
}

static struct spank_option option = {
	.name = "pindown",
	.arginfo = "TRACE|on|off",
	.usage = "preload libpindown.so; write a trace to TRACE (%q{SLURM_PROCID}, %h, %p)",
	.has_arg = 2,
	.cb = take_option,
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	for (int i = 0; i < count; i++)
		if (strncmp(arguments[i], "library=", 8) == 0)
			library = arguments[i] + 8;
		else if (strcmp(arguments[i], "default=on") == 0)
			wanted = 1;
		else
			slurm_error("pindown: %s: must be library=FILE or default=on",
				    arguments[i]);
	return spank_option_register(spank, &option);
}

/* LD_PRELOAD with the library behind what is there. */
static int add_preload(spank_t spank)
{
	char before[PATH_MAX] = "", all[2 * PATH_MAX];

	if (spank_getenv(spank, "LD_PRELOAD", before, sizeof(before)) == ESPANK_NOSPACE)
		return ESPANK_NOSPACE;
	if (strstr(before, library))
		return ESPANK_SUCCESS;
	snprintf(all, sizeof(all), "%s%s%s", before, before[0] ? ":" : "", library);
	return spank_setenv(spank, "LD_PRELOAD", all, 1);
}

/* In slurmstepd, as the user, just before the task is executed. A job is never failed by us. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	(void)count, (void)arguments;
	if (!wanted)
		return ESPANK_SUCCESS;
	if (add_preload(spank) != ESPANK_SUCCESS) {
		slurm_error("pindown: LD_PRELOAD can't be set: the task runs without pindown");
		return ESPANK_SUCCESS;
	}
	if (trace[0] && (spank_setenv(spank, "PINDOWN_TRACE", trace, 0) != ESPANK_SUCCESS ||
			 spank_setenv(spank, "PINDOWN_TRACE_STACKS", "16", 0) != ESPANK_SUCCESS))
		slurm_error("pindown: the job has PINDOWN_TRACE or its stacks already: they stay");
	return ESPANK_SUCCESS;
}
