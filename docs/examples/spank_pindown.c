/* SPDX-License-Identifier: MIT */
/*
 * A plug-in for Slurm (SPANK): `srun --pindown ./app` preloads libpindown.so into the job's tasks,
 * and `srun --pindown=TRACE ./app` also writes a trace of each.
 *
 *	gcc -shared -fPIC -o spank_pindown.so spank_pindown.c       needs slurm/spank.h
 *
 * In plugstack.conf, on the hosts that submit and on the nodes; PLUGINS is Slurm's PluginDir:
 *
 *	optional PLUGINS/spank_pindown.so library=/usr/local/lib/libpindown.so [default=on]
 *
 * With default=on all steps are preloaded. `--pindown=off` takes the library out of LD_PRELOAD.
 * Only the tasks of steps are preloaded: not srun, slurmstepd, a batch script or the shell of
 * salloc. What LD_PRELOAD has already comes first and stays.
 */
#include <limits.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(pindown, 1)

static const char *library = "/usr/local/lib/libpindown.so";
static bool wanted, unwanted; /* neither: the environment decides */
static char trace[PATH_MAX];

/* Called in srun, and again in slurmstepd (remote) with what srun was given. */
static int take_option(int value, const char *argument, int remote)
{
	(void)value, (void)remote;
	/* So Slurm 22.05 hands an option without an argument from a batch job to its steps. */
	if (argument && strcmp(argument, "(null)") == 0)
		argument = NULL;
	unwanted = argument && strcmp(argument, "off") == 0;
	wanted = !unwanted;
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
			wanted = true;
		else
			slurm_error("pindown: %s: must be library=FILE or default=on",
				    arguments[i]);
	return spank_option_register(spank, &option);
}

/* LD_PRELOAD with the library behind what is there, or without the library. */
static int set_preload(spank_t spank)
{
	char before[PATH_MAX] = "", after[3 * PATH_MAX] = "";
	size_t length = 0;
	bool found = false;
	char *one, *rest;

	if (spank_getenv(spank, "LD_PRELOAD", before, sizeof(before)) == ESPANK_NOSPACE)
		return ESPANK_NOSPACE;
	/* The loader separates names by these two characters. */
	for (one = strtok_r(before, ": ", &rest); one; one = strtok_r(NULL, ": ", &rest)) {
		if (strcmp(one, library) == 0) {
			found = true;
			if (unwanted)
				continue;
		}
		length += sprintf(after + length, "%s%s", length ? ":" : "", one);
	}
	if (found == wanted)
		return ESPANK_SUCCESS;
	if (wanted)
		snprintf(after + length, sizeof(after) - length, "%s%s", length ? ":" : "",
			 library);
	return after[0] ? spank_setenv(spank, "LD_PRELOAD", after, 1)
			: spank_unsetenv(spank, "LD_PRELOAD");
}

/*
 * Batch scripts and shells start srun, and much else that is no task: their environment would be
 * its own, too.
 */
static bool is_step(spank_t spank)
{
	uint32_t step;

	return spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	       (step != SLURM_BATCH_SCRIPT && step != SLURM_INTERACTIVE_STEP);
}

/* In slurmstepd, as the user, just before the task is executed. A job is never failed by us. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	(void)count, (void)arguments;
	if ((!wanted && !unwanted) || !is_step(spank))
		return ESPANK_SUCCESS;
	if (set_preload(spank) != ESPANK_SUCCESS) {
		slurm_error("pindown: LD_PRELOAD can't be set: the task runs as it would without "
			    "this plug-in");
		return ESPANK_SUCCESS;
	}
	if (!trace[0])
		return ESPANK_SUCCESS;
	if (spank_setenv(spank, "PINDOWN_TRACE", trace, 1) != ESPANK_SUCCESS)
		slurm_error("pindown: PINDOWN_TRACE can't be set: there is no trace");
	/* A number of the job's own stays. */
	spank_setenv(spank, "PINDOWN_TRACE_STACKS", "16", 0);
	return ESPANK_SUCCESS;
}
