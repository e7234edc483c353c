/* SPDX-License-Identifier: MIT */
/* The rank of a process in its job, by the variables in which launchers tell it. */
#ifndef PDN_RANK_H
#define PDN_RANK_H

#include <stdint.h>

/*
 * In the order in which they are believed. A batch script of Slurm has SLURM_PROCID=0, and all
 * ranks that its mpirun starts inherit this; so Slurm's variable counts only without the others.
 */
#define PDN_RANK_VARIABLES "PMIX_RANK=\0OMPI_COMM_WORLD_RANK=\0PMI_RANK=\0SLURM_PROCID=\0"

enum { PDN_NO_RANK = -1 };

/* PDN_NO_RANK when it is not a number of at most 9 digits. */
static inline int32_t pdn_parse_rank(const char *text)
{
	int32_t rank = 0;
	unsigned digits = 0;

	for (; text[digits] >= '0' && text[digits] <= '9' && digits < 9; digits++)
		rank = rank * 10 + (text[digits] - '0');
	return digits && !text[digits] ? rank : PDN_NO_RANK;
}

#endif
