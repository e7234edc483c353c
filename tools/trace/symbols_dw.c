// SPDX-License-Identifier: MIT
/* Resolves addresses in programs and libraries by their debug information, with libdwfl. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/regular.h"
#include "tools/trace/symbols.h"
#include "tools/base/texts.h"

const bool symbols_are_read = true;

/* Each module has a session of its own, in which its file lies at its link-time addresses. */
struct opened {
	const struct trace_module *module;
	Dwfl *session;
	Dwfl_Module *file; /* NULL: none was found */
};

static struct opened *list;
static unsigned count, capacity;

/* ---- what libdw opens ----------------------------------------------------------------------- */

/*
 * A program's file names further files with debug information: its own (.gnu_debuglink), one that
 * several programs share (.gnu_debugaltlink), those of split units. Anybody can have made these
 * names, and libdw opens each of them without a look at what it is. Its calls of open() arrive
 * here, since the functions of a program come before those of the C library. While names are looked
 * up, everything but regular files is as if it did not exist.
 */
static bool guarded;

static bool is_unknown(int flags)
{
	/* open_regular() gets here, too: it opens with O_PATH or O_NONBLOCK. */
	return guarded && !(flags & (O_PATH | O_NONBLOCK | O_CREAT)) &&
	       (flags & O_ACCMODE) == O_RDONLY;
}

static int open_if_regular(const char *path)
{
	int fd = open_regular(path, 0);

	if (fd < 0 && errno == EINVAL)
		errno = ENOENT;
	return fd;
}

/* The next function of that name may be another preloaded library's, which must see the call. */
static int open_as_asked(const char *function, const char *path, int flags, va_list arguments)
{
	bool has_mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
	int (*next)(const char *path, int flags, ...);

	if (is_unknown(flags))
		return open_if_regular(path);
	*(void **)&next = dlsym(RTLD_NEXT, function);
	return next(path, flags, has_mode ? va_arg(arguments, mode_t) : 0);
}

/* By these names the linker finds them; for the compiler they have others than its own open(). */
#define PUBLIC __attribute__((visibility("default"), used))
PUBLIC int our_open(const char *path, int flags, ...) __asm__("open");
PUBLIC int our_open64(const char *path, int flags, ...) __asm__("open64");

int our_open(const char *path, int flags, ...)
{
	va_list arguments;
	int fd;

	va_start(arguments, flags);
	fd = open_as_asked("open", path, flags, arguments);
	va_end(arguments);
	return fd;
}

int our_open64(const char *path, int flags, ...)
{
	va_list arguments;
	int fd;

	va_start(arguments, flags);
	fd = open_as_asked("open64", path, flags, arguments);
	va_end(arguments);
	return fd;
}

/* ---- finding the file ----------------------------------------------------------------------- */

/* Whether the file is the one that was traced: the build ids must be equal. */
static bool is_that(int fd, const struct trace_module *module)
{
	const void *id;
	ssize_t length;
	bool same;
	Elf *elf;

	elf_version(EV_CURRENT);
	/* Not mapped: who truncates a mapped file ends its reader by SIGBUS. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return false;
	length = dwelf_elf_gnu_build_id(elf, &id);
	same = module->id_length ? length == (ssize_t)module->id_length &&
					   memcmp(id, module->id, module->id_length) == 0
				 : length <= 0;
	elf_end(elf);
	return same;
}

static int try_path(const char *path, const struct trace_module *module)
{
	int fd = open_regular(path, 0); /* the trace may name any file */

	if (fd >= 0 && !is_that(fd, module)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* FOLDER/.build-id/ab/cdef...TAIL */
static int try_build_id(const char *folder, const struct trace_module *module, const char *tail)
{
	char path[4096];
	int used;

	if (module->id_length < 3)
		return -1;
	used = snprintf(path, sizeof(path) - 200, "%s/.build-id/%02x/", folder, module->id[0]);
	if (used <= 0 || used >= (int)sizeof(path) - 200)
		return -1;
	for (unsigned i = 1; i < module->id_length; i++)
		used += sprintf(path + used, "%02x", module->id[i]);
	strcpy(path + used, tail);
	return try_path(path, module);
}

static int try_folder(const char *folder, const struct trace_module *module)
{
	const char *slash = strrchr(module->path, '/');
	char path[4096];
	int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", folder, slash ? slash + 1 : module->path);
	fd = try_path(path, module);
	if (fd < 0)
		fd = try_build_id(folder, module, "");
	return fd < 0 ? try_build_id(folder, module, ".debug") : fd;
}

static int find_file(const struct trace_module *module, const char *folder)
{
	int fd = folder ? try_folder(folder, module) : -1;

	if (fd < 0 && module->path[0] == '/')
		fd = try_path(module->path, module);
	if (fd < 0)
		fd = try_build_id("/usr/lib/debug", module, "");
	return fd < 0 ? try_build_id("/usr/lib/debug", module, ".debug") : fd;
}

/* ---- the session ---------------------------------------------------------------------------- */

static char *debug_path; /* where separate debug files are: elfutils' defaults and the folder */
static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debug_path,
};

static void open_session(struct opened *opened, const char *folder)
{
	int fd = find_file(opened->module, folder);

	if (fd < 0)
		return;
	if (folder && !debug_path)
		debug_path = text_of("%s:.debug:/usr/lib/debug", folder);
	opened->session = dwfl_begin(&callbacks);
	if (!opened->session) {
		close(fd);
		return;
	}
	dwfl_report_begin(opened->session);
	/* If this succeeds, the session owns the descriptor. */
	opened->file = dwfl_report_elf(opened->session, opened->module->path, opened->module->path,
				       fd, 0, true);
	if (!opened->file)
		close(fd);
	dwfl_report_end(opened->session, NULL, NULL);
}

static const struct opened *open_module(const struct trace_module *module, const char *folder)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].module == module)
			return &list[i];
	list = grow(list, &capacity, count, sizeof(*list));
	list[count] = (struct opened){.module = module};
	open_session(&list[count], folder);
	return &list[count++];
}

/* ---- names ---------------------------------------------------------------------------------- */

typedef char *demangler(const char *name, char *buffer, size_t *length, int *status);

/* libstdc++'s demangler; NULL where that library is not installed. */
static demangler *find_demangler(void)
{
	static demangler *found;
	static bool looked;
	void *library;

	if (!looked) {
		looked = true;
		library = dlopen("libstdc++.so.6", RTLD_NOW);
		if (library)
			found = (demangler *)dlsym(library, "__cxa_demangle");
	}
	return found;
}

static char *copy_of_source(const char *source)
{
	return source ? text_printable(source, strlen(source)) : NULL;
}

static char *readable_copy(const char *name)
{
	demangler *demangle = strncmp(name, "_Z", 2) == 0 ? find_demangler() : NULL;
	char *readable = demangle ? demangle(name, NULL, NULL, NULL) : NULL;
	const char *best = readable ? readable : name;
	char *text = text_printable(best, strlen(best));

	free(readable);
	return text;
}

static const char *name_of(Dwarf_Die *function)
{
	Dwarf_Attribute attribute;
	const char *name = NULL;

	if (dwarf_attr_integrate(function, DW_AT_linkage_name, &attribute) ||
	    dwarf_attr_integrate(function, DW_AT_MIPS_linkage_name, &attribute))
		name = dwarf_formstring(&attribute);
	return name ? name : dwarf_diename(function);
}

static const char *caller_source(Dwarf_Die *unit, Dwarf_Die *inlined, unsigned *line)
{
	Dwarf_Attribute attribute;
	Dwarf_Word file = 0, number = 0;
	Dwarf_Files *files;
	size_t total;

	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &number) == 0)
		*line = (unsigned)number;
	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) != 0 ||
	    dwarf_getsrcfiles(unit, &files, &total) != 0 || file >= total)
		return NULL;
	return dwarf_filesrc(files, file, NULL, NULL);
}

/* The scopes around this address, innermost first, as they are nested in the source. */
static int scopes_at(Dwarf_Die *unit, uint64_t address, Dwarf_Die **scopes)
{
	Dwarf_Die innermost;
	int total = dwarf_getscopes(unit, address, scopes);

	if (total <= 0)
		return 0;
	innermost = (*scopes)[0];
	free(*scopes);
	*scopes = NULL;
	total = dwarf_getscopes_die(&innermost, scopes);
	return total > 0 ? total : 0;
}

/* `source` and `line` are the innermost place's; each inlined function has those of its caller. */
static unsigned inlined_places(Dwfl_Module *file, uint64_t address, const char *source,
			       unsigned line, struct place *places, unsigned max)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = dwfl_module_addrdie(file, address, &bias), *scopes = NULL;
	int total = unit ? scopes_at(unit, address - bias, &scopes) : 0;
	unsigned used = 0;

	for (int i = 0; i < total && used < max; i++) {
		int tag = dwarf_tag(&scopes[i]);
		const char *name;

		if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
			continue;
		name = name_of(&scopes[i]);
		places[used++] = (struct place){.function = name ? readable_copy(name) : NULL,
						.source = copy_of_source(source),
						.line = line,
						.inlined = tag == DW_TAG_inlined_subroutine};
		if (tag == DW_TAG_subprogram)
			break;
		source = caller_source(unit, &scopes[i], &line);
	}
	free(scopes);
	return used;
}

static unsigned resolve(const struct trace_module *module, const char *folder, uint64_t address,
			struct place *places, unsigned max)
{
	const struct opened *opened = open_module(module, folder);
	const char *source = NULL, *name;
	unsigned used;
	Dwfl_Line *found;
	int line = 0;

	if (!opened->file)
		return 0;
	found = dwfl_module_getsrc(opened->file, address);
	if (found)
		source = dwfl_lineinfo(found, NULL, &line, NULL, NULL, NULL);
	used = inlined_places(opened->file, address, source, line > 0 ? (unsigned)line : 0, places,
			      max);
	if (used)
		return used;
	name = dwfl_module_addrname(opened->file, address);
	if (!name && !source)
		return 0;
	places[0] = (struct place){.function = name ? readable_copy(name) : NULL,
				   .source = copy_of_source(source),
				   .line = line > 0 ? (unsigned)line : 0};
	return 1;
}

unsigned symbols_resolve(const struct trace_module *module, const char *folder, uint64_t address,
			 struct place *places, unsigned max)
{
	unsigned used;

	guarded = true;
	used = resolve(module, folder, address, places, max);
	guarded = false;
	return used;
}

void symbols_close(void)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].session)
			dwfl_end(list[i].session);
	release(list);
	release(debug_path);
	list = NULL;
	debug_path = NULL;
	count = capacity = 0;
}
