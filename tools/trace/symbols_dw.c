// SPDX-License-Identifier: MIT
/* Resolves addresses in programs and libraries by their debug information, with libdwfl. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
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
	const char *folder; /* of --symbols, or NULL */
	Dwfl *session;
	Dwfl_Module *file; /* NULL: none was found */
	bool lacks_shared; /* the file of debug information that several programs share */
};

static struct opened *list;
static unsigned count, capacity;

/* ---- finding files -------------------------------------------------------------------------- */

/* A build id; of no bytes: the file has none. */
struct id {
	const void *bytes;
	size_t length;
};

/* Whether this is the file that is looked for: the build ids must be equal. */
static bool is_that(int fd, struct id id)
{
	const void *bytes;
	ssize_t length;
	bool same;
	Elf *elf;

	elf_version(EV_CURRENT);
	/* Not mapped: who truncates a mapped file ends its reader by SIGBUS. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return false;
	length = dwelf_elf_gnu_build_id(elf, &bytes);
	same = id.length ? length == (ssize_t)id.length && memcmp(bytes, id.bytes, id.length) == 0
			 : length <= 0;
	elf_end(elf);
	return same;
}

/* Anybody may have made the name, in a trace or in a program: only a regular file is opened. */
static int try_path(const char *path, struct id id)
{
	int fd = open_regular(path, 0);

	if (fd >= 0 && !is_that(fd, id)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* FOLDER/.build-id/ab/cdef...TAIL */
static int try_build_id(const char *folder, struct id id, const char *tail)
{
	const unsigned char *bytes = id.bytes;
	char path[4096];
	int used;

	if (id.length < 3 || id.length > 64)
		return -1;
	used = snprintf(path, sizeof(path) - 200, "%s/.build-id/%02x/", folder, bytes[0]);
	if (used <= 0 || used >= (int)sizeof(path) - 200)
		return -1;
	for (size_t i = 1; i < id.length; i++)
		used += sprintf(path + used, "%02x", bytes[i]);
	strcpy(path + used, tail);
	return try_path(path, id);
}

static int try_name(const char *folder, const char *name, struct id id)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return try_path(path, id);
}

static int find_file(const struct trace_module *module, const char *folder)
{
	const char *slash = strrchr(module->path, '/');
	struct id id = {module->id, module->id_length};
	int fd = folder ? try_name(folder, slash ? slash + 1 : module->path, id) : -1;

	if (fd < 0 && folder)
		fd = try_build_id(folder, id, "");
	if (fd < 0 && folder)
		fd = try_build_id(folder, id, ".debug");
	if (fd < 0 && module->path[0] == '/')
		fd = try_path(module->path, id);
	if (fd < 0)
		fd = try_build_id("/usr/lib/debug", id, "");
	return fd < 0 ? try_build_id("/usr/lib/debug", id, ".debug") : fd;
}

/* A file with debug information, by its build id or by the name that the file at `path` has. */
static int find_debug_file(const char *path, const char *name, struct id id, const char *folder)
{
	const char *slash = strrchr(path, '/');
	char *beside = text_of("%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	char *below = text_of("%s/.debug", beside), *apart = text_of("/usr/lib/debug%s", beside);
	const char *const folders[] = {beside, below, folder, apart};
	int fd = folder ? try_build_id(folder, id, ".debug") : -1;

	if (fd < 0)
		fd = try_build_id("/usr/lib/debug", id, ".debug");
	if (fd < 0 && name && name[0] == '/')
		fd = try_path(name, id);
	for (unsigned i = 0; name && i < sizeof(folders) / sizeof(folders[0]) && fd < 0; i++)
		if (folders[i])
			fd = try_name(folders[i], name, id);
	release(beside);
	release(below);
	release(apart);
	return fd;
}

/* ---- the session ---------------------------------------------------------------------------- */

static struct opened *asked; /* whose names are being looked up */

/*
 * libdwfl asks for the file with a module's debug information, and when it has that, for one that
 * several programs share. The standard function would open each name, whatever it is.
 */
static int answer(Dwfl_Module *file, void **data, const char *module, Dwarf_Addr base,
		  const char *path, const char *name, GElf_Word checksum, char **found)
{
	struct id id = {asked->module->id, asked->module->id_length};
	const char *shared;
	const void *bytes;
	Dwarf_Addr bias;
	Dwarf *debug = dwfl_module_getdwarf(file, &bias);
	ssize_t length = debug ? dwelf_dwarf_gnu_debugaltlink(debug, &shared, &bytes) : 0;
	bool is_shared = length > 0 && name && strcmp(name, shared) == 0;
	char link[40];
	int fd;

	(void)data, (void)module, (void)base, (void)checksum;
	if (is_shared)
		id = (struct id){bytes, (size_t)length};
	fd = find_debug_file(path ? path : "", name, id, asked->folder);
	if (is_shared && fd < 0)
		asked->lacks_shared = true;
	/* Names in that file are relative to its folder. */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	*found = fd >= 0 ? realpath(link, NULL) : NULL;
	return fd;
}

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = answer,
	.section_address = dwfl_offline_section_address,
};

static void open_session(struct opened *opened)
{
	int fd = find_file(opened->module, opened->folder);

	if (fd < 0)
		return;
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

static struct opened *open_module(const struct trace_module *module, const char *folder)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].module == module)
			return &list[i];
	list = grow(list, &capacity, count, sizeof(*list));
	list[count] = (struct opened){.module = module, .folder = folder};
	open_session(&list[count]);
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
static unsigned inlined_places(const char *source, unsigned line, uint64_t address,
			       struct place *places, unsigned max)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit, *scopes = NULL;
	unsigned used = 0;
	int total;

	if (asked->lacks_shared)
		return 0;
	unit = dwfl_module_addrdie(asked->file, address, &bias);
	total = unit ? scopes_at(unit, address - bias, &scopes) : 0;
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

unsigned symbols_resolve(const struct trace_module *module, const char *folder, uint64_t address,
			 struct place *places, unsigned max)
{
	const char *source = NULL, *name;
	Dwfl_Line *found = NULL;
	Dwarf_Addr bias;
	unsigned used;
	int line = 0;

	asked = open_module(module, folder);
	if (!asked->file)
		return 0;
	/* Without the shared file libdw would look for it by itself. */
	if (dwfl_module_getdwarf(asked->file, &bias) && !asked->lacks_shared)
		found = dwfl_module_getsrc(asked->file, address);
	if (found)
		source = dwfl_lineinfo(found, NULL, &line, NULL, NULL, NULL);
	used = inlined_places(source, line > 0 ? (unsigned)line : 0, address, places, max);
	if (used)
		return used;
	name = dwfl_module_addrname(asked->file, address);
	if (!name && !source)
		return 0;
	places[0] = (struct place){.function = name ? readable_copy(name) : NULL,
				   .source = copy_of_source(source),
				   .line = line > 0 ? (unsigned)line : 0};
	return 1;
}

void symbols_close(void)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].session)
			dwfl_end(list[i].session);
	release(list);
	list = NULL;
	count = capacity = 0;
}
