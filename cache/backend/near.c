/* SPDX-License-Identifier: MIT */
/* Compares the places of two devices in sysfs. */
#include "cache/backend/near.h"

/* A bridge's name has a dot, a host bridge's has none. */
bool pdn_share_a_bridge(const char *a, const char *b)
{
	bool shared = false, is_bridge = false;

	for (; *a && *a == *b; a++, b++) {
		if (*a == '/') {
			shared |= is_bridge;
			is_bridge = false;
		} else if (*a == '.') {
			is_bridge = true;
		}
	}
	return shared;
}
