// SPDX-License-Identifier: MIT
/* pindown check: says from a program's files which of its driver calls pindown will see. */
#include "tools/check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ui/json.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/command.h"

static const char help[] =
	"usage: pindown check [options] PROGRAM|LIBRARY|SCRIPT...\n"
	"\n"
	"Says which calls of the CUDA driver libpindown.so will see when it is\n"
	"preloaded. It reads the ELF files, follows their libraries as the loader does,\n"
	"and starts nothing. A program is a file or a name in $PATH. For a script, its\n"
	"interpreter is checked, or the program that a shell script becomes by exec.\n"
	"For a library, such as a Python package's .so, the answer holds for programs\n"
	"that a preload reaches.\n"
	"\n"
	"  --all         name each call, even where there are very many\n"
	"  --json        print a JSON list with one object for each file\n"
	"  --color WHEN  auto, always or never\n"
	"  --help        print this text\n"
	"\n"
	"Exit status: 0 when no call will be missed, 1 when some will be, 2 when pindown\n"
	"cannot tell, for bad options or a file that can't be read.\n";

/* ---- as text ----------------------------------------------------------------------------- */

static const char *verdict_sentence(const struct checked *checked)
{
	switch (checked->verdict) {
	case SEEN:
		return "every call of the driver will be seen";
	case PARTLY:
		return "some calls of the driver will not be seen";
	case UNSEEN:
		return "no call of the driver will be seen";
	case NO_CUDA:
		return "does not use CUDA, as far as its files show";
	case UNKNOWN:
		break;
	}
	return "cannot tell whether it uses CUDA";
}

static const char *verdict_colour(enum verdict verdict)
{
	return verdict == SEEN				 ? out_green()
	       : verdict == PARTLY || verdict == UNKNOWN ? out_yellow()
	       : verdict == NO_CUDA			 ? out_plain()
							 : out_red();
}

static void print_list(const char *head, const struct texts *texts)
{
	if (texts->count)
		out_print("\n  %s%s%s\n", out_bold(), head, out_plain());
	for (unsigned i = 0; i < texts->count; i++) {
		out_print("    ");
		/* Elsewhere a text is one line, which grep finds. */
		if (isatty(out.fd))
			out_wrapped(4, 6, texts->list[i]);
		else
			out_print("%s\n", texts->list[i]);
	}
}

/* A name may have been chosen by anybody, and ends no line. The caller releases it. */
static char *in_one_line(const char *name)
{
	return text_printable(name, strlen(name));
}

static int width_of_names(const struct checked *checked)
{
	size_t width = 0;

	for (unsigned i = 0; i < checked->count; i++) {
		const struct elf_file *file = checked->members[i]->file;

		if ((reaches_driver(file) || file->runtime_calls) &&
		    strlen(short_name(file->path)) > width)
			width = strlen(short_name(file->path));
	}
	return (int)width;
}

static void print_roads(const struct checked *checked)
{
	int width = width_of_names(checked);

	out_print("\n  %show it reaches the driver%s\n", out_bold(), out_plain());
	for (unsigned i = 0; i < checked->count; i++) {
		const struct elf_file *file = checked->members[i]->file;
		char *how = reaches_driver(file) ? how_it_reaches(file) : NULL;
		char *name = in_one_line(short_name(file->path));

		if (how)
			out_print("    %-*s  %s%s\n", width, name, how,
				  checked->members[i]->opened ? "; opened at run time" : "");
		else if (file->runtime_calls)
			out_print("    %-*s  calls the CUDA runtime (%u functions)\n", width, name,
				  file->runtime_calls);
		release(name);
		release(how);
	}
}

/*
 * Whether it has too many names to be useful: the CUDA runtime has the names of all calls, used or
 * not.
 */
static bool has_many(const struct elf_file *file)
{
	return file->has_runtime || file->named.count > 40;
}

/* A call's name, the file that binds it or looks it up, and whether the call is seen. */
static void print_call(const char *call, const struct elf_file *file, const char *road, bool seen)
{
	out_print("    %-39s %-10s %s%-9s%s %s\n", call, road, seen ? out_green() : out_red(),
		  seen ? "seen" : "not seen", out_plain(), short_name(file->path));
}

static void print_calls_of(const struct checked *checked, const struct elf_file *file, bool all)
{
	bool seen = looked_up_is_seen(checked);
	char *many;

	for (unsigned i = 0; i < file->linked.count; i++)
		print_call(file->linked.list[i], file, "linked",
			   linked_is_seen(checked, file->linked.list[i]));
	if (has_many(file) && !all) {
		many = file->has_runtime ? text_of("calls that the CUDA runtime needs")
					 : text_of("any of %u calls", file->named.count);
		print_call(many, file, "looked up", seen);
		release(many);
		return;
	}
	for (unsigned i = 0; i < file->named.count; i++)
		if (!texts_have(&file->linked, file->named.list[i]))
			print_call(file->named.list[i], file, "looked up", seen);
}

static void print_calls(const struct checked *checked, bool all)
{
	out_print("\n  %swatched calls that it uses%s\n", out_bold(), out_plain());
	for (unsigned i = 0; i < checked->count; i++)
		if (reaches_driver(checked->members[i]->file))
			print_calls_of(checked, checked->members[i]->file, all);
}

/* A name alone does not mean a look-up: it may be part of a message. */
static bool looks_up_verbs(const struct elf_file *file)
{
	return file->uses_dlsym && file->verbs_named.count;
}

static void print_verbs(const struct checked *checked)
{
	bool any = false;

	for (unsigned i = 0; i < checked->count; i++) {
		const struct elf_file *file = checked->members[i]->file;

		if (!file->verbs_linked.count && !looks_up_verbs(file))
			continue;
		if (!any)
			out_print("\n  %swatched calls of libibverbs and libmlx5%s\n", out_bold(),
				  out_plain());
		any = true;
		for (unsigned n = 0; n < file->verbs_linked.count; n++)
			print_call(file->verbs_linked.list[n], file, "linked", is_reached(checked));
		for (unsigned n = 0; looks_up_verbs(file) && n < file->verbs_named.count; n++)
			if (!texts_have(&file->verbs_linked, file->verbs_named.list[n]))
				print_call(file->verbs_named.list[n], file, "looked up",
					   looked_up_is_seen(checked));
	}
}

/* Each text is one line: names in it, which may come from anybody, end none. */
static void make_lines(const struct texts *texts)
{
	for (unsigned i = 0; i < texts->count; i++)
		text_make_printable(texts->list[i], strlen(texts->list[i]));
}

static void print_verdict(const struct checked *checked)
{
	char *asked = in_one_line(checked->asked), *interpreter;

	out_print("%s%s: %s%s%s\n", out_bold(), asked, verdict_colour(checked->verdict),
		  verdict_sentence(checked), out_plain());
	release(asked);
	if (!checked->script)
		return;
	interpreter = in_one_line(checked->members[0]->file->path);
	out_print("  a script that %s runs\n", interpreter);
	release(interpreter);
}

static void print_text(const struct checked *checked, bool all)
{
	make_lines(&checked->reasons);
	make_lines(&checked->notes);
	print_verdict(checked);
	for (unsigned i = 0; i < checked->reasons.count; i++)
		out_print("  %s\n", checked->reasons.list[i]);
	if (checked->verdict < NO_CUDA) {
		print_roads(checked);
		print_calls(checked, all);
	}
	print_verbs(checked);
	print_list("notes", &checked->notes);
}

/* ---- as JSON ----------------------------------------------------------------------------- */

static void print_texts(const char *key, const struct texts *texts)
{
	json_begin_list(key);
	for (unsigned i = 0; i < texts->count; i++)
		json_text(NULL, texts->list[i]);
	json_end_list();
}

static void print_json_call(const char *call, const char *road, bool seen)
{
	json_begin_object(NULL);
	json_text("call", call);
	json_text("road", road);
	json_bool("seen", seen);
	json_end_object();
}

static void print_json_member(const struct checked *checked, const struct member *member)
{
	const struct elf_file *file = member->file;
	bool reaches = reaches_driver(file);
	char *how = reaches ? how_it_reaches(file) : NULL;

	json_begin_object(NULL);
	json_text("path", file->path);
	json_bool("opened_at_run_time", member->opened);
	json_text("reaches_driver", how);
	json_bool("cuda_runtime", file->has_runtime);
	json_number("runtime_calls", file->runtime_calls);
	json_begin_list("calls");
	for (unsigned i = 0; i < file->linked.count; i++)
		print_json_call(file->linked.list[i], "linked",
				linked_is_seen(checked, file->linked.list[i]));
	for (unsigned i = 0; reaches && i < file->named.count; i++)
		print_json_call(file->named.list[i], "looked up", looked_up_is_seen(checked));
	for (unsigned i = 0; i < file->verbs_linked.count; i++)
		print_json_call(file->verbs_linked.list[i], "linked", is_reached(checked));
	for (unsigned i = 0; looks_up_verbs(file) && i < file->verbs_named.count; i++)
		print_json_call(file->verbs_named.list[i], "looked up", looked_up_is_seen(checked));
	json_end_list();
	json_end_object();
	release(how);
}

static void print_json(const struct checked *checked)
{
	static const char *const verdicts[] = {"seen", "partly", "unseen", "no cuda",
					       "cannot tell"};
	const struct elf_file *file = checked->members[0]->file;

	json_begin_object(NULL);
	json_text("file", checked->asked);
	json_text("kind", checked->script ? "script" : file->is_program ? "program" : "library");
	if (checked->script)
		json_text("interpreter", file->path);
	json_text("verdict", verdicts[checked->verdict]);
	print_texts("reasons", &checked->reasons);
	print_texts("notes", &checked->notes);
	json_text("driver", checked->driver);
	print_texts("missing", &checked->missing);
	json_begin_list("objects");
	for (unsigned i = 0; i < checked->count; i++)
		print_json_member(checked, checked->members[i]);
	json_end_list();
	json_end_object();
}

/* ---- the command ------------------------------------------------------------------------- */

static bool all_calls, wants_json;

static const struct setting settings[] = {
	{"all", .flag = &all_calls},
	{"json", .flag = &wants_json},
	{.name = NULL},
};

/* The exit status for one file. */
static int check_one(const char *name, bool first)
{
	struct checked *checked = check_file(name);
	static const int statuses[] = {STATUS_OK, STATUS_FOUND, STATUS_FOUND, STATUS_OK,
				       STATUS_USAGE};
	int status;

	if (!checked)
		return STATUS_USAGE;
	if (wants_json) {
		print_json(checked);
	} else {
		if (!first)
			out_print("\n");
		print_text(checked, all_calls);
	}
	status = statuses[checked->verdict];
	check_free(checked);
	return status;
}

static int run(int argc, char **argv)
{
	int worst = STATUS_OK;

	if (wants_json)
		json_begin_list(NULL);
	for (int i = 0; i < argc; i++) {
		int status = check_one(argv[i], i == 0);

		worst = status > worst ? status : worst;
	}
	if (wants_json)
		json_end_list();
	out_flush();
	return worst;
}

const struct command command_check = {"check",
				      "say which calls of a program pindown will see",
				      help,
				      settings,
				      ARGUMENTS_PROGRAMS,
				      .run = run};
