// SPDX-License-Identifier: MIT
#include "tools/command.h"

#include <getopt.h>
#include <stdio.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"

static enum out_colour colour;
static bool wants_help;

static bool take_colour(const char *when)
{
	if (out_parse_colour(when, &colour))
		return true;
	complain("--color %s: must be one of auto, always, never", when);
	return false;
}

static const struct setting of_all[] = {
	{"color", .take = take_colour},
	{"colour", .take = take_colour},
	{"help", .flag = &wants_help},
};
enum { OF_ALL = sizeof(of_all) / sizeof(of_all[0]) };

static int count(const struct setting *settings)
{
	int number = 0;

	while (settings[number].name)
		number++;
	return number;
}

static const struct setting *setting_of(const struct verb *verb, int number)
{
	int own = count(verb->settings);

	return number < own ? &verb->settings[number] : &of_all[number - own];
}

struct option *verb_options(const struct verb *verb)
{
	int total = count(verb->settings) + OF_ALL;
	struct option *options = allocate(((size_t)total + 1) * sizeof(*options));

	for (int i = 0; i < total; i++) {
		const struct setting *setting = setting_of(verb, i);

		options[i] = (struct option){
			setting->name, setting->flag ? no_argument : required_argument, NULL, i};
	}
	return options;
}

static void clear(const struct verb *verb)
{
	optind = 0; /* getopt begins anew */
	colour = OUT_AUTO;
	for (int i = 0; i < count(verb->settings) + OF_ALL; i++) {
		const struct setting *setting = setting_of(verb, i);

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

static bool take_options(const struct verb *verb, int argc, char **argv)
{
	struct option *options = verb_options(verb);
	int number;
	bool good = true;

	clear(verb);
	while (good && (number = getopt_long(argc, argv, "", options, NULL)) != -1)
		good = number != '?' && take(setting_of(verb, number)); /* '?': it has said why */
	release(options);
	return good;
}

bool verb_has_arguments(const struct verb *verb, int argc, char **argv)
{
	static const char *const needed[] = {
		[ARGUMENTS_TRACES] = "the name of a trace",
		[ARGUMENTS_PROGRAMS] = "a program or a library",
		[ARGUMENTS_COMMAND] = "the name of a program",
		[ARGUMENTS_PROCESSES] = NULL,
	};

	if (argc == 0 && needed[verb->arguments])
		complain("%s needs %s; pindown %s --help says more", verb->name,
			 needed[verb->arguments], verb->name);
	else if (argc > 0 && verb->arguments == ARGUMENTS_NONE)
		complain("%s takes no argument, as '%s' is; pindown %s --help says more",
			 verb->name, argv[0], verb->name);
	else
		return true;
	return false;
}

int verb_start(const struct verb *verb, int argc, char **argv)
{
	char name[40];

	/* What getopt complains of begins with it. */
	snprintf(name, sizeof(name), "pindown %s", verb->name);
	argv[0] = name;
	if (verb->run_words)
		return verb->run_words(argc, argv);
	if (!take_options(verb, argc, argv))
		return STATUS_USAGE;
	if (wants_help) {
		fputs(verb->help, stdout);
		return STATUS_OK;
	}
	if (!verb_has_arguments(verb, argc - optind, argv + optind))
		return STATUS_USAGE;
	out_begin(colour, false);
	return verb->run(argc - optind, argv + optind);
}
