/* SPDX-License-Identifier: MIT */
/* Memory of a pool that the driver refuses to pin, though nobody has freed it. */
#ifndef PDN_REFUSAL_H
#define PDN_REFUSAL_H

#include "cache/pin/attempt.h"

/*
 * Lock not held. The pin of unchanged memory has failed with this result. Might another try of it
 * succeed? Then the flight has ended, and there was a pause if one is needed.
 */
bool pdn_refusal_may_pass(struct pdn_attempt *a, int result);

#endif
