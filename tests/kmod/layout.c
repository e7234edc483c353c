/* SPDX-License-Identifier: MIT */
/* The layout of the ioctl structures: the same for every compiler and word size. */
#include "pindown_ioctl.h"

#include <stddef.h>

#ifndef __cplusplus
#define static_assert _Static_assert
#endif
#define SIZE(type, size) static_assert(sizeof(struct type) == (size), #type " has another size")
#define AT(type, member, offset)                                                          \
	static_assert(offsetof(struct type, member) == (offset), #type "." #member " is " \
								       "elsewhere")

SIZE(pindown_version, 48);
AT(pindown_version, capabilities, 16);
SIZE(pindown_pin, 72);
AT(pindown_pin, region, 24);
AT(pindown_pin, was_map_offset, 48);
AT(pindown_pin, gpu_uuid, 56);
SIZE(pindown_unpin, 24);
SIZE(pindown_export, 24);
AT(pindown_export, length, 16);
SIZE(pindown_answer, 16);
SIZE(pindown_state, 128);
AT(pindown_state, wanted, 64);
AT(pindown_state, wanted_bytes, 72);
AT(pindown_state, wanted_gpu, 80);
