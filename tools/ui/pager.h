/* SPDX-License-Identifier: MIT */
/* Long output on a terminal goes through a pager: $PAGER, or less. */
#ifndef PAGER_H
#define PAGER_H

#include <stdbool.h>

/*
 * Call it after out_begin(), before anything is printed. It does nothing unless the output is a
 * terminal. At exit the command waits until the user quits the pager.
 */
void pager_begin(bool wanted);

#endif
