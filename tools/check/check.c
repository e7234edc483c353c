// SPDX-License-Identifier: MIT
/* pindown check: what will be seen of a program, from its files. */
#include "tools/check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ui/json.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/command.h"

static const char help[] =
	"usage: pindown check [options] PROGRAM|LIBRARY|SCRIPT...\n"
	"\n"
	"Says which calls of the CUDA driver libpindown.so will see when it is\n"
	"preloaded. It reads the ELF files, follows their libraries as the loader would,\n"
	"and starts nothing. A program is a file, or a name in $PATH; of a script it is\n"
	"the interpreter. Of a library, such as a Python package's .so, it says what\n"
	"will be seen in a program that a preload reaches.\n"
	"\n"
	"  --all         name each call, also where there are very many\n"
	"  --json        a JSON list with one object for each file\n"
	"  --color WHEN  auto, always or never\n"
	"  --help        this text\n"
	"\n"
	"Exit status: 0 when nothing will be missed, 1 when calls will be, 2 for bad\n"
	"options or a file that can't be looked at.\n";

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
		break;
	}
	return "does not use CUDA, as far as its files tell";
}

static const char *verdict_colour(enum verdict verdict)
{
	return verdict == SEEN	    ? out_green()
	       : verdict == PARTLY  ? out_yellow()
	       : verdict == NO_CUDA ? out_plain()
				    : out_red();
}

static void print_list(const char *head, const struct texts *texts)
{
	if (texts->count)
		out_print("\n  %s%s%s\n", out_bold(), head, out_plain());
	for (unsigned i = 0; i < texts->count; i++)
		out_print("    %s\n", texts->list[i]);
}

static int width_of_names(const struct checked *checked)
{
	size_t width = 0;

	for (unsigned i = 0; i < checked->count; i++) {
		const struct object *object = checked->members[i]->object;

		if ((reaches_driver(object) || object->runtime_calls) &&
		    strlen(short_name(object->path)) > width)
			width = strlen(short_name(object->path));
	}
	return (int)width;
}

static void print_roads(const struct checked *checked)
{
	int width = width_of_names(checked);

	out_print("\n  %show it reaches the driver%s\n", out_bold(), out_plain());
	for (unsigned i = 0; i < checked->count; i++) {
		const struct object *object = checked->members[i]->object;
		char *how = reaches_driver(object) ? how_it_reaches(object) : NULL;

		if (how)
			out_print("    %-*s  %s%s\n", width, short_name(object->path), how,
				  checked->members[i]->opened ? "; opened at run time" : "");
		else if (object->runtime_calls)
			out_print("    %-*s  calls the CUDA runtime (%u functions)\n", width,
				  short_name(object->path), object->runtime_calls);
		release(how);
	}
}

/* So many names that they tell nothing: the runtime has those of all calls, used or not. */
static bool has_many(const struct object *object)
{
	return object->has_runtime || object->named.count > 40;
}

/* A call's name, who binds it or looks it up, and whether that is seen. */
static void print_call(const char *call, const struct object *object, const char *road, bool seen)
{
	out_print("    %-39s %-10s %s%-9s%s %s\n", call, road, seen ? out_green() : out_red(),
		  seen ? "seen" : "not seen", out_plain(), short_name(object->path));
}

static void print_calls_of(const struct checked *checked, const struct object *object, bool all)
{
	bool seen = looked_up_is_seen(checked);
	char *many;

	for (unsigned i = 0; i < object->linked.count; i++)
		print_call(object->linked.list[i], object, "linked",
			   linked_is_seen(checked, object->linked.list[i]));
	if (has_many(object) && !all) {
		many = object->has_runtime ? text_of("whatever the CUDA runtime needs")
					   : text_of("any of %u calls", object->named.count);
		print_call(many, object, "looked up", seen);
		release(many);
		return;
	}
	for (unsigned i = 0; i < object->named.count; i++)
		if (!texts_have(&object->linked, object->named.list[i]))
			print_call(object->named.list[i], object, "looked up", seen);
}

static void print_calls(const struct checked *checked, bool all)
{
	out_print("\n  %swatched calls that it uses%s\n", out_bold(), out_plain());
	for (unsigned i = 0; i < checked->count; i++)
		if (reaches_driver(checked->members[i]->object))
			print_calls_of(checked, checked->members[i]->object, all);
}

/* Names alone are no use of them: messages have them too. */
static bool looks_up_verbs(const struct object *object)
{
	return object->uses_dlsym && object->verbs_named.count;
}

static void print_verbs(const struct checked *checked)
{
	bool any = false;

	for (unsigned i = 0; i < checked->count; i++) {
		const struct object *object = checked->members[i]->object;

		if (!object->verbs_linked.count && !looks_up_verbs(object))
			continue;
		if (!any)
			out_print("\n  %swatched calls of libibverbs%s\n", out_bold(), out_plain());
		any = true;
		for (unsigned n = 0; n < object->verbs_linked.count; n++)
			print_call(object->verbs_linked.list[n], object, "linked",
				   is_reached(checked));
		for (unsigned n = 0; looks_up_verbs(object) && n < object->verbs_named.count; n++)
			if (!texts_have(&object->verbs_linked, object->verbs_named.list[n]))
				print_call(object->verbs_named.list[n], object, "looked up",
					   looked_up_is_seen(checked));
	}
}

static void print_text(const struct checked *checked, bool all)
{
	out_print("%s%s: %s%s%s\n", out_bold(), checked->asked, verdict_colour(checked->verdict),
		  verdict_sentence(checked), out_plain());
	if (checked->script)
		out_print("  a script that %s runs\n", checked->members[0]->object->path);
	for (unsigned i = 0; i < checked->reasons.count; i++)
		out_print("  %s\n", checked->reasons.list[i]);
	if (checked->verdict != NO_CUDA) {
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
	const struct object *object = member->object;
	bool reaches = reaches_driver(object);
	char *how = reaches ? how_it_reaches(object) : NULL;

	json_begin_object(NULL);
	json_text("path", object->path);
	json_bool("opened_at_run_time", member->opened);
	json_text("reaches_driver", how);
	json_bool("cuda_runtime", object->has_runtime);
	json_number("runtime_calls", object->runtime_calls);
	json_number("deepbind_calls", object->deepbind_calls);
	json_begin_list("calls");
	for (unsigned i = 0; i < object->linked.count; i++)
		print_json_call(object->linked.list[i], "linked",
				linked_is_seen(checked, object->linked.list[i]));
	for (unsigned i = 0; reaches && i < object->named.count; i++)
		print_json_call(object->named.list[i], "looked up", looked_up_is_seen(checked));
	for (unsigned i = 0; i < object->verbs_linked.count; i++)
		print_json_call(object->verbs_linked.list[i], "linked", is_reached(checked));
	for (unsigned i = 0; looks_up_verbs(object) && i < object->verbs_named.count; i++)
		print_json_call(object->verbs_named.list[i], "looked up",
				looked_up_is_seen(checked));
	json_end_list();
	json_end_object();
	release(how);
}

static void print_json(const struct checked *checked)
{
	static const char *const verdicts[] = {"seen", "partly", "unseen", "no cuda"};
	const struct object *object = checked->members[0]->object;

	json_begin_object(NULL);
	json_text("file", checked->asked);
	json_text("kind", checked->script ? "script" : object->is_program ? "program" : "library");
	if (checked->script)
		json_text("interpreter", object->path);
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

/* ---- the verb ---------------------------------------------------------------------------- */

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
	status =
		checked->verdict == PARTLY || checked->verdict == UNSEEN ? STATUS_FOUND : STATUS_OK;
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

const struct command command_check = {
	"check",   "say what will be seen of a program", help, settings, ARGUMENTS_PROGRAMS,
	.run = run};
