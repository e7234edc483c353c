/* SPDX-License-Identifier: MIT */
/* Long output on a terminal goes through a pager: $PAGER, or less. */
#ifndef PAGER_H
#define PAGER_H

#include <stdbool.h>

/*
 * After out_begin(), before anything is printed. Nothing happens where output is no terminal. At its exit
 * the command waits until the person has seen enough.
 */
void pager_begin(bool wanted);

#endif
