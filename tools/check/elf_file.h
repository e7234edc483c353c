/* SPDX-License-Identifier: MIT */
/* One ELF file: what the loader needs to know of it, and which names of the driver it has in it. */
#ifndef OBJECT_H
#define OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/texts.h"

struct object {
	char *path;
	unsigned char elf_class; /* ELFCLASS... */
	uint16_t machine;	 /* EM_... */
	bool is_program;   /* to be started: not position independent, or marked as a program */
	bool is_dynamic;   /* has a dynamic section */
	char *interpreter; /* the loader that it names; NULL: none */
	char *soname, *rpath, *runpath;
	struct texts needed;

	/* Watched calls: bound by the loader; or only their names are in it, to be looked up. */
	struct texts linked, named;
	/* The same for those of libibverbs. */
	struct texts verbs_linked, verbs_named;
	struct texts opened;  /* names of the CUDA runtime's library, to be opened */
	struct texts defined; /* it has a function of that name of its own */
	unsigned
		runtime_calls; /* of the CUDA runtime, cudaMalloc() and so on, bound by the loader */

	bool names_driver;	/* has "libcuda.so" in it */
	bool has_runtime;	/* is the CUDA runtime, or has it linked in statically */
	bool asks_proc_address; /* has or binds cuGetProcAddress */
	bool uses_dlopen, uses_dlsym, uses_dlmopen;
	bool defines_dlsym;
	unsigned deepbind_calls; /* calls of dlopen with RTLD_DEEPBIND, as far as code shows */
};

/*
 * Reads a file. NULL when it is none, with a sentence's end in *why ("is no ELF file"), which is not
 * to be freed; errno is not used.
 */
struct object *object_read(const char *path, const char **why);
void object_free(struct object *object);

/* Whether a file has this class and machine: the loader passes over others. */
bool object_fits(const char *path, unsigned char elf_class, uint16_t machine);

/* "x86-64, 64 bits" and so on, for people. */
const char *machine_name(uint16_t machine);

#endif
