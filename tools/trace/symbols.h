/* SPDX-License-Identifier: MIT */
/*
 * Names for code addresses. With elfutils' libdw these are the function, the source file and line,
 * and functions inlined there. The program or library is found by its path or its build id, and is
 * not used when its build id differs from the trace's. Other addresses get their module and offset.
 */
#ifndef SYMBOLS_H
#define SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/trace/file.h"

/* A place in the code. Its texts are good until symbols_free(). */
struct place {
	const char *function; /* demangled; NULL: not known */
	const char *source;   /* path as compiled; NULL: not known */
	unsigned line;
	bool inlined;	    /* into the next place */
	const char *module; /* its path; NULL: none, offset is then an address */
	uint64_t offset;
};

/* The places of a whole stack, innermost first; 0 when the trace has no such stack. */
enum { MAX_PLACES = 256 };
unsigned symbols_stack(const struct trace_file *file, uint32_t stack, struct place *places);

/*
 * The same, shortened for people: without CUDA's own libraries at its begin, up to main() or `max`
 * places.
 */
unsigned symbols_chain(const struct trace_file *file, uint32_t stack, struct place *places,
		       unsigned max);

/* The caller, for people: the first place outside CUDA's libraries. NULL: no such stack. */
const struct place *symbols_caller(const struct trace_file *file, uint32_t stack);

/* The same as a text, which stays good until symbols_free(); NULL: no such stack. */
const char *symbols_caller_text(const struct trace_file *file, uint32_t stack);

/* "function  source.c:12", or "module+0x123"; cut if it is too long. Returns `text`. */
enum { PLACE_TEXT_SIZE = 300 };
char *place_text(const struct place *place, char *text);

/* Adds a folder in which to look for files; false, after one line, when it is no folder. */
bool symbols_folder(const char *folder);
void symbols_free(void);

/* ---- reading the files (symbols_dw.c, or symbols_none.c where libdw is missing) --------------- */

/* Up to `max` places of an address in a module; their texts are from memory.h. 0: unknown. */
unsigned symbols_resolve(const struct trace_module *module, const char *folder, uint64_t address,
			 struct place *places, unsigned max);
void symbols_close(void);
/* Whether pindown was built with libdw. */
extern const bool symbols_are_read;

#endif
