/* SPDX-License-Identifier: MIT */
/* How entries.S lays out the first instructions of the wrappers. The assembler includes it too. */
#ifndef PD_ENTRIES_H
#define PD_ENTRIES_H

/* From one entry to the next, and how many bytes of each are the same in all of them. */
#define PD_ENTRY_SIZE 32
#if defined(__x86_64__)
#define PD_ENTRY_SAME 15
#else
#define PD_ENTRY_SAME 16
#endif

/*
 * An entry puts one more argument behind those of its row, and needs a register for it: 6 arguments
 * are passed in registers on each processor that pindown supports. An argument that is a structure
 * may be passed in memory, and does not count then. The calls with such an argument are named here,
 * and wrap.c checks that none is missing.
 */
#define PD_BY_VALUE_cuIpcOpenMemHandle	  ~, 1
#define PD_BY_VALUE_cuIpcOpenMemHandle_v2 ~, 1

#define PD_COUNT(...)			       PD_EIGHTH(__VA_ARGS__, 7, 6, 5, 4, 3, 2, 1, 0)
#define PD_IS_FEW(...)			       PD_EIGHTH(__VA_ARGS__, 0, 0, 1, 1, 1, 1, 1, 1)
#define PD_EIGHTH(a, b, c, d, e, f, g, h, ...) h

#define PD_IS_BY_VALUE(symbol) PD_PROBE(PD_BY_VALUE_##symbol)
#define PD_PROBE(...)	       PD_SECOND(__VA_ARGS__, 0, ~)
#define PD_SECOND(a, b, ...)   b

/* Can an entry of this row add an argument? 1 or 0. `args` in parentheses. */
#define PD_HAS_ROOM(symbol, args) PD_CHOOSE(PD_IS_BY_VALUE(symbol), 0, PD_IS_FEW args)

#define PD_CHOOSE(condition, yes, no)  PD_CHOOSE_(condition, yes, no)
#define PD_CHOOSE_(condition, yes, no) PD_CHOOSE_##condition(yes, no)
#define PD_CHOOSE_1(yes, no)	       yes
#define PD_CHOOSE_0(yes, no)	       no

#if !defined(__ASSEMBLER__)
/*
 * The first entry belongs to no row. The exported ones follow in the order of the table, and then,
 * in the same order, those with which look-ups are answered.
 */
extern const char pd_entries_begin[], pd_entries_end[];

static inline void *pd_entry(unsigned index)
{
	return (void *)(pd_entries_begin + PD_ENTRY_SIZE * (1 + index));
}
#endif

#endif
