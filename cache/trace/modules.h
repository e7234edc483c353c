/* SPDX-License-Identifier: MIT */
/*
 * Which file a code address belongs to. From /proc/self/maps, read by bare system calls: the
 * loader's own functions take its lock, which the thread that we are in, or one that waits for it,
 * may hold. For stack.c and misuse.c only.
 */
#ifndef PD_TRACE_MODULES_H
#define PD_TRACE_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_module {
	uint64_t begin, end;
	uint64_t bias;	       /* what the loader added to the file's addresses */
	uint64_t index;	       /* of .eh_frame; 0: none */
	uint32_t index_bytes;  /* readable there */
	uint32_t generation;   /* when it was last seen to be there */
	uint64_t device, node; /* which file it is */
	uint16_t number;       /* from 1; a file that is loaded again has another */
	bool ours;	       /* libpindown.so itself */
};

/*
 * The module that holds `pc`, or NULL: made by the program itself, or none could be found. New modules
 * are written to the trace. Slow where it is not known yet: reads /proc/self/maps.
 */
const struct pd_module *pd_module_find(uint64_t pc, uint32_t generation);

/*
 * The last part of the name of the file that holds `pc`, and where in the file that is, for a
 * reader of lines: slow. False: it is of none, or cannot be told.
 */
bool pd_module_name(uint64_t pc, char *name, size_t room, uint64_t *offset);

/* In a forked child: all are new, for its own trace. */
void pd_modules_fork_child(void);

#endif
