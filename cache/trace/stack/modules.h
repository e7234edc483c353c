/* SPDX-License-Identifier: MIT */
/*
 * The file that a code address belongs to, from /proc/self/maps, read by bare system calls: the
 * loader's functions take its lock, which the calling thread, or one that waits for it, may hold.
 * For stack.c, writer/events.h, hit/misuse.c and objects/held.c only.
 */
#ifndef PDN_TRACE_MODULES_H
#define PDN_TRACE_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/base/notify.h"
#include "cache/trace/format.h"

struct pdn_module {
	uint64_t begin, end;
	uint64_t bias;		 /* address in the process - address in the file */
	uint64_t index;		 /* .eh_frame_hdr, the index of .eh_frame; 0: none */
	uint32_t index_bytes;	 /* readable there */
	uint32_t generation;	 /* in which it was last seen */
	uint64_t symbols, names; /* of what it exports; 0: none */
	uint64_t device, node;
	uint16_t number; /* from 1; a file that is loaded again gets another one */
	char name[64];	 /* the last part of the path */
};

/*
 * The module that contains `pc`, or NULL: code made at run time, or the module could not be found.
 * A new module is written to the trace. Slow for an unknown one: reads /proc/self/maps.
 */
const struct pdn_module *pdn_module_find(uint64_t pc);

/* Rises when code is unloaded, or may be loaded in its place: modules must be looked at again. */
uint32_t pdn_modules_generation(void);
void pdn_modules_change(void);

/*
 * The last part of the path of the file that contains `pc`, and the address in the file, for
 * messages. False: there is no such file, or it could not be found.
 */
bool pdn_module_name(uint64_t pc, char *name, size_t capacity, uint64_t *offset);

/*
 * The same with the function, as far as the file exports it: "libx.so: begin+0x12", or
 * "libx.so+0x1234". Slow. False: as above, and the text is empty.
 */
bool pdn_module_text(uint64_t pc, char *text, size_t capacity);

/*
 * There is a module or a stack that the trace does not have yet: a record that is no event. The
 * words follow its first one.
 */
PDN_EVENT(stack_words, (enum pdn_record, unsigned what, const uint64_t *words, unsigned count));

/* In a forked child: all modules are new to its own trace. */
void pdn_modules_fork_child(void);

#endif
