/* SPDX-License-Identifier: MIT */
/* Pages that killed processes have left behind. For page.c only; errno may change. */
#ifndef PD_LIVE_SWEEP_H
#define PD_LIVE_SWEEP_H

#include <stdint.h>

/* When a process began, as /proc/<pid>/stat has it; 0 when there is none of that number. */
uint64_t pd_live_start_of(uint32_t pid);

/* What tells this process's numbers from those in other namespaces. */
uint64_t pd_live_namespace(void);

/* Lock held. Removes from a folder pages of ours whose processes are gone: some, not all. */
void pd_live_sweep(const char *folder);

#endif
