// SPDX-License-Identifier: MIT
/* The list of environment variables for pindown(7), from the table that the library itself uses. */
#include "config.h"

#include <stdio.h>

/* Text into mdoc: a backslash is its escape, and a control line must not begin by accident. */
static void print_text(const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", stdout);
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", stdout);
		else if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '.' && text[1] == ' ') {
			fputs(".\n", stdout); /* each sentence on a line of its own */
			text++;
		} else
			putchar(*text);
	}
	putchar('\n');
}

int main(void)
{
	char accepts[400];
	unsigned i;

	puts(".Bl -tag -width Ds");
	for (i = 0; i < pd_variable_count; i++) {
		const struct pd_variable *variable = &pd_variables[i];

		printf(".It Ev %s\n", variable->name);
		print_text(variable->help);
		fputs(".br\nAccepted: ", stdout);
		print_text(pd_variable_accepts(variable, accepts, sizeof(accepts)));
		if (*variable->standard)
			printf(".br\nDefault:\n.Ql %s .\n", variable->standard);
		else
			puts(".br\nUnset by default.");
		printf(".br\nOption of\n.Xr pindown-run 1 :\n.Fl \\-%s", variable->option);
		if (variable->argument && variable->argument[0] != '[')
			printf(" Ns = Ns Ar %s", variable->argument);
		puts("");
	}
	puts(".El");
	return 0;
}
