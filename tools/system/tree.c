// SPDX-License-Identifier: MIT
/* Reads files of /sys, /proc and /dev, or of a copy of them. */
#define _GNU_SOURCE
#include "tools/system/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/memory.h"

static char root[PATH_MAX] = ""; /* does not end with a slash */
static bool other;

bool tree_set_root(const char *folder)
{
	struct stat status;

	if (stat(folder, &status) != 0 || !realpath(folder, root))
		return false;
	if (!S_ISDIR(status.st_mode)) {
		errno = ENOTDIR;
		return false;
	}
	other = strcmp(root, "/") != 0;
	if (!other)
		root[0] = '\0';
	return true;
}

bool tree_is_live(void)
{
	return !other;
}

struct path {
	char text[PATH_MAX];
};

static struct path path_of(const char *format, va_list arguments)
{
	struct path path;
	size_t used = strlen(root);

	memcpy(path.text, root, used);
	path.text[used++] = '/';
	vsnprintf(path.text + used, sizeof(path.text) - used, format, arguments);
	return path;
}

#define PATH_FROM(path, format)                    \
	struct path path;                          \
	do {                                       \
		va_list arguments;                 \
		va_start(arguments, format);       \
		path = path_of(format, arguments); \
		va_end(arguments);                 \
	} while (0)

static size_t read_file(const char *path, void *bytes, size_t capacity)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t used = 0;
	ssize_t n = 1;

	if (fd < 0)
		return 0;
	while (used < capacity && (n = read(fd, (char *)bytes + used, capacity - used)) != 0) {
		if (n > 0)
			used += (size_t)n;
		else if (errno != EINTR)
			break;
	}
	close(fd);
	return used;
}

char *tree_read(const char *format, ...)
{
	enum { MAX_TEXT = 1 << 28 }; /* the module's list has a line for each region */
	size_t size = 1 << 14, used;
	struct stat status;
	char *text;

	PATH_FROM(path, format);
	if (stat(path.text, &status) != 0 || !S_ISREG(status.st_mode) ||
	    access(path.text, R_OK) != 0)
		return NULL;
	text = allocate(size + 1);
	while ((used = read_file(path.text, text, size)) == size && size < MAX_TEXT) {
		release(text);
		size *= 4;
		text = allocate(size + 1);
	}
	if (used && text[used - 1] == '\n')
		text[used - 1] = '\0';
	return text;
}

bool tree_number(int64_t *value, const char *format, ...)
{
	char text[64] = "", *end;

	PATH_FROM(path, format);
	read_file(path.text, text, sizeof(text) - 1);
	errno = 0;
	*value = strtoll(text, &end, 0);
	return end != text && !errno;
}

size_t tree_bytes(void *bytes, size_t capacity, const char *format, ...)
{
	PATH_FROM(path, format);
	return read_file(path.text, bytes, capacity);
}

bool tree_has(const char *format, ...)
{
	PATH_FROM(path, format);
	return access(path.text, F_OK) == 0;
}

struct texts tree_list(const char *format, ...)
{
	struct texts names = {0};
	const struct dirent *entry;
	DIR *folder;

	PATH_FROM(path, format);
	folder = opendir(path.text);
	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			texts_add(&names, entry->d_name, strlen(entry->d_name));
	if (folder)
		closedir(folder);
	texts_sort(&names);
	return names;
}

char *tree_resolve(const char *format, ...)
{
	size_t length = strlen(root);
	char *real, *inside = NULL;

	PATH_FROM(path, format);
	real = realpath(path.text, NULL);
	if (real && strncmp(real, root, length) == 0 && real[length] == '/')
		inside = text_of("%s", real + length + 1);
	free(real);
	return inside;
}

char *tree_link(const char *format, ...)
{
	char target[PATH_MAX];
	ssize_t length;

	PATH_FROM(path, format);
	length = readlink(path.text, target, sizeof(target) - 1);
	if (length <= 0)
		return NULL;
	target[length] = '\0';
	return text_of("%s", strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
}
