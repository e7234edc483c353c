// SPDX-License-Identifier: MIT
/* Parses the options of a command and runs it. */
#include "tools/command.h"

#include <getopt.h>
#include <stdio.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/ui/pager.h"

static enum out_colour colour;
static bool wants_help;

static bool take_colour(const char *when)
{
	if (out_parse_colour(when, &colour))
		return true;
	complain("--color %s: must be one of auto, always, never", when);
	return false;
}

static const struct setting common[] = {
	{"color", .take = take_colour},
	{"colour", .take = take_colour},
	{"help", .flag = &wants_help},
};
enum { COMMON = sizeof(common) / sizeof(common[0]) };

static int count(const struct setting *settings)
{
	int number = 0;

	while (settings[number].name)
		number++;
	return number;
}

static const struct setting *setting_of(const struct command *command, int number)
{
	int own = count(command->settings);

	return number < own ? &command->settings[number] : &common[number - own];
}

struct option *command_options(const struct command *command)
{
	int total = count(command->settings) + COMMON;
	struct option *options = allocate(((size_t)total + 1) * sizeof(*options));

	for (int i = 0; i < total; i++) {
		const struct setting *setting = setting_of(command, i);

		options[i] = (struct option){
			.name = setting->name,
			.has_arg = setting->flag ? no_argument : required_argument,
			.val = i,
		};
	}
	return options;
}

static void clear(const struct command *command)
{
	optind = 0; /* makes getopt start from the beginning */
	colour = OUT_AUTO;
	for (int i = 0; i < count(command->settings) + COMMON; i++) {
		const struct setting *setting = setting_of(command, i);

		if (setting->flag)
			*setting->flag = false;
		if (setting->text)
			*setting->text = NULL;
	}
}

static bool take(const struct setting *setting)
{
	if (setting->take)
		return setting->take(optarg);
	if (setting->flag)
		*setting->flag = true;
	else
		*setting->text = optarg;
	return true;
}

static bool take_options(const struct command *command, int argc, char **argv)
{
	struct option *options = command_options(command);
	int number;
	bool good = true;

	clear(command);
	while (good && (number = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (number == 'h') {
			wants_help = true;
			continue;
		}
		good = number != '?' &&
		       take(setting_of(command, number)); /* '?': getopt has printed why */
	}
	release(options);
	return good;
}

bool command_has_arguments(const struct command *command, int argc, char **argv)
{
	static const char *const needed[] = {
		[ARGUMENTS_TRACES] = "the name of a trace",
		[ARGUMENTS_PROGRAMS] = "a program or a library",
		[ARGUMENTS_COMMAND_LINE] = "the name of a program",
		[ARGUMENTS_PROCESSES] = NULL,
	};

	if (argc == 0 && needed[command->arguments])
		complain("%s needs %s; see pindown %s --help", command->name,
			 needed[command->arguments], command->name);
	else if (argc > 0 && command->arguments == ARGUMENTS_NONE)
		complain("%s takes no argument, but got '%s'; see pindown %s --help", command->name,
			 argv[0], command->name);
	else
		return true;
	return false;
}

int command_start(const struct command *command, int argc, char **argv)
{
	char name[40];

	/* getopt's messages begin with argv[0]. */
	snprintf(name, sizeof(name), "pindown %s", command->name);
	argv[0] = name;
	if (command->run_words)
		return command->run_words(argc, argv);
	if (!take_options(command, argc, argv))
		return STATUS_USAGE;
	if (wants_help) {
		out_begin(colour, false);
		pager_begin(true);
		out_control(command->help);
		out_flush();
		return STATUS_OK;
	}
	if (!command_has_arguments(command, argc - optind, argv + optind))
		return STATUS_USAGE;
	out_begin(colour, false);
	return command->run(argc - optind, argv + optind);
}
