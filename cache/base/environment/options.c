/* SPDX-License-Identifier: MIT */
/* The columns of config.def that the library itself does not need: it is linked without them. */
#include "cache/base/environment/config.h"

const struct pdn_option pdn_options[] = {
#define PDN_VARIABLE(name, member, kind, choices, default_value, option, argument, help) \
	{option, argument, help},
#include "cache/base/environment/config.def"
#undef PDN_VARIABLE
};
