/* SPDX-License-Identifier: MIT */
/* Volatile memory, whose frees can't all be seen. hook_events.h says how it becomes volatile. */
#ifndef PDN_VOLATILE_H
#define PDN_VOLATILE_H

#include <stdbool.h>
#include <stdint.h>

/* Lock held for these. Is any of [begin, end) volatile? */
bool pdn_is_volatile(uint64_t begin, uint64_t end);

/* Has any of it been freed in stream order, and is only ended by the stream? */
bool pdn_is_leaving(uint64_t begin, uint64_t end);

/* This memory is no longer volatile; false: none of it was. Regions in it still are checked. */
bool pdn_volatile_forget(uint64_t begin, uint64_t end);

/* Those regions were compared with the driver, and need it no more; but for those UNASKED. */
void pdn_volatile_trust(uint64_t begin, uint64_t end);

#endif
