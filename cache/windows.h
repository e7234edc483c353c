/* SPDX-License-Identifier: MIT */
/*
 * Where allocations lie that are pinned by windows (growth.h). A free names the beginning of its
 * allocation, where no window need be: this tells quickly whether there is one elsewhere.
 */
#ifndef PDN_WINDOWS_H
#define PDN_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

/* Lock held. There is one more window, or one less, of the allocation [base, end). */
void pdn_windows_add(uint64_t base, uint64_t end);
void pdn_windows_remove(uint64_t base);

/* Also without the lock. false: no allocation that holds addr has a window. */
bool pdn_windows_may_hold(uint64_t addr);

void pdn_windows_fork_child(void);

#endif
