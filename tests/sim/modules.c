/* SPDX-License-Identifier: MIT */
#include "contexts.h"
void sim_modules_context_ended(struct sim_context *context)
{
	(void)context;
}
