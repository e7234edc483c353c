/* SPDX-License-Identifier: MIT */
/* Sections of the page about allocations and about registrations of freed memory. */
#ifndef HTML_SECTIONS_H
#define HTML_SECTIONS_H

#include <stdio.h>

#include "tools/report/tally.h"

/* A picture of the allocated bytes over time. */
void html_allocated(FILE *page, const struct tally *tally);
/* Flame graphs of the allocations, and their call sites. */
void html_memory(FILE *page, const struct reader *reader, const struct tally *tally);

/* A picture of the stacks that made allocations (html_flame.c). */
enum flame { FLAME_AT_PEAK, FLAME_UNFREED };
void html_flame(FILE *page, const struct reader *reader, const struct allocations *all,
		enum flame flame);

/* Registrations and dma-bufs that outlived their memory (html_holders.c). */
void html_holders(FILE *page, const struct reader *reader, const struct holders *holders);
/* Stale and held: what the words mean. */
void html_definitions(FILE *page, const struct tally *tally);

#endif
