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
 * Rows are of three kinds, by the name of their symbol; each kind has entries of its own.
 *
 * Often: a call that programs make all the time. It has a function of its own in C, to which the
 * entry hands the real function, as one more argument behind those of the row. So such a row has at
 * most 5 arguments: 6 are passed in registers on each processor that pindown supports.
 */
#define PDN_OFTEN_cuMemAlloc_v2		       ~, 1
#define PDN_OFTEN_cuMemFree_v2		       ~, 1
#define PDN_OFTEN_cuMemAllocAsync	       ~, 1
#define PDN_OFTEN_cuMemAllocAsync_ptsz	       ~, 1
#define PDN_OFTEN_cuMemAllocFromPoolAsync      ~, 1
#define PDN_OFTEN_cuMemAllocFromPoolAsync_ptsz ~, 1
#define PDN_OFTEN_cuMemFreeAsync	       ~, 1
#define PDN_OFTEN_cuMemFreeAsync_ptsz	       ~, 1
#define PDN_OFTEN_cuGraphLaunch		       ~, 1
#define PDN_OFTEN_cuGraphLaunch_ptsz	       ~, 1

/*
 * In memory: an argument is a structure or beyond the sixth, and may be passed in memory, or the
 * row changes an argument (PINDOWN_RDMA_CAPABLE). Bodies in C read it.
 */
#define PDN_IN_MEMORY_cuIpcOpenMemHandle	    ~, 1
#define PDN_IN_MEMORY_cuIpcOpenMemHandle_v2	    ~, 1
#define PDN_IN_MEMORY_cuMulticastBindMem_v2	    ~, 1
#define PDN_IN_MEMORY_cuMemCreate		    ~, 1
#define PDN_IN_MEMORY_cuMemGetAllocationGranularity ~, 1

/* Seldom: all others. They share one function, which gets the arguments as an array of words. */
#define PDN_WORDS 6

#define PDN_COUNT(...)				PDN_EIGHTH(__VA_ARGS__, 7, 6, 5, 4, 3, 2, 1, 0)
#define PDN_EIGHTH(a, b, c, d, e, f, g, h, ...) h

/* One of the three, which are names of macros, or parts of names. */
#define PDN_OF_KIND(symbol, often, in_memory, seldom)    \
	PDN_CHOOSE(PDN_PROBE(PDN_OFTEN_##symbol), often, \
		   PDN_CHOOSE(PDN_PROBE(PDN_IN_MEMORY_##symbol), in_memory, seldom))
#define PDN_PROBE(...)	      PDN_SECOND(__VA_ARGS__, 0, ~)
#define PDN_SECOND(a, b, ...) b

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
	return (void *)(pdn_entries_begin + (size_t)PDN_ENTRY_SIZE * (1 + index));
}
#endif

#endif
