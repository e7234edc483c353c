/* SPDX-License-Identifier: MIT */
/* The first instructions of the wrappers, as entries.S lays them out: also for the assembler. */
#ifndef PD_ENTRIES_H
#define PD_ENTRIES_H

/* From one entry to the next, and how many bytes of each are the same in all of them. */
#define PD_ENTRY_SIZE 32
#if defined(__x86_64__)
#define PD_ENTRY_SAME 15
#else
#define PD_ENTRY_SAME 16
#endif

#if !defined(__ASSEMBLER__)
extern const char pd_entries_begin[], pd_entries_end[];
#endif

#endif
