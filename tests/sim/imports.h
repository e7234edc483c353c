/* SPDX-License-Identifier: MIT */
/* Memory between processes. All functions need the API lock. */
#ifndef SIM_IMPORTS_H
#define SIM_IMPORTS_H

#include "memory.h"

enum sim_record_kind { SIM_RECORD_MEMORY, SIM_RECORD_PHYSICAL, SIM_RECORD_POOL };

/* Gives an allocation a record that other processes can read. */
bool sim_share(struct sim_alloc *alloc);
/* An allocation of the memory in a record, reached through a descriptor of its file. */
CUresult sim_import(int fd, const struct sim_record *record, enum sim_kind kind, int device,
		    struct sim_alloc **alloc);

/* ipc.c: it was closed for the last time, or its context has ended. */
void sim_ipc_free(struct sim_alloc *alloc);

#endif
