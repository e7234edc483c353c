/* SPDX-License-Identifier: MIT */
/* How entries.S lays out the first instructions of the wrappers. The assembler includes it too. */
#ifndef PDN_ENTRIES_H
#define PDN_ENTRIES_H

/* From one entry to the next, and how many bytes of each are the same in all of them. */
#define PDN_ENTRY_SIZE 32
#if defined(__x86_64__)
#define PDN_ENTRY_SAME 15
#else
#define PDN_ENTRY_SAME 16
#endif

/*
 * An entry puts one more argument behind those of its row, and needs a register for it: 6 arguments
 * are passed in registers on each processor that pindown supports. An argument that is a structure
 * may be passed in memory, and does not count then. The calls with such an argument are named here,
 * and wrap.c checks that none is missing.
 */
#define PDN_BY_VALUE_cuIpcOpenMemHandle	   ~, 1
#define PDN_BY_VALUE_cuIpcOpenMemHandle_v2 ~, 1

#define PDN_COUNT(...)				PDN_EIGHTH(__VA_ARGS__, 7, 6, 5, 4, 3, 2, 1, 0)
#define PDN_IS_FEW(...)				PDN_EIGHTH(__VA_ARGS__, 0, 0, 1, 1, 1, 1, 1, 1)
#define PDN_EIGHTH(a, b, c, d, e, f, g, h, ...) h

#define PDN_IS_BY_VALUE(symbol) PDN_PROBE(PDN_BY_VALUE_##symbol)
#define PDN_PROBE(...)		PDN_SECOND(__VA_ARGS__, 0, ~)
#define PDN_SECOND(a, b, ...)	b

/* Can an entry of this row add an argument? 1 or 0. `args` in parentheses. */
#define PDN_FITS_IN_REGISTERS(symbol, args) PDN_CHOOSE(PDN_IS_BY_VALUE(symbol), 0, PDN_IS_FEW args)

#define PDN_CHOOSE(condition, yes, no)	PDN_CHOOSE_(condition, yes, no)
#define PDN_CHOOSE_(condition, yes, no) PDN_CHOOSE_##condition(yes, no)
#define PDN_CHOOSE_1(yes, no)		yes
#define PDN_CHOOSE_0(yes, no)		no

#if !defined(__ASSEMBLER__)
/*
 * The first entry belongs to no row. The exported ones follow in the order of the table, and then,
 * in the same order, those with which look-ups are answered.
 */
extern const char pdn_entries_begin[], pdn_entries_end[];

static inline void *pdn_entry(unsigned index)
{
	return (void *)(pdn_entries_begin + PDN_ENTRY_SIZE * (1 + index));
}
#endif

#endif
