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
#include "tools/check/shell.h"
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

static bool is_shared_runtime(const struct elf_file *file)
{
	const char *name = file->soname ? file->soname : short_name(file->path);

	return file->has_runtime && strncmp(name, "libcudart.so", 12) == 0;
}

/* A name alone does not mean a look-up: many libraries have lists of names for messages. */
static bool looks_up(const struct elf_file *file)
{
	return file->named.count &&
	       (file->uses_dlsym || file->names_driver || file->asks_proc_address);
}

bool reaches_driver(const struct elf_file *file)
{
	return file->linked.count || file->has_runtime || looks_up(file);
}

char *how_it_reaches(const struct elf_file *file)
{
	bool linked = file->linked.count != 0;
	const char *up = file->asks_proc_address ? "by cuGetProcAddress" : "by dlsym";

	if (is_shared_runtime(file))
		return text_of("the CUDA runtime, shared; looks functions up by cuGetProcAddress");
	if (file->has_runtime)
		return text_of("%scontains the CUDA runtime (static), which looks functions up by "
			       "cuGetProcAddress",
			       linked ? "linked with the driver; " : "");
	if (linked && looks_up(file))
		return text_of("linked with the driver; looks functions up %s", up);
	if (linked)
		return text_of("linked with the driver");
	return text_of("looks functions up %s%s", up,
		       file->names_driver && file->uses_dlopen ? ", after opening libcuda.so" : "");
}

static void say(struct texts *to, char *text)
{
	texts_add_once(to, text);
	release(text);
}

/* ---- the libraries ------------------------------------------------------------------------- */

static bool is_there(const struct checked *checked, const char *name)
{
	for (unsigned i = 0; i < checked->count; i++) {
		const struct elf_file *file = checked->members[i]->file;

		if ((file->soname && strcmp(file->soname, name) == 0) ||
		    strcmp(file->path, name) == 0 ||
		    (i && strcmp(short_name(file->path), name) == 0))
			return true;
	}
	return false;
}

static struct member *add_member(struct checked *checked, struct elf_file *file,
				 const struct member *by)
{
	struct member *member = allocate(sizeof(*member));

	member->file = file;
	member->needer = (struct needer){file, by ? &by->needer : NULL};
	checked->members = grow(checked->members, &checked->capacity, checked->count,
				sizeof(*checked->members));
	checked->members[checked->count++] = member;
	return member;
}

/* False when there is no such library. */
static bool add_library(struct checked *checked, const char *name, const struct member *by,
			bool opened)
{
	struct elf_file *file;
	const char *why;
	bool found;
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
	file = path ? elf_file_read(path, &why) : NULL;
	if (file)
		add_member(checked, file, by)->opened = opened;
	else if (path)
		say(&checked->unread, text_of("%s is needed, but %s", path, why));
	found = path;
	release(path);
	return found;
}

static void follow(struct checked *checked)
{
	for (unsigned i = 0; i < checked->count; i++) {
		const struct member *member = checked->members[i];
		const struct elf_file *file = member->file;

		for (unsigned n = 0; n < file->needed.count; n++)
			if (!add_library(checked, file->needed.list[n], member, false))
				texts_add_once(&checked->missing, file->needed.list[n]);
		for (unsigned n = 0; n < file->opened.count && !is_shared_runtime(file); n++)
			add_library(checked, file->opened.list[n], member, true);
	}
}

/* ---- the verdict --------------------------------------------------------------------------- */

/* Why a preload can't reach it: the end of a sentence, or NULL. */
static const char *why_unreachable(const struct checked *checked)
{
	const struct elf_file *file = checked->members[0]->file;

	if (file->elf_class == ELFCLASS64 && file->machine != OUR_MACHINE)
		return "is for another kind of processor than libpindown.so";
	return program_unreachable(file->path);
}

bool is_reached(const struct checked *checked)
{
	return !checked->unreachable;
}

bool linked_is_seen(const struct checked *checked, const char *call)
{
	const struct elf_file *file = checked->members[0]->file;

	return is_reached(checked) && !(file->is_program && texts_have(&file->defined, call));
}

bool looked_up_is_seen(const struct checked *checked)
{
	const struct elf_file *file = checked->members[0]->file;

	return is_reached(checked) && !(file->is_program && file->defines_dlsym);
}

/* Finds calls that pindown will not see although it is loaded. */
static void find_gaps(struct checked *checked)
{
	const struct elf_file *program = checked->members[0]->file;

	if (program->is_program && program->defined.count)
		say(&checked->reasons,
		    text_of("%s defines %s%s itself, and a program's own functions come before "
			    "every preload",
			    short_name(program->path), program->defined.list[0],
			    program->defined.count > 1 ? " and others" : ""));
	if (program->is_program && program->defines_dlsym)
		say(&checked->reasons, text_of("%s defines dlsym itself, which comes before every "
					       "preload: calls looked up by it are not seen",
					       short_name(program->path)));
}

/* For programs that do not use CUDA themselves. */
static void note_plugins(struct checked *checked)
{
	for (unsigned i = 0; i < checked->count; i++) {
		const struct elf_file *file = checked->members[i]->file;

		if (!file->uses_dlopen)
			continue;
		say(&checked->notes,
		    text_of("%s opens libraries at run time (dlopen), which may use CUDA: "
			    "check those too",
			    short_name(file->path)));
		return;
	}
}

static void find_notes(struct checked *checked)
{
	if (checked->verdict >= NO_CUDA)
		note_plugins(checked);
	else
		note_company(checked);
	for (unsigned i = 0; checked->verdict < NO_CUDA && i < checked->unread.count; i++)
		say(&checked->notes, text_of("%s", checked->unread.list[i]));
	for (unsigned i = 0; i < checked->count; i++) {
		const struct elf_file *file = checked->members[i]->file;
		const char *name = short_name(file->path);

		/* The CUDA runtime binds dlmopen too, but opens the driver with dlopen. */
		if (file->uses_dlmopen && !file->has_runtime)
			say(&checked->notes, text_of("%s uses dlmopen: calls of libraries in a "
						     "separate namespace are not seen",
						     name));
		if (!file->is_program && file->defined.count)
			say(&checked->notes,
			    text_of("%s defines functions with names of the driver's "
				    "(%s ...): pindown's come first and call "
				    "them",
				    name, file->defined.list[0]));
	}
	for (unsigned i = 0; i < checked->missing.count; i++)
		say(&checked->notes,
		    text_of("%s is needed and was not found", checked->missing.list[i]));
	if (checked->needs_driver && !checked->driver)
		say(&checked->notes, text_of("libcuda.so.1, the driver, is not on this machine"));
}

/* Why a program may use CUDA although its files show nothing. */
static void find_unknown(struct checked *checked)
{
	const struct elf_file *program = checked->members[0]->file;
	bool is_static = program->is_program && !program->interpreter;

	for (unsigned i = 0; i < checked->unread.count; i++)
		say(&checked->reasons, text_of("%s", checked->unread.list[i]));
	for (unsigned i = 0; i < checked->count; i++)
		if (checked->members[i]->file->is_unread)
			say(&checked->reasons, text_of("a part of %s could not be read",
						       checked->members[i]->file->path));
	if (program->is_program && program->other_data >= 4096)
		say(&checked->reasons,
		    text_of("%s holds %s of data of no known kind, which may "
			    "have other programs in it",
			    program->path, bytes_text(program->other_data).text));
	if (is_static && !program->has_sections)
		say(&checked->reasons, text_of("%s is statically linked and has no section "
					       "headers: it may be packed",
					       program->path));
	if (checked->script && (shell_is(program->path) || is_static))
		say(&checked->reasons, text_of("%s does not, but the script may start programs "
					       "that do: check those",
					       program->path));
}

static void judge(struct checked *checked)
{
	const char *why = checked->members[0]->file->is_program || checked->script
				  ? why_unreachable(checked)
				  : NULL;
	bool reaches = checked->needs_driver;

	for (unsigned i = 0; i < checked->count; i++)
		reaches |= reaches_driver(checked->members[i]->file);
	checked->unreachable = why;
	checked->verdict = SEEN;
	if (why) {
		checked->verdict = UNSEEN;
		say(&checked->reasons,
		    text_of("%s %s", short_name(checked->members[0]->file->path), why));
	} else {
		find_gaps(checked);
		if (checked->reasons.count)
			checked->verdict = PARTLY;
	}
	if (!reaches) {
		unsigned before = checked->reasons.count;

		find_unknown(checked);
		checked->verdict = checked->reasons.count > before ? UNKNOWN : NO_CUDA;
	}
	find_notes(checked);
}

/* ---- one file ------------------------------------------------------------------------------ */

/* Linux follows a chain of at most this many scripts. */
enum { MOST_SCRIPTS = 5 };

/* As program_interpreter(), and through scripts of a shell that become another program. */
static bool find_interpreter(const char *path, char *interpreter)
{
	bool found = program_interpreter(path, interpreter, PATH_MAX);
	char script[PATH_MAX + 2], program[PATH_MAX];

	snprintf(script, sizeof(script), "%s%s", strchr(path, '/') ? "" : "./", path);
	for (unsigned i = 0; i < MOST_SCRIPTS && found && shell_is(interpreter) &&
			     shell_becomes(script, program, sizeof(program));
	     i++) {
		snprintf(script, sizeof(script), "%s", program);
		found = program_interpreter(script, interpreter, PATH_MAX) || !*interpreter;
		if (!*interpreter) /* it is no script */
			snprintf(interpreter, PATH_MAX, "%s", program);
	}
	return found;
}

static struct elf_file *read_asked(struct checked *checked, const char *name)
{
	char path[PATH_MAX], interpreter[PATH_MAX];
	struct elf_file *file;
	const char *why;

	/* A name without a slash is a file here, or else a program in $PATH. */
	if (access(name, F_OK) == 0)
		snprintf(path, sizeof(path), "%s", name);
	else if (!program_find(name, path, sizeof(path))) {
		complain("%s: no such file%s", name,
			 strchr(name, '/') ? "" : ", and no program in PATH");
		return NULL;
	}
	file = elf_file_read(path, &why);
	if (file)
		return file;
	if (find_interpreter(path, interpreter)) {
		file = elf_file_read(interpreter, &why);
		if (file)
			checked->script = text_of("%s", path);
		else
			complain("%s: its interpreter is %s, but %s", name, interpreter, why);
	} else if (interpreter[0]) {
		complain("%s: its interpreter %s does not exist", name, interpreter);
	} else {
		complain("%s: %s; expected a program, a library or a script", name, why);
	}
	return file;
}

struct checked *check_file(const char *name)
{
	struct checked *checked = allocate(sizeof(*checked));
	struct elf_file *file = read_asked(checked, name);

	if (!file) {
		release(checked);
		return NULL;
	}
	checked->asked = text_of("%s", name);
	add_member(checked, file, NULL);
	follow(checked);
	judge(checked);
	return checked;
}

void check_free(struct checked *checked)
{
	for (unsigned i = 0; i < checked->count; i++) {
		elf_file_free(checked->members[i]->file);
		release(checked->members[i]);
	}
	release(checked->members);
	texts_free(&checked->missing);
	texts_free(&checked->unread);
	texts_free(&checked->reasons);
	texts_free(&checked->notes);
	release(checked->asked);
	release(checked->script);
	release(checked->driver);
	release(checked);
}
