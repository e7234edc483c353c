/* SPDX-License-Identifier: MIT */
/* The first instructions of the wrappers, as entries.S lays them out: also for the assembler. */
#ifndef PD_ENTRIES_H
#define PD_ENTRIES_H

/* From one entry to the next, and how many bytes of each are the same in all of them. */
#define PD_ENTRY_SIZE 24
#if defined(__x86_64__)
#define PD_ENTRY_SAME 15
#else
#define PD_ENTRY_SAME 16
#endif

#if !defined(__ASSEMBLER__)
/*
 * The first entry is nobody's. Then come those that are exported, in the order of the table, and then those
 * that look-ups are answered with, in the same order.
 */
extern const char pd_entries_begin[], pd_entries_end[];

static inline void *pd_entry(unsigned index)
{
	return (void *)(pd_entries_begin + PD_ENTRY_SIZE * (1 + index));
}
#endif

#endif
