// SPDX-License-Identifier: MIT
/* pindown run: starts a program with libpindown.so preloaded. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/system/pci.h"
#include "tools/system/preload.h"
#include "tools/system/programs.h"
#include "tools/base/texts.h"
#include "tools/command.h"
#include "tools/run/program.h"
#include "tools/ui/pager.h"

enum { HELP = 'h', NO_STACKS = 1000 };

/* Return addresses for each event of a trace, unless the user says how many. */
#define STACKS "16"

/* ---- options, from the table of variables ---------------------------------------------------- */

static bool takes_argument(const struct pdn_variable *variable)
{
	return pdn_option_of(variable)->argument[0] != '[';
}

/* An option without an argument sets the value in brackets, one character. */
static const char *value_of(const struct pdn_variable *variable, const char *given)
{
	static char value[2];

	if (takes_argument(variable))
		return given;
	value[0] = pdn_option_of(variable)->argument[1];
	return value;
}

struct option *run_options(void)
{
	struct option *options = allocate((pdn_variable_count + 3) * sizeof(*options));

	for (unsigned i = 0; i < pdn_variable_count; i++) {
		options[i].name = pdn_options[i].option;
		options[i].has_arg =
			takes_argument(&pdn_variables[i]) ? required_argument : no_argument;
		options[i].val = (int)i + 1;
	}
	options[pdn_variable_count] = (struct option){"no-stacks", no_argument, NULL, NO_STACKS};
	options[pdn_variable_count + 1] = (struct option){"help", no_argument, NULL, HELP};
	return options;
}

/* Wraps words into lines of up to 78 columns, indented by `margin` spaces. */
static void print_wrapped(const char *text, int margin)
{
	int column = 0;

	while (*text) {
		int length = (int)strcspn(text, " ");

		if (column && column + 1 + length > 78) {
			out_print("\n");
			column = 0;
		}
		out_print("%*s%.*s", column ? 1 : margin, "", length, text);
		column += (column ? 1 : margin) + length;
		text += length;
		text += strspn(text, " ");
	}
	out_print("\n");
}

static void print_option(const struct pdn_variable *variable)
{
	const struct pdn_option *option = pdn_option_of(variable);
	char accepts[400], line[600];

	if (takes_argument(variable))
		out_print("\n  --%s %s  (%s)\n", option->option, option->argument, variable->name);
	else
		out_print("\n  --%s  (%s=%s)\n", option->option, variable->name,
			  value_of(variable, NULL));
	print_wrapped(option->help, 6);
	if (!takes_argument(variable))
		return;
	pdn_variable_accepts(variable, accepts, sizeof(accepts));
	snprintf(line, sizeof(line), "Accepted: %s.%s%s", accepts,
		 variable->default_value[0] ? " Default: " : " Default: none.",
		 variable->default_value);
	print_wrapped(line, 6);
}

static void print_help(void)
{
	out_begin(OUT_AUTO, false);
	pager_begin(true);
	out_print("usage: pindown run [options] [--] PROGRAM [ARGUMENT]...\n"
		  "\n"
		  "Starts a program with libpindown.so preloaded. It checks the configuration\n"
		  "first and starts nothing if that is invalid. Each option sets the environment\n"
		  "variable named behind it, which can also be set by hand:\n");
	for (unsigned i = 0; i < pdn_variable_count; i++)
		print_option(&pdn_variables[i]);
	out_print("\n  --no-stacks  (PINDOWN_TRACE_STACKS=0)\n"
		  "      Leave call stacks out of the trace.\n"
		  "\n  --help\n      Print this text.\n"
		  "\n"
		  "Exit status: the program's; 2 for bad options or a bad configuration; 126 when\n"
		  "the program can't be started; 127 when it is not found.\n");
	out_flush();
}

static void set(const char *name, const char *value)
{
	if (setenv(name, value, 1) != 0) {
		complain("out of memory");
		exit(STATUS_USAGE);
	}
}

/* How each variable was given on the command line, or NULL: "--log=info" or "--log info". */
static char **typed;

static void note_typed(const struct pdn_variable *variable, char **argv)
{
	char **text = &typed[variable - pdn_variables];
	bool apart = takes_argument(variable) && argv[optind - 1] == optarg;

	release(*text);
	*text = apart ? text_of("%s %s", argv[optind - 2], optarg)
		      : text_of("%s", argv[optind - 1]);
	for (char *c = *text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = '?';
}

/* Sets the variables; false when the command line is bad or only asks for help. */
static bool take_options(int argc, char **argv, int *status)
{
	struct option *options = run_options();
	int number;

	typed = allocate(pdn_variable_count * sizeof(*typed));
	*status = STATUS_USAGE;
	/* "+": stop at the first word that is no option: the program. */
	while ((number = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (number == HELP) {
			print_help();
			*status = STATUS_OK;
		}
		if (number == HELP || number == '?') {
			release(options);
			return false;
		}
		if (number == NO_STACKS) {
			set("PINDOWN_TRACE_STACKS", "0");
			continue;
		}
		note_typed(&pdn_variables[number - 1], argv);
		set(pdn_variables[number - 1].name, value_of(&pdn_variables[number - 1], optarg));
	}
	release(options);
	return true;
}

/* ---- the configuration ---------------------------------------------------------------------- */

static const struct pdn_variable *variable_named(const char *name, size_t length)
{
	for (unsigned i = 0; i < pdn_variable_count; i++)
		if (strlen(pdn_variables[i].name) == length &&
		    strncmp(pdn_variables[i].name, name, length) == 0)
			return &pdn_variables[i];
	return NULL;
}

/* As the user typed it, or NULL if the variable was set in the environment. */
static const char *typed_as(const char *name, size_t length)
{
	const struct pdn_variable *variable = variable_named(name, length);

	return variable ? typed[variable - pdn_variables] : NULL;
}

/* A line about a value names the option, if that was used, and the value as it was typed. */
static void complain_of(const char *line)
{
	size_t length = strcspn(line, "=\t\n");
	const char *option = typed_as(line, length);
	char accepts[400];

	if (option)
		complain("%s: must be %s", option,
			 pdn_variable_accepts(variable_named(line, length), accepts,
					      sizeof(accepts)));
	else
		complain("%.*s", (int)strcspn(line, "\t\n"), line);
}

/* Checks now, not after hours of running, that a trace can be written. */
static bool check_trace(const char *path)
{
	const char *slash = strrchr(path, '/'), *option = typed_as("PINDOWN_TRACE", 13);
	char *folder = slash > path ? text_of("%.*s", (int)(slash - path), path) : text_of("/");
	/* A folder that is named by %h or %q{} is known only to the process. */
	bool good = strchr(folder, '%') || access(folder, W_OK | X_OK) == 0;

	if (!good)
		complain("%s%s: can't create a file in %s: %s",
			 option ? "" : "PINDOWN_TRACE=", option ? option : path, folder,
			 strerror(errno));
	release(folder);
	return good;
}

/*
 * Notes the capacity of BAR1 in the environment, which a trace records, for the charts of pindown
 * report: the size of BAR1 of each NVIDIA GPU here, if all have the same. It is no setting, so it
 * has no underscore.
 */
static void note_bar1(void)
{
	struct pci pci = pci_scan();
	uint64_t capacity = 0;
	char *text;

	for (unsigned i = 0; i < pci.count; i++) {
		const struct pci_device *device = pci.list[i];

		if (device->kind != PCI_GPU)
			continue;
		if (capacity && device->bar1 != capacity) {
			capacity = 0;
			break;
		}
		capacity = device->bar1;
	}
	pci_free(&pci);
	if (!capacity)
		return;
	text = text_of("%llu", (unsigned long long)capacity);
	set("PINDOWNBAR1", text);
	release(text);
}

/*
 * A mark for the traces of all processes of a run, from which report tells one run from another.
 * The ranks of a job have one mark, although each has a command of its own.
 */
static char *new_mark(void)
{
	const char *space = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID"),
		   *step = getenv("SLURM_STEP_ID"), *tasks = getenv("SLURM_STEP_NUM_TASKS");
	struct timespec now = {0};

	if (space)
		return text_of("%s", space);
	/* A step of one task may be a shell in which people start one run after another. */
	if (job && step && tasks && strcmp(tasks, "1") != 0)
		return text_of("slurm.%s.%s", job, step);
	clock_gettime(CLOCK_REALTIME, &now);
	return text_of("%lld.%09ld.%d", (long long)now.tv_sec, now.tv_nsec, (int)getpid());
}

/* It is no setting, so its name has no underscore. */
static void mark_run(void)
{
	char *mark = new_mark();

	if (!getenv("PINDOWNRUN"))
		set("PINDOWNRUN", mark);
	release(mark);
}

/*
 * Refuses bad values. Unknown names of the prefix, whose line is the last, may be other software's:
 * the library warns of them when the program uses CUDA.
 */
static bool check_configuration(struct pdn_config *config)
{
	static struct pdn_problems problems;
	unsigned bad;
	const char *line = problems.text;

	pdn_config_parse(config, &problems, environ);
	bad = problems.count - (problems.unknown != 0);
	for (unsigned i = 0; i < bad && strchr(line, '\n'); i++) {
		complain_of(line);
		line = strchr(line, '\n') + 1;
	}
	if (bad)
		return false;
	/* The absolute path, as the program and its children may change their folder. */
	if (config->trace) {
		set("PINDOWN_TRACE", config->trace);
		note_bar1();
		mark_run();
		if (!getenv("PINDOWN_TRACE_STACKS"))
			set("PINDOWN_TRACE_STACKS", STACKS);
	}
	return !config->trace || check_trace(config->trace);
}

/* ---- the library ---------------------------------------------------------------------------- */

static bool preload(void)
{
	const char *before = getenv("LD_PRELOAD");
	char library[PATH_MAX], *all;

	if (!preload_find(library, sizeof(library))) {
		complain("libpindown.so is neither beside pindown nor in ../lib nor in %s",
			 preload_installed());
		return false;
	}
	if (strpbrk(library, " :")) {
		complain("%s can't be preloaded: the loader allows no space or colon in its path",
			 library);
		return false;
	}
	/* Libraries that are preloaded already stay, behind libpindown.so. */
	all = text_of("%s%s%s", library, before && *before ? ":" : "", before ? before : "");
	set("LD_PRELOAD", all);
	release(all);
	return true;
}

/* ---- the command ---------------------------------------------------------------------------- */

/* true: the library is to be preloaded, for the programs that this one starts if not for itself. */
static bool warn_about(const char *name)
{
	char path[PATH_MAX], interpreter[PATH_MAX];
	const char *why;

	/* Starting a program for another processor fails with a better line. */
	if (!program_find(name, path, sizeof(path)) || program_is_foreign(path))
		return true;
	why = program_unreachable(path);
	if (why)
		complain("%s %s%s",
			 program_interpreter(path, interpreter, sizeof(interpreter)) ? interpreter
										     : path,
			 why,
			 program_hands_preload_on(path) ? "" : "; it will run without pindown");
	return !program_ends_by_preload(path);
}

static int run(int argc, char **argv)
{
	static struct pdn_config config;
	bool is_traced;
	int status;

	if (!take_options(argc, argv, &status))
		return status;
	if (!command_has_arguments(&command_run, argc - optind, argv + optind))
		return STATUS_USAGE;
	if (!check_configuration(&config))
		return STATUS_USAGE;
	if (warn_about(argv[optind]) && !preload())
		return STATUS_USAGE;
	is_traced = config.trace && config.enabled && config.log >= PDN_LOG_WARN;
	return is_traced ? program_trace(argv + optind, config.trace)
			 : program_become(argv + optind);
}

const struct command command_run = {"run", "start a program with libpindown.so preloaded",
				    .arguments = ARGUMENTS_COMMAND_LINE, .run_words = run};
