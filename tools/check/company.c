// SPDX-License-Identifier: MIT
/*
 * pindown check: libraries that watch CUDA, replace the loader's functions or come before every
 * preload. tests/apps/check-company and check-tsan show that pindown works beside them.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/check/check.h"

static const struct {
	const char *name; /* the begin of a library's name */
	const char *note; /* what follows the name */
} companions[] = {
	{"libucm.so", "(UCX) catches CUDA's frees too: both see each one while "
		      "UCX_MEM_CUDA_HOOK_MODE is bistro, its default; with reloc, pindown checks "
		      "every hit by buffer id"},
	{"libvgpu.so", "(HAMi-core) replaces dlsym and dlopen: pindown sees every call all the "
		       "same, in either order of the two preloads"},
	{"libasan.so", "(AddressSanitizer) asks to be the first preload: put it before "
		       "libpindown.so, or set ASAN_OPTIONS=verify_asan_link_order=0"},
	{"libtsan.so", "(ThreadSanitizer) is best the first preload: put it before libpindown.so"},
};

static void note_library(struct checked *checked, const char *path)
{
	const char *name = short_name(path);

	for (unsigned i = 0; i < sizeof(companions) / sizeof(companions[0]); i++) {
		char *note;

		if (strncmp(name, companions[i].name, strlen(companions[i].name)) != 0)
			continue;
		note = text_of("%s %s", name, companions[i].note);
		texts_add_once(&checked->notes, note);
		release(note);
	}
}

/* A list as in LD_PRELOAD; NULL: none. */
static void note_list(struct checked *checked, const char *list)
{
	while (list && *list) {
		size_t length = strcspn(list, ": \t\n");
		char *path = text_of("%.*s", (int)length, list);

		note_library(checked, path);
		release(path);
		list += length;
		list += *list != '\0';
	}
}

static void note_system_preload(struct checked *checked)
{
	char list[4096];
	int fd = open("/etc/ld.so.preload", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd >= 0 ? read(fd, list, sizeof(list) - 1) : 0;

	if (fd >= 0)
		close(fd);
	list[length > 0 ? length : 0] = '\0';
	note_list(checked, list);
}

void note_company(struct checked *checked)
{
	const char *audit = getenv("LD_AUDIT");

	for (unsigned i = 0; i < checked->count; i++)
		note_library(checked, checked->members[i]->file->path);
	note_list(checked, getenv("LD_PRELOAD"));
	note_system_preload(checked);
	if (audit && *audit) {
		char *note = text_of("LD_AUDIT=%s: pindown sees the program's calls; those of the "
				     "auditing library itself are in a namespace of their own, and "
				     "not seen",
				     audit);

		texts_add_once(&checked->notes, note);
		release(note);
	}
}
