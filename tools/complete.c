// SPDX-License-Identifier: MIT
/* Answers a shell that completes a command line of pindown. */
#define _GNU_SOURCE
#include "tools/complete.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cache/base/environment/config.h"
#include "tools/system/processes.h"
#include "cache/base/environment/event.h"

/*
 * The word being typed. Of "--color=al", text is "al" and before, which candidates keep,
 * "--color=".
 */
struct typed {
	const char *text;
	char before[80];
};

static void offer(const struct typed *typed, const char *candidate, const char *meaning)
{
	if (strncmp(candidate, typed->text, strlen(typed->text)) != 0)
		return;
	printf("%s%s", typed->before, candidate);
	if (meaning)
		printf("\t%s", meaning);
	putchar('\n');
}

/* ---- values of options --------------------------------------------------------------------- */

/* Options with known values; those of `run` are in the table of environment variables. */
static const struct {
	const char *option;
	const char *const *values; /* NULL: see `shell` */
	const char *shell;
} known[] = {
	{"color", (const char *const[]){"auto", "always", "never", NULL}, NULL},
	{"colour", (const char *const[]){"auto", "always", "never", NULL}, NULL},
	{"sort", (const char *const[]){"pinned", "regions", "kept", "hits", "misses", "pid", NULL},
	 NULL},
	{"policy", (const char *const[]){"lru", "clock", "s3fifo", NULL}, NULL},
	{"interval", (const char *const[]){"0.5", "1", "2", "10", NULL}, NULL},
	{"sysfs", NULL, ":folders"},
	{"trace", NULL, ":traces"},
	{"symbols", NULL, ":folders"},
	{"html", NULL, ":files"},
};

static void offer_list(const struct typed *typed, const char *const *values)
{
	for (; values && *values; values++)
		offer(typed, *values, NULL);
}

static void offer_choices(const struct typed *typed, const char *choices)
{
	for (; *choices; choices = pdn_next_choice(choices))
		offer(typed, choices, NULL);
}

static void offer_events(const struct typed *typed)
{
	for (unsigned event = 0; event < PDN_EV_LOST; event++)
		offer(typed, pdn_event_names[event], NULL);
}

/* Whether values of this option are lists with commas between. */
static bool takes_list(const char *option)
{
	static const char *const lists[] = {"event", "events", "policy", "max-bytes"};

	for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		if (strcmp(option, lists[i]) == 0)
			return true;
	return false;
}

/* Of "pin,un" and of "-hi", the part that is typed now is "un" and "hi". */
static void go_to_last(struct typed *typed, const char *option)
{
	const char *comma = strrchr(typed->text, ','), *last = comma ? comma + 1 : typed->text;
	size_t used = strlen(typed->before);

	if (strcmp(option, "events") == 0 && *last == '-')
		last++;
	snprintf(typed->before + used, sizeof(typed->before) - used, "%.*s",
		 (int)(last - typed->text), typed->text);
	typed->text = last;
}

static bool offer_variable(const struct typed *typed, const char *option)
{
	for (unsigned i = 0; i < pdn_variable_count; i++) {
		if (strcmp(pdn_options[i].option, option) != 0)
			continue;
		offer_choices(typed, pdn_choices_of(&pdn_variables[i]));
		if (strcmp(pdn_options[i].argument, "FILE") == 0)
			puts(":files");
		if (strcmp(option, "events") == 0) {
			offer(typed, "all", NULL);
			offer_events(typed);
		}
		if (strcmp(option, "stacks") == 0)
			offer_list(typed, (const char *const[]){"0", "8", "16", "64", NULL});
		return true;
	}
	return false;
}

static void offer_values(const struct command *command, struct typed *typed, const char *option)
{
	if (takes_list(option))
		go_to_last(typed, option);
	if (!command->settings && offer_variable(typed, option))
		return;
	if (strcmp(option, "event") == 0)
		offer_events(typed);
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i].option, option) != 0)
			continue;
		offer_list(typed, known[i].values);
		if (known[i].shell)
			puts(known[i].shell);
	}
}

/* ---- options and arguments ----------------------------------------------------------------- */

static const struct option *options_of(const struct command *command)
{
	static const struct command *of;
	static struct option *options;

	if (command != of)
		options = command->settings ? command_options(command) : run_options();
	of = command;
	return options;
}

/* The option that a word names, with or without "=" and a value. */
static const struct option *option_named(const struct command *command, const char *word)
{
	size_t length = strcspn(word, "=");
	const struct option *option;

	if (strncmp(word, "--", 2) != 0)
		return NULL;
	for (option = options_of(command); option->name; option++)
		if (strlen(option->name) == length - 2 &&
		    strncmp(option->name, word + 2, length - 2) == 0)
			return option;
	return NULL;
}

static const char *meaning_of(const struct command *command, const char *option)
{
	static char meaning[64];

	for (unsigned i = 0; !command->settings && i < pdn_variable_count; i++) {
		if (strcmp(pdn_options[i].option, option) != 0)
			continue;
		/* The first sentence, cut to one line. */
		snprintf(meaning, sizeof(meaning), "%s", pdn_options[i].help);
		meaning[strcspn(meaning, ".:(")] = '\0';
		return meaning;
	}
	return NULL;
}

/* Offers --color, but --colour only when that spelling has been begun. */
static void offer_options(const struct command *command, const struct typed *typed)
{
	for (const struct option *option = options_of(command); option->name; option++) {
		char text[80];

		if (strcmp(option->name, "colour") == 0 && strcmp(typed->text, "--colou") != 0)
			continue;
		snprintf(text, sizeof(text), "--%s", option->name);
		offer(typed, text, meaning_of(command, option->name));
	}
}

static void offer_processes(const struct typed *typed)
{
	struct processes all = {0};

	processes_read(&all);
	for (unsigned i = 0; i < all.count; i++) {
		char pid[16];

		snprintf(pid, sizeof(pid), "%u", all.list[i].pid);
		offer(typed, pid, all.list[i].command);
	}
	processes_free(&all);
}

static void offer_arguments(const struct command *command, const struct typed *typed)
{
	switch (command->arguments) {
	case ARGUMENTS_NONE:
		break;
	case ARGUMENTS_TRACES:
		puts(":traces");
		break;
	case ARGUMENTS_PROGRAMS:
		puts(":commands");
		puts(":files");
		break;
	case ARGUMENTS_COMMAND_LINE:
		puts(":commands");
		break;
	case ARGUMENTS_PROCESSES:
		offer_processes(typed);
		break;
	}
}

/* ---- all ----------------------------------------------------------------------------------- */

static bool needs_value(const struct command *command, const char *word)
{
	const struct option *option = option_named(command, word);

	return option && option->has_arg == required_argument && !strchr(word, '=');
}

/* The index of the program that `run` starts, or -1. The words behind it belong to the program. */
static int program_in(const struct command *command, char **words, int count)
{
	for (int i = 1; i < count; i++) {
		if (strcmp(words[i], "--") == 0)
			return i + 1;
		if (words[i][0] != '-')
			return i;
		if (needs_value(command, words[i]))
			i += i + 1 < count && strcmp(words[i + 1], "=") == 0 ? 2 : 1;
	}
	return -1;
}

/*
 * The option whose value is being typed, and which is then in `typed`; else NULL. bash passes "="
 * and the text behind it as separate words.
 */
static const char *option_before(const struct command *command, char **words, int count,
				 struct typed *typed)
{
	char *last = words[count - 1], *equals = strchr(last, '=');

	if (count > 2 && strcmp(last, "=") == 0 && option_named(command, words[count - 2])) {
		typed->text = "";
		return words[count - 2] + 2;
	}
	if (count > 3 && strcmp(words[count - 2], "=") == 0 &&
	    option_named(command, words[count - 3]))
		return words[count - 3] + 2;
	if (count > 2 && needs_value(command, words[count - 2]))
		return words[count - 2] + 2;
	if (equals && option_named(command, last)) {
		snprintf(typed->before, sizeof(typed->before), "%.*s", (int)(equals + 1 - last),
			 last);
		typed->text = equals + 1;
		*equals = '\0';
		return last + 2;
	}
	return NULL;
}

static void complete_for(const struct command *command, char **words, int count)
{
	struct typed typed = {.text = words[count - 1]};
	const char *option;
	int program = command->arguments == ARGUMENTS_COMMAND_LINE
			      ? program_in(command, words, count - 1)
			      : -1;

	if (program >= 0 && program < count - 1) {
		puts(":files");
		return;
	}
	option = program < 0 ? option_before(command, words, count, &typed) : NULL;
	if (option)
		offer_values(command, &typed, option);
	else if (typed.text[0] == '-' && program < 0)
		offer_options(command, &typed);
	else
		offer_arguments(command, &typed);
}

int complete(char **words, int count, const struct command *const *commands, unsigned command_count)
{
	struct typed typed = {.text = count ? words[0] : ""};

	for (unsigned i = 0; i < command_count; i++) {
		const char *name = commands[i]->name;

		if (count > 1 && (strcmp(words[0], name) == 0 ||
				  (strcmp(words[0], "bar") == 0 && strcmp(name, "top") == 0)))
			complete_for(commands[i], words, count);
		else if (count <= 1)
			offer(&typed, commands[i]->name, commands[i]->summary);
	}
	if (count == 1 && words[0][0] == '-') {
		offer(&typed, "--help", NULL);
		offer(&typed, "--version", NULL);
	}
	return STATUS_OK;
}
