/* SPDX-License-Identifier: MIT */
/* Removing the files that killed processes have left. For page.c only. */
#ifndef PDN_LIVE_SWEEP_H
#define PDN_LIVE_SWEEP_H

#include <stdint.h>

/*
 * A process's start time, as in /proc/<pid>/stat. 0, or a negative errno, if it can't be read:
 * -ENOENT where no process has this number.
 */
int64_t pdn_top_start_of(uint32_t pid);

/* Identify the namespaces that this process's number and its start time belong to. 0: not known. */
#define PDN_TOP_PIDS "/proc/self/ns/pid"
#define PDN_TOP_TIME "/proc/self/ns/time"
uint64_t pdn_top_namespace(const char *link);

/*
 * Lock held. Removes from a folder the files of this user's processes that are gone. The number of
 * files that it checks is limited, so some may stay.
 */
void pdn_top_sweep(const char *folder);

#endif
