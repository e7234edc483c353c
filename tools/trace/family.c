// SPDX-License-Identifier: MIT
/*
 * Finds the files of a family: PINDOWN_TRACE=app.pdt makes app.<pid>.pdt, one for each process, and
 * app.pdt stands for all of them.
 */
#define _GNU_SOURCE
#include "tools/trace/reader.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"

static const char *skip_number(const char *text)
{
	const char *end = text;

	while (isdigit((unsigned char)*end))
		end++;
	return end > text ? end : NULL;
}

/* ".123.pdt", or ".123.1.pdt" for the second file of a process. */
static bool is_tail(const char *text)
{
	for (unsigned numbers = 0; numbers < 2; numbers++) {
		if (*text != '.' || !(text = skip_number(text + 1)))
			return false;
		if (strcmp(text, ".pdt") == 0)
			return true;
	}
	return false;
}

static bool is_member(const char *name, const char *stem, size_t length)
{
	return strncmp(name, stem, length) == 0 && is_tail(name + length);
}

static int compare_names(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

static void add(char ***files, unsigned *count, unsigned *capacity, const char *folder,
		size_t folder_length, const char *name)
{
	char *path = allocate(folder_length + strlen(name) + 1);

	memcpy(path, folder, folder_length);
	strcpy(path + folder_length, name);
	*files = grow(*files, capacity, *count, sizeof(**files));
	(*files)[(*count)++] = path;
}

bool family_find(const char *name, char ***files, unsigned *count, unsigned *capacity)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
	size_t folder_length = (size_t)(base - name), length = strlen(base);
	char *folder =
		text_of("%.*s", folder_length ? (int)folder_length : 1, folder_length ? name : ".");
	unsigned before = *count;
	struct dirent *found;
	DIR *directory = NULL;

	if (access(name, F_OK) == 0) {
		add(files, count, capacity, name, folder_length, base);
	} else if ((directory = opendir(folder))) {
		if (length > 4 && strcmp(base + length - 4, ".pdt") == 0)
			length -= 4;
		while ((found = readdir(directory)))
			if (is_member(found->d_name, base, length))
				add(files, count, capacity, name, folder_length, found->d_name);
		closedir(directory);
		if (*count > before)
			sort(*files + before, *count - before, sizeof(**files), compare_names);
	}
	if (*count == before)
		complain("%s: no such file, and no %.*s%.*s.<pid>.pdt either", name,
			 (int)folder_length, name, (int)length, base);
	release(folder);
	return *count > before;
}
