// SPDX-License-Identifier: MIT
/* Finds a needed library in the loader's order of search. */
#define _GNU_SOURCE
#include "tools/check/library_path.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/library_cache.h"
#include "tools/base/memory.h"
#include "tools/system/programs.h"

static bool is_64(const struct elf_file *file)
{
	return file->elf_class == ELFCLASS64;
}

/* The name of the machine's library folders in Debian. */
static const char *multiarch(const struct elf_file *file)
{
	switch (file->machine) {
	case EM_X86_64:
		return is_64(file) ? "x86_64-linux-gnu" : "x86_64-linux-gnux32";
	case EM_AARCH64:
		return "aarch64-linux-gnu";
	case EM_386:
		return "i386-linux-gnu";
	}
	return NULL;
}

/* The file's folder with links resolved, as the loader defines $ORIGIN; for free(). */
static char *origin_of(const struct elf_file *file)
{
	char *real = realpath(file->path, NULL);
	char *slash = real ? strrchr(real, '/') : NULL;

	if (slash)
		*slash = '\0';
	return real;
}

/* The length of "$NAME" or "${NAME}" at the beginning of the text; 0 when it is not there. */
static size_t variable_at(const char *text, size_t length, const char *name)
{
	bool braces = length > 1 && text[1] == '{';
	size_t size = strlen(name), whole = 1 + size + (braces ? 2 : 0);

	if (length < whole || strncmp(text + 1 + braces, name, size) != 0 ||
	    (braces && text[whole - 1] != '}'))
		return 0;
	return whole;
}

/* Replaces $ORIGIN, $PLATFORM and $LIB (by `lib`) in a folder of a list. */
static char *expand(const struct elf_file *file, const char *text, size_t length, const char *lib)
{
	char *origin = origin_of(file), *result = NULL, *copy;
	const char *const words[][2] = {
		{"ORIGIN", origin ? origin : "."},
		{"LIB", lib},
		{"PLATFORM",
		 file->machine == EM_X86_64 ? "x86_64" : program_machine_name(file->machine)},
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

/* The value of $LIB depends on how the loader was built. */
static char *lib_folder(const struct elf_file *file, bool debian)
{
	if (debian)
		return text_of("lib/%s", multiarch(file) ? multiarch(file) : "");
	return text_of("%s", is_64(file) ? "lib64" : "lib");
}

static char *try(const struct elf_file *file, const char *folder, const char *name)
{
	char *path = text_of("%s%s%s", *folder ? folder : ".",
			     *folder && folder[strlen(folder) - 1] == '/' ? "" : "/", name);

	if (elf_file_fits(path, file->elf_class, file->machine))
		return path;
	release(path);
	return NULL;
}

static char *try_folder(const struct elf_file *of, const char *text, size_t length,
			const char *name)
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

/* Tries the folders of a list, separated by colons; `of` is the file that has the list. */
static char *try_list(const struct elf_file *of, const char *list, const char *name)
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

static char *try_system(const struct elf_file *file, const char *name)
{
	const char *arch = multiarch(file);
	static const char *const folders[] = {"/lib", "/usr/lib"};
	char *found = NULL;

	for (unsigned i = 0; i < 2 && !found; i++) {
		char *debian = text_of("%s/%s", folders[i], arch ? arch : "");
		char *others = text_of("%s%s", folders[i], is_64(file) ? "64" : "32");

		found = try(file, debian, name);
		if (!found)
			found = try(file, others, name);
		if (!found)
			found = try(file, folders[i], name);
		release(debian);
		release(others);
	}
	return found;
}

/*
 * Tries DT_RPATH of the file and of the files that needed it. A file with DT_RUNPATH uses no
 * DT_RPATH at all.
 */
static char *try_rpaths(const struct needer *needer, const char *name)
{
	char *found = NULL;

	if (needer->file->runpath)
		return NULL;
	for (; needer && !found; needer = needer->by)
		if (!needer->file->runpath)
			found = try_list(needer->file, needer->file->rpath, name);
	return found;
}

char *library_find(const struct needer *needer, const char *name)
{
	const struct elf_file *file = needer->file;
	char *found;

	if (strchr(name, '/')) {
		char *path = expand(file, name, strlen(name), "lib");

		if (access(path, R_OK) == 0)
			return path;
		release(path);
		return NULL;
	}
	found = try_rpaths(needer, name);
	if (!found)
		found = try_list(file, getenv("LD_LIBRARY_PATH"), name);
	if (!found)
		found = try_list(file, file->runpath, name);
	if (!found)
		found = library_cache_find(file, name);
	if (!found)
		found = try_system(file, name);
	return found;
}
