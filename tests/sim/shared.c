/* SPDX-License-Identifier: MIT */
#include "shared.h"
void sim_forget_import(struct sim_alloc *alloc)
{
	sim_alloc_delete(alloc);
}
