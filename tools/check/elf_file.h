/* SPDX-License-Identifier: MIT */
/* One ELF file: its data for the loader, and the names of driver calls in it. */
#ifndef ELF_FILE_H
#define ELF_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/texts.h"

struct elf_file {
	char *path;
	unsigned char elf_class; /* ELFCLASS... */
	uint16_t machine;	 /* EM_... */
	bool is_program;	 /* a program: not position independent, or marked as one */
	bool is_dynamic;	 /* has a dynamic section */
	char *interpreter;	 /* the loader that it names, or NULL */
	char *soname, *rpath, *runpath;
	struct texts needed;

	/* Watched calls: bound by the loader; or their names, which it may look up. */
	struct texts linked, named;
	/* The same for those of libibverbs. */
	struct texts verbs_linked, verbs_named;
	struct texts mentioned; /* watched names that are parts of other texts */
	struct texts opened;	/* names of the CUDA runtime, which it may open */
	struct texts defined;	/* watched calls that it defines itself */
	unsigned runtime_calls; /* functions of the CUDA runtime that the loader binds */

	bool has_sections;	/* not needed by the loader; also true if nothing is loaded */
	uint64_t other_data;	/* bytes that neither the loader nor a debugger knows */
	bool is_unread;		/* a part of it could not be read */
	unsigned runtime_marks; /* those of the CUDA runtime that it contains, a bit each */
	bool names_driver;	/* contains "libcuda.so" */
	bool has_runtime;	/* is the CUDA runtime, or is linked with it statically */
	bool asks_proc_address; /* names or binds cuGetProcAddress */
	bool uses_dlopen, uses_dlsym, uses_dlmopen;
	bool defines_dlsym;
};

/*
 * Reads a file. NULL when it fails, with the reason in *why ("it is not an ELF file"), a constant
 * text; errno is not used.
 */
struct elf_file *elf_file_read(const char *path, const char **why);
void elf_file_free(struct elf_file *file);

/* Whether a file has this class and machine: the loader skips others. */
bool elf_file_fits(const char *path, unsigned char elf_class, uint16_t machine);

#endif
