// SPDX-License-Identifier: MIT
/* Follows a program's libraries as the loader would, and judges what a preload would see. */
#define _GNU_SOURCE
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/check.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/system/programs.h"

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#else
#define OUR_MACHINE EM_AARCH64
#endif

const char *short_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_driver(const char *name)
{
	return strncmp(short_name(name), "libcuda.so", 10) == 0;
}

static bool is_shared_runtime(const struct object *object)
{
	const char *name = object->soname ? object->soname : short_name(object->path);

	return object->has_runtime && strncmp(name, "libcudart.so", 12) == 0;
}

/* Names alone lead nowhere: a list of them for messages is in many a library. */
static bool looks_up(const struct object *object)
{
	return object->named.count &&
	       (object->uses_dlsym || object->names_driver || object->asks_proc_address);
}

bool reaches_driver(const struct object *object)
{
	return object->linked.count || object->has_runtime || looks_up(object);
}

char *how_it_reaches(const struct object *object)
{
	bool linked = object->linked.count != 0;
	const char *up = object->asks_proc_address ? "by cuGetProcAddress" : "by dlsym";

	if (is_shared_runtime(object))
		return text_of("the CUDA runtime, shared; looks functions up by cuGetProcAddress");
	if (object->has_runtime)
		return text_of("%shas the CUDA runtime in it (static), which looks functions up by "
			       "cuGetProcAddress",
			       linked ? "linked with the driver; " : "");
	if (linked && looks_up(object))
		return text_of("linked with the driver; looks functions up %s", up);
	if (linked)
		return text_of("linked with the driver");
	return text_of("looks functions up %s%s", up,
		       object->names_driver && object->uses_dlopen ? ", having opened libcuda.so"
								   : "");
}

/* ---- the objects --------------------------------------------------------------------------- */

static bool is_there(const struct checked *checked, const char *name)
{
	for (unsigned i = 0; i < checked->count; i++) {
		const struct object *object = checked->members[i]->object;

		if ((object->soname && strcmp(object->soname, name) == 0) ||
		    strcmp(object->path, name) == 0 ||
		    (i && strcmp(short_name(object->path), name) == 0))
			return true;
	}
	return false;
}

static struct member *add_member(struct checked *checked, struct object *object,
				 const struct member *by)
{
	struct member *member = allocate(sizeof(*member));

	member->object = object;
	member->needer = (struct needer){object, by ? &by->needer : NULL};
	checked->members = grow(checked->members, &checked->capacity, checked->count,
				sizeof(*checked->members));
	checked->members[checked->count++] = member;
	return member;
}

/* False when there is no such library. */
static bool add_library(struct checked *checked, const char *name, const struct member *by,
			bool opened)
{
	struct object *object;
	const char *why;
	char *path;

	if (is_there(checked, name) || strncmp(short_name(name), "libpindown.so", 13) == 0)
		return true;
	path = library_find(&by->needer, name);
	if (is_driver(name)) {
		checked->needs_driver = true;
		if (!checked->driver)
			checked->driver = path;
		else
			release(path);
		return true;
	}
	object = path ? object_read(path, &why) : NULL;
	release(path);
	if (object)
		add_member(checked, object, by)->opened = opened;
	return object;
}

static void follow(struct checked *checked)
{
	for (unsigned i = 0; i < checked->count; i++) {
		const struct member *member = checked->members[i];
		const struct object *object = member->object;

		for (unsigned n = 0; n < object->needed.count; n++)
			if (!add_library(checked, object->needed.list[n], member, false))
				texts_add_once(&checked->missing, object->needed.list[n]);
		for (unsigned n = 0; n < object->opened.count && !is_shared_runtime(object); n++)
			add_library(checked, object->opened.list[n], member, true);
	}
}

/* ---- the verdict --------------------------------------------------------------------------- */

static void say(struct texts *to, char *text)
{
	texts_add_once(to, text);
	release(text);
}

static bool is_musl(const struct object *object)
{
	return object->interpreter && strstr(object->interpreter, "ld-musl");
}

/* Why no preload gets into it at all: the end of a sentence, or NULL. */
static const char *why_unreachable(const struct checked *checked)
{
	const struct object *object = checked->members[0]->object;
	const char *why = NULL;

	if (object->elf_class == ELFCLASS64 && object->machine != OUR_MACHINE)
		return "is for another kind of processor than libpindown.so";
	if (is_musl(object))
		return "is for another C library (musl): libpindown.so, made for glibc, can't be "
		       "loaded "
		       "into it";
	why = program_unreachable(checked->script ? checked->script : object->path);
	return why;
}

bool is_reached(const struct checked *checked)
{
	return !checked->unreachable;
}

bool linked_is_seen(const struct checked *checked, const char *call)
{
	const struct object *object = checked->members[0]->object;

	return is_reached(checked) && !(object->is_program && texts_have(&object->defined, call));
}

bool looked_up_is_seen(const struct checked *checked)
{
	const struct object *object = checked->members[0]->object;

	return is_reached(checked) && !(object->is_program && object->defines_dlsym);
}

/* What a preload does not get before, although it is loaded. */
static void find_gaps(struct checked *checked)
{
	const struct object *program = checked->members[0]->object;
	const char *deepbind = getenv("PINDOWN_DEEPBIND");

	if (program->is_program && program->defined.count)
		say(&checked->reasons,
		    text_of("%s has %s%s of its own, and a program's own functions go before every "
			    "preload",
			    short_name(program->path), program->defined.list[0],
			    program->defined.count > 1 ? " and others" : ""));
	if (program->is_program && program->defines_dlsym)
		say(&checked->reasons, text_of("%s has dlsym of its own, which goes before every "
					       "preload: what is looked up is not seen",
					       short_name(program->path)));
	for (unsigned i = 0; i < checked->count; i++)
		if (checked->members[i]->object->deepbind_calls && deepbind &&
		    strcmp(deepbind, "keep") == 0)
			say(&checked->reasons,
			    text_of("%s opens libraries with RTLD_DEEPBIND, and "
				    "PINDOWN_DEEPBIND is "
				    "keep: what those are linked with is not seen",
				    short_name(checked->members[i]->object->path)));
}

/* For what uses no CUDA itself. */
static void note_plugins(struct checked *checked)
{
	for (unsigned i = 0; i < checked->count; i++) {
		const struct object *object = checked->members[i]->object;

		if (!object->uses_dlopen)
			continue;
		say(&checked->notes,
		    text_of("%s opens libraries at run time (dlopen), which may use CUDA: "
			    "check those too",
			    short_name(object->path)));
		return;
	}
}

static void find_notes(struct checked *checked)
{
	if (checked->verdict == NO_CUDA)
		note_plugins(checked);
	for (unsigned i = 0; i < checked->count; i++) {
		const struct object *object = checked->members[i]->object;
		const char *name = short_name(object->path);

		if (object->deepbind_calls && checked->reasons.count == 0)
			say(&checked->notes, text_of("%s opens libraries with RTLD_DEEPBIND, "
						     "which would go round the "
						     "preload: pindown clears that flag",
						     name));
		/* The runtime has it too, and opens the driver with dlopen all the same. */
		if (object->uses_dlmopen && !object->has_runtime)
			say(&checked->notes, text_of("%s uses dlmopen: what it opens in a "
						     "namespace of its own is not "
						     "seen",
						     name));
		if (!object->is_program && object->defined.count)
			say(&checked->notes, text_of("%s has functions of the driver's names "
						     "(%s ...): pindown's come "
						     "first and call those",
						     name, object->defined.list[0]));
	}
	for (unsigned i = 0; i < checked->missing.count; i++)
		say(&checked->notes,
		    text_of("%s is needed and was not found", checked->missing.list[i]));
	if (checked->needs_driver && !checked->driver)
		say(&checked->notes, text_of("libcuda.so.1, the driver, is not on this machine"));
}

static void judge(struct checked *checked)
{
	const char *why = checked->members[0]->object->is_program || checked->script
				  ? why_unreachable(checked)
				  : NULL;
	bool reaches = checked->needs_driver;

	for (unsigned i = 0; i < checked->count; i++)
		reaches |= reaches_driver(checked->members[i]->object);
	checked->unreachable = why;
	checked->verdict = SEEN;
	if (why) {
		checked->verdict = UNSEEN;
		say(&checked->reasons,
		    text_of("%s %s", short_name(checked->members[0]->object->path), why));
	} else {
		find_gaps(checked);
		if (checked->reasons.count)
			checked->verdict = PARTLY;
	}
	if (!reaches)
		checked->verdict = NO_CUDA;
	find_notes(checked);
}

/* ---- one file ------------------------------------------------------------------------------ */

static struct object *read_asked(struct checked *checked, const char *name)
{
	char path[PATH_MAX], interpreter[PATH_MAX];
	struct object *object;
	const char *why;

	/* A name without a slash is a file here or else a program of $PATH. */
	if (access(name, F_OK) == 0)
		snprintf(path, sizeof(path), "%s", name);
	else if (!program_find(name, path, sizeof(path))) {
		complain("%s: no such file%s", name,
			 strchr(name, '/') ? "" : ", and no program in PATH");
		return NULL;
	}
	object = object_read(path, &why);
	if (object)
		return object;
	if (program_interpreter(path, interpreter, sizeof(interpreter))) {
		object = object_read(interpreter, &why);
		if (object)
			checked->script = text_of("%s", path);
		else
			complain("%s: runs %s, but %s", name, interpreter, why);
	} else if (interpreter[0]) {
		complain("%s: is to be run by %s, which is not there", name, interpreter);
	} else {
		complain("%s: %s; a program, a library or a script is wanted", name, why);
	}
	return object;
}

struct checked *check_file(const char *name)
{
	struct checked *checked = allocate(sizeof(*checked));
	struct object *object = read_asked(checked, name);

	if (!object) {
		release(checked);
		return NULL;
	}
	checked->asked = text_of("%s", name);
	add_member(checked, object, NULL);
	follow(checked);
	judge(checked);
	return checked;
}

void check_free(struct checked *checked)
{
	for (unsigned i = 0; i < checked->count; i++) {
		object_free(checked->members[i]->object);
		release(checked->members[i]);
	}
	release(checked->members);
	texts_free(&checked->missing);
	texts_free(&checked->reasons);
	texts_free(&checked->notes);
	release(checked->asked);
	release(checked->script);
	release(checked->driver);
	release(checked);
}
