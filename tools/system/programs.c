// SPDX-License-Identifier: MIT
/* Finds programs, and says why a preload would not reach one. */
#define _GNU_SOURCE
#include "tools/system/programs.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/base/regular.h"

static bool is_program(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

bool program_find(const char *name, char *path, size_t capacity)
{
	const char *folders = getenv("PATH"), *end;

	if (strchr(name, '/')) {
		snprintf(path, capacity, "%s", name);
		return access(path, F_OK) == 0;
	}
	for (folders = folders ? folders : "/bin:/usr/bin";; folders = end + 1) {
		end = strchrnul(folders, ':');
		snprintf(path, capacity, "%.*s%s%s", (int)(end - folders), folders,
			 end > folders ? "/" : "./", name);
		if (is_program(path))
			return true;
		if (!*end)
			break;
	}
	errno = ENOENT;
	return false;
}

/* ---- processors ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
enum { OUR_MACHINE = EM_X86_64, OUR_SMALLER = EM_386 };
#else
enum { OUR_MACHINE = EM_AARCH64, OUR_SMALLER = EM_ARM };
#endif

const char *program_machine_name(uint16_t machine)
{
	switch (machine) {
	case EM_X86_64:
		return "x86-64";
	case EM_386:
		return "x86";
	case EM_AARCH64:
		return "aarch64";
	case EM_ARM:
		return "arm";
	case EM_PPC64:
		return "ppc64";
	case EM_S390:
		return "s390";
	case EM_RISCV:
		return "riscv";
	}
	return "another processor";
}

/* e_machine; EM_NONE for a file that is no ELF file. */
static uint16_t machine_of(const char *path)
{
	unsigned char start[EI_NIDENT + 4];
	int fd = open_regular(path, 0);
	bool is_elf = fd >= 0 && pread(fd, start, sizeof(start), 0) == sizeof(start) &&
		      memcmp(start, ELFMAG, SELFMAG) == 0;
	const unsigned char *at = start + EI_NIDENT + 2;

	if (fd >= 0)
		close(fd);
	if (!is_elf)
		return EM_NONE;
	return (uint16_t)(start[EI_DATA] == ELFDATA2MSB ? at[0] << 8 | at[1] : at[1] << 8 | at[0]);
}

const char *program_machine(const char *path)
{
	uint16_t machine = machine_of(path);

	return machine == EM_NONE ? NULL : program_machine_name(machine);
}

const char *program_own_machine(void)
{
	return program_machine_name(OUR_MACHINE);
}

bool program_is_foreign(const char *path)
{
	uint16_t machine = machine_of(path);

	return machine != EM_NONE && machine != OUR_MACHINE && machine != OUR_SMALLER;
}

/* Whether starting it grants rights; the loader then ignores LD_PRELOAD. */
static bool gains_rights(int fd)
{
	struct stat status;
	char capabilities[64];

	if (fstat(fd, &status) != 0)
		return false;
	if ((status.st_mode & S_ISUID) && status.st_uid != geteuid())
		return true;
	if ((status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
	    status.st_gid != getegid())
		return true;
	return geteuid() != 0 &&
	       fgetxattr(fd, "security.capability", capabilities, sizeof(capabilities)) > 0;
}

static bool find_header(int fd, const ElfW(Ehdr) * elf, uint32_t type, ElfW(Phdr) * found)
{
	for (unsigned i = 0; i < elf->e_phnum; i++) {
		off_t at = (off_t)(elf->e_phoff + (ElfW(Off))i * sizeof(*found));

		if (pread(fd, found, sizeof(*found), at) != sizeof(*found))
			return false;
		if (found->p_type == type)
			return true;
	}
	return false;
}

/*
 * Whether it is a position-independent program, not a library that can be started like the loader.
 */
static bool is_pie(int fd, const ElfW(Ehdr) * elf)
{
	ElfW(Phdr) dynamic;
	ElfW(Dyn) tag;

	if (!find_header(fd, elf, PT_DYNAMIC, &dynamic))
		return false;
	for (ElfW(Off) at = 0; at < dynamic.p_filesz; at += sizeof(tag)) {
		if (pread(fd, &tag, sizeof(tag), (off_t)(dynamic.p_offset + at)) != sizeof(tag) ||
		    tag.d_tag == DT_NULL)
			break;
		if (tag.d_tag == DT_FLAGS_1)
			return tag.d_un.d_val & DF_1_PIE;
	}
	return false;
}

static const char for_musl[] = "uses another C library (musl): libpindown.so needs glibc";

static bool is_for_musl(int fd, const ElfW(Phdr) * interpreter)
{
	char path[PATH_MAX] = "";
	size_t length = interpreter->p_filesz < sizeof(path) ? interpreter->p_filesz : 0;

	return pread(fd, path, length, (off_t)interpreter->p_offset) > 0 &&
	       memmem(path, length, "ld-musl", 7);
}

/* Said of packed programs, too, which load a dynamically linked program or hold one. */
static const char is_static[] = "is statically linked or packed: pindown sees only the programs "
				"that it unpacks or starts";
/* Its children may have 64 bits. */
static const char is_small[] = "is not a 64-bit program: libpindown.so can't be loaded into it";

static const char *look_at_elf(int fd)
{
	ElfW(Phdr) interpreter;
	ElfW(Ehdr) elf;

	if (pread(fd, &elf, sizeof(elf), 0) != sizeof(elf))
		return NULL;
	if (elf.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
		return is_small;
	if (elf.e_type != ET_EXEC && elf.e_type != ET_DYN)
		return NULL;
	if (find_header(fd, &elf, PT_INTERP, &interpreter))
		return is_for_musl(fd, &interpreter) ? for_musl : NULL;
	if (elf.e_type == ET_EXEC || is_pie(fd, &elf))
		return is_static;
	return NULL;
}

/* Copies the interpreter of a script, as in "#!/usr/bin/python3 -u". */
static bool find_interpreter(const char *start, char *path, size_t capacity)
{
	size_t length;

	start += 2 + strspn(start + 2, " \t");
	length = strcspn(start, " \t\n");
	if (!length || length >= capacity)
		return false;
	memcpy(path, start, length);
	path[length] = '\0';
	return true;
}

/*
 * What is behind an option of env: "-i", "-uNAME", "-u NAME", "-Sprogram", or
 * "--split-string=program". The kernel gives all words to env as one, which -S splits; its program
 * then comes next.
 */
static const char *skip_option(const char *word)
{
	static const char split[] = "--split-string=";
	size_t length = strcspn(word, " \t\n"), letters;

	if (strncmp(word, split, sizeof(split) - 1) == 0)
		return word + sizeof(split) - 1;
	if (word[1] == '-')
		return word + length;
	letters = strcspn(word, "SuCa \t\n");
	if (letters == length)
		return word + length;
	if (word[letters] == 'S')
		return word + letters + 1;
	if (letters + 1 < length)
		return word + length;
	word += length + strspn(word + length, " \t");
	return word + strcspn(word, " \t\n");
}

/* The program that env starts, as in "/usr/bin/env -S python3 -u"; NULL when it is not env. */
static const char *behind_env(const char *line, size_t capacity, char *name)
{
	size_t length = strcspn(line, " \t\n");

	if (length < 4 || strncmp(line + length - 4, "/env", 4) != 0)
		return NULL;
	line += length;
	for (;;) {
		line += strspn(line, " \t");
		length = strcspn(line, " \t\n");
		if (*line == '-')
			line = skip_option(line);
		else if (memchr(line, '=', length))
			line += length;
		else
			break;
	}
	if (!length || length >= capacity)
		return NULL;
	memcpy(name, line, length);
	name[length] = '\0';
	return name;
}

/* Linux follows a chain of at most this many scripts that are interpreters of scripts. */
enum { MOST_SCRIPTS = 5 };

/* Of Spack's long scripts, as "#!/bin/sh /spack/bin/sbang", the second line has the interpreter. */
static const char *behind_sbang(const char *text)
{
	const char *end = strchrnul(text, '\n');
	const char *second = *end ? memchr(end, '!', strcspn(end + 1, "\n") + 1) : NULL;

	return second && memmem(text, (size_t)(end - text), "/sbang", 6) ? second - 1 : text;
}

static bool next_interpreter(const char *script, char *path, size_t capacity)
{
	char text[PATH_MAX + 256] = "", name[PATH_MAX];
	const char *start = text;
	int fd = open_regular(script, 0);
	bool is_script = fd >= 0 && read(fd, text, sizeof(text) - 1) > 2 && text[0] == '#' &&
			 text[1] == '!' &&
			 find_interpreter(start = behind_sbang(text), name, sizeof(name));

	path[0] = '\0';
	if (fd >= 0)
		close(fd);
	if (!is_script)
		return false;
	behind_env(start + 2 + strspn(start + 2, " \t"), sizeof(name), name);
	if (program_find(name, path, capacity))
		return true;
	snprintf(path, capacity, "%s", name);
	return false;
}

bool program_interpreter(const char *script, char *path, size_t capacity)
{
	char before[PATH_MAX];
	bool found = next_interpreter(script, path, capacity);

	for (unsigned i = 1; found && i < MOST_SCRIPTS; i++) {
		snprintf(before, sizeof(before), "%s", path);
		if (next_interpreter(before, path, capacity))
			continue;
		/* Either it is no script, or what it names does not exist. */
		found = !path[0];
		if (found)
			snprintf(path, capacity, "%s", before);
		break;
	}
	return found;
}

static const char *look_at(const char *path, unsigned scripts)
{
	char start[SELFMAG], interpreter[PATH_MAX];
	const char *why = NULL;
	int fd = open_regular(path, 0);
	bool is_elf = fd >= 0 && read(fd, start, sizeof(start)) == sizeof(start) &&
		      memcmp(start, ELFMAG, SELFMAG) == 0;

	if (is_elf && gains_rights(fd))
		why = "runs with rights of its own (set-user-ID or capabilities): the loader "
		      "ignores LD_PRELOAD for it";
	else if (is_elf)
		why = look_at_elf(fd);
	else if (scripts && next_interpreter(path, interpreter, sizeof(interpreter)))
		why = look_at(interpreter, scripts - 1);
	if (fd >= 0)
		close(fd);
	return why;
}

const char *program_unreachable(const char *path)
{
	return look_at(path, MOST_SCRIPTS);
}

bool program_hands_preload_on(const char *path)
{
	const char *why = look_at(path, MOST_SCRIPTS);

	return why == is_static || why == is_small;
}

bool program_ends_by_preload(const char *path)
{
	return look_at(path, MOST_SCRIPTS) == for_musl;
}
