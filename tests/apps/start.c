/* SPDX-License-Identifier: MIT */
/* Runs one group of calls from the command line. */
#include "app.h"

#include <spawn.h>

extern char **environ;

static char **own_argv;
static int own_at;

pid_t app_spawn(const char *group, const char *argument)
{
	char *arguments[16];
	pid_t child = -1;
	int i, error;

	for (i = 0; i <= own_at; i++)
		arguments[i] = own_argv[i];
	arguments[i++] = (char *)group;
	arguments[i++] = (char *)argument;
	arguments[i] = NULL;
	error = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
	if (error != 0) {
		app_say("can't start a child: %s", strerror(error));
		exit(1);
	}
	return child;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} groups[] = {
#define GROUP(name) {#name, app_##name},
#include "groups.def"
#undef GROUP
};

static int usage(const char *self)
{
	unsigned i;

	fprintf(stderr, "usage: %s ROAD GROUP [ARGUMENT], where GROUP is one of", self);
	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		fprintf(stderr, " %s", groups[i].name);
	fprintf(stderr, "\n");
	return 2;
}

__attribute__((visibility("default"))) int app_main(int argc, char **argv, int at)
{
	unsigned i;

	if (argc < at + 2 || at > 8)
		return usage(argv[0]);
	own_argv = argv;
	own_at = at;
#ifdef APP_TABLE
	app_road = argv[at];
	if (!app_take_road(app_road))
		return 2;
#endif
	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		if (strcmp(groups[i].name, argv[at + 1]) == 0)
			return groups[i].run(argc - at - 1, argv + at + 1);
	return usage(argv[0]);
}
