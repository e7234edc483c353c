/* SPDX-License-Identifier: MIT */
/* Forgetting dma-bufs of the program's own that no descriptor stands for any more. */
#ifndef PDN_FOREIGN_CLOSED_H
#define PDN_FOREIGN_CLOSED_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Lock not held. If many were remembered since the last time, look for those that this process has
 * no descriptor of. So their number stays in proportion to that of the open ones, and the time for
 * it in proportion to the exports. `full`: whatever their number is, as there is no room for more.
 */
void pdn_exports_forget_closed(bool full);

/* Lock held. The current search: a record that is made now counts as found by it. */
uint32_t pdn_exports_search(void);

#endif
