// SPDX-License-Identifier: MIT
/*
 * The list of environment variables for pindown(7), or with the argument "options" that of the
 * options for pindown-run(1), from the table that the library itself uses.
 */
#include "cache/base/environment/config.h"

#include <stdio.h>
#include <string.h>

/* Text into mdoc: a backslash is its escape, a control line must not begin by accident, and each
 * sentence has a line of its own. */
static void print_text(const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", stdout);
	for (; *text; text++) {
		if (*text == '\\') {
			fputs("\\e", stdout);
		} else if (*text == '-') {
			fputs("\\-", stdout);
		} else if (*text == '.' && text[1] == ' ') {
			fputs(".\n", stdout);
			text++;
		} else {
			putchar(*text);
		}
	}
	putchar('\n');
}

/* "--max-bytes=BYTES" in mdoc; an argument in brackets is the value of an option without one. */
static void print_option(const struct pdn_variable *variable)
{
	const struct pdn_option *option = pdn_option_of(variable);

	printf("Fl \\-%s", option->option);
	if (option->argument[0] != '[')
		printf(" Ns = Ns Ar %s", option->argument);
	putchar('\n');
}

static void print_values(const struct pdn_variable *variable)
{
	char accepts[400];

	fputs(".br\nAccepted: ", stdout);
	print_text(pdn_variable_accepts(variable, accepts, sizeof(accepts)));
	if (*variable->default_value)
		printf(".br\nDefault:\n.Ql %s\n", variable->default_value);
}

static void print_for_environment(const struct pdn_variable *variable)
{
	printf(".It Ev %s\n", variable->name);
	print_text(pdn_option_of(variable)->help);
	print_values(variable);
	fputs(".br\nSet by\n.Nm pindown run\n.", stdout);
	print_option(variable);
}

static void print_for_run(const struct pdn_variable *variable)
{
	const struct pdn_option *option = pdn_option_of(variable);

	fputs(".It ", stdout);
	print_option(variable);
	print_text(option->help);
	if (option->argument[0] != '[')
		print_values(variable);
	printf(".br\nSets\n.Ev %s", variable->name);
	if (option->argument[0] == '[')
		printf("\nto %.*s", (int)strcspn(option->argument + 1, "]"), option->argument + 1);
	puts("");
}

int main(int argc, char **argv)
{
	bool options = argc == 2 && strcmp(argv[1], "options") == 0;
	unsigned i;

	puts(".Bl -tag -width Ds");
	for (i = 0; i < pdn_variable_count; i++) {
		if (options)
			print_for_run(&pdn_variables[i]);
		else
			print_for_environment(&pdn_variables[i]);
	}
	if (!options)
		puts(".El");
	return 0;
}
