/* SPDX-License-Identifier: MIT */
/*
 * Names for code addresses. With elfutils' libdw: function, file and line, and the functions that were
 * inlined there; the file is found by its path or its build id, and is not believed when its build id
 * is another than the trace's. What can't be resolved has its module and offset.
 */
#ifndef SYMBOLS_H
#define SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/trace/file.h"

/* Where code is. Its texts are good until symbols_free(). */
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
 * The same as people want to read it: without CUDA's own libraries at its begin, up to main() or to
 * `max` places.
 */
unsigned symbols_chain(const struct trace_file *file, uint32_t stack, struct place *places,
		       unsigned max);

/* The first place that is not in a library of CUDA's: who called, for people. NULL: no such stack. */
const struct place *symbols_caller(const struct trace_file *file, uint32_t stack);

/* The same as a text, kept for the next time; NULL: no such stack. */
const char *symbols_caller_text(const struct trace_file *file, uint32_t stack);

/* "function  source.c:12", or "module+0x123"; ends with a NUL, cut where there is no room. */
enum { PLACE_TEXT_SIZE = 300 };
char *place_text(const struct place *place, char *text);

/* Where else to look for files, by name or by build id; false after one line when it is no folder. */
bool symbols_folder(const char *folder);
void symbols_free(void);

/* ---- what reads the files (symbols_dw.c, or symbols_none.c where libdw is missing) ------------ */

/* At most `max` places of an address in a module's file, their texts from memory.h; 0: not known. */
unsigned symbols_resolve(const struct trace_module *module, const char *folder, uint64_t address,
			 struct place *places, unsigned max);
void symbols_close(void);
/* The program was built with it. */
extern const bool symbols_are_read;

#endif
