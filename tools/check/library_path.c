// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "tools/check/library_path.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/library_cache.h"
#include "tools/base/memory.h"

static bool is_64(const struct object *object)
{
	return object->elf_class == ELFCLASS64;
}

/* The folders of the system, by machine: those of Debian, of others, of all. */
static const char *multiarch(const struct object *object)
{
	switch (object->machine) {
	case EM_X86_64:
		return is_64(object) ? "x86_64-linux-gnu" : "x86_64-linux-gnux32";
	case EM_AARCH64:
		return "aarch64-linux-gnu";
	case EM_386:
		return "i386-linux-gnu";
	}
	return NULL;
}

/* The folder that an object is in, its links resolved, as the loader takes $ORIGIN; for free(). */
static char *origin_of(const struct object *object)
{
	char *real = realpath(object->path, NULL);
	char *slash = real ? strrchr(real, '/') : NULL;

	if (slash)
		*slash = '\0';
	return real;
}

/* "$NAME" or "${NAME}" at the beginning of text: its length there, or 0. */
static size_t variable_at(const char *text, size_t length, const char *name)
{
	bool braces = length > 1 && text[1] == '{';
	size_t size = strlen(name), whole = 1 + size + 2u * braces;

	if (length < whole || strncmp(text + 1 + braces, name, size) != 0 ||
	    (braces && text[whole - 1] != '}'))
		return 0;
	return whole;
}

/* A folder of a list, with $ORIGIN, $PLATFORM and $LIB (which is `lib`) replaced. */
static char *expand(const struct object *object, const char *text, size_t length, const char *lib)
{
	char *origin = origin_of(object), *result = NULL, *copy;
	const char *const words[][2] = {
		{"ORIGIN", origin ? origin : "."},
		{"LIB", lib},
		{"PLATFORM",
		 object->machine == EM_X86_64 ? "x86_64" : machine_name(object->machine)},
	};
	size_t size;
	FILE *to = open_memstream(&result, &size);

	for (size_t i = 0, took; to && i < length; i += took) {
		took = 0;
		for (unsigned w = 0; text[i] == '$' && w < 3 && !took; w++) {
			took = variable_at(text + i, length - i, words[w][0]);
			if (took)
				fputs(words[w][1], to);
		}
		if (!took) {
			fputc(text[i], to);
			took = 1;
		}
	}
	if (to)
		fclose(to);
	free(origin);
	copy = text_of("%s", result ? result : "");
	free(result);
	return copy;
}

/* What $LIB stands for depends on how the loader was built. */
static char *lib_folder(const struct object *object, bool debian)
{
	if (debian)
		return text_of("lib/%s", multiarch(object) ? multiarch(object) : "");
	return text_of("%s", is_64(object) ? "lib64" : "lib");
}

static char *try(const struct object *object, const char *folder, const char *name)
{
	char *path = text_of("%s%s%s", *folder ? folder : ".",
			     *folder && folder[strlen(folder) - 1] == '/' ? "" : "/", name);

	if (object_fits(path, object->elf_class, object->machine))
		return path;
	release(path);
	return NULL;
}

static char *try_folder(const struct object *of, const char *text, size_t length, const char *name)
{
	char *found = NULL;

	for (int debian = 1; debian >= 0 && !found; debian--) {
		char *lib = lib_folder(of, debian);
		char *folder = expand(of, text, length, lib);

		found = try(of, folder, name);
		release(folder);
		release(lib);
	}
	return found;
}

/* A list with colons between; `of` is the object whose list it is. */
static char *try_list(const struct object *of, const char *list, const char *name)
{
	char *found = NULL;

	while (list && *list && !found) {
		size_t length = strcspn(list, ":;");

		found = try_folder(of, list, length, name);
		list += length;
		list += *list != '\0';
	}
	return found;
}

static char *try_system(const struct object *object, const char *name)
{
	const char *arch = multiarch(object);
	static const char *const folders[] = {"/lib", "/usr/lib"};
	char *found = NULL;

	for (unsigned i = 0; i < 2 && !found; i++) {
		char *debian = text_of("%s/%s", folders[i], arch ? arch : "");
		char *others = text_of("%s%s", folders[i], is_64(object) ? "64" : "32");

		found = try(object, debian, name);
		if (!found)
			found = try(object, others, name);
		if (!found)
			found = try(object, folders[i], name);
		release(debian);
		release(others);
	}
	return found;
}

/* DT_RPATH of the object and of those that needed it; one with DT_RUNPATH has no other list. */
static char *try_rpaths(const struct needer *needer, const char *name)
{
	char *found = NULL;

	if (needer->object->runpath)
		return NULL;
	for (; needer && !found; needer = needer->by)
		if (!needer->object->runpath)
			found = try_list(needer->object, needer->object->rpath, name);
	return found;
}

char *library_find(const struct needer *needer, const char *name)
{
	const struct object *object = needer->object;
	char *found;

	if (strchr(name, '/')) {
		char *path = expand(object, name, strlen(name), "lib");

		if (access(path, R_OK) == 0)
			return path;
		release(path);
		return NULL;
	}
	found = try_rpaths(needer, name);
	if (!found)
		found = try_list(object, getenv("LD_LIBRARY_PATH"), name);
	if (!found)
		found = try_list(object, object->runpath, name);
	if (!found)
		found = library_cache_find(object, name);
	if (!found)
		found = try_system(object, name);
	return found;
}
