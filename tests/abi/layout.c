/* SPDX-License-Identifier: MIT */
/*
 * The layout of the C API's structures and the values of its numbers, as a program that was built
 * against this release has them in its code. A change here is a change of the ABI: programs must be
 * built again, and the library gets another number (SONAME in the Makefile). Only structures whose
 * size the caller says may grow at their ends.
 */
#include <stddef.h>

#include "pindown.h"

#ifndef __cplusplus
#define static_assert _Static_assert
#endif
#define SIZE(type, size) static_assert(sizeof(struct type) == (size), #type " has another size")
#define AT(type, member, offset)                                                          \
	static_assert(offsetof(struct type, member) == (offset), #type "." #member " is " \
								       "elsewhere")
#define IS(name, value) static_assert((int)(name) == (value), #name " has another value")

SIZE(pindown_range, 16);
AT(pindown_range, addr, 0);
AT(pindown_range, length, 8);
SIZE(pindown_invalidation, 40);
AT(pindown_invalidation, base, 0);
AT(pindown_invalidation, length, 8);
AT(pindown_invalidation, buffer_id, 16);
AT(pindown_invalidation, reason, 24);
AT(pindown_invalidation, in_use, 28);
AT(pindown_invalidation, region, 32);
SIZE(pindown_key, 24);
AT(pindown_key, owner, 0);
AT(pindown_key, word, 8);
SIZE(pindown_object_request, 56);
AT(pindown_object_request, key, 0);
AT(pindown_object_request, region, 24);
AT(pindown_object_request, addr, 32);
AT(pindown_object_request, length, 40);
AT(pindown_object_request, request, 48);
SIZE(pindown_object_end, 48);
AT(pindown_object_end, key, 0);
AT(pindown_object_end, data, 24);
AT(pindown_object_end, region, 32);
AT(pindown_object_end, reason, 40);
AT(pindown_object_end, in_use, 44);
SIZE(pindown_consumer, 48);
AT(pindown_consumer, name, 0);
AT(pindown_consumer, create, 8);
AT(pindown_consumer, destroy, 16);
AT(pindown_consumer, arg, 24);
AT(pindown_consumer, rights, 32);
AT(pindown_consumer, flags, 40);
SIZE(pindown_stats, 296);
AT(pindown_stats, hits, 0);
AT(pindown_stats, misses, 8);
AT(pindown_stats, pins, 16);
AT(pindown_stats, unpins, 24);
AT(pindown_stats, pin_failures, 32);
AT(pindown_stats, evictions, 40);
AT(pindown_stats, invalidations, 48);
AT(pindown_stats, lost_races, 56);
AT(pindown_stats, missed_invalidations, 64);
AT(pindown_stats, tag_checks, 72);
AT(pindown_stats, regions, 80);
AT(pindown_stats, bytes, 88);
AT(pindown_stats, kept_regions, 96);
AT(pindown_stats, kept_bytes, 104);
AT(pindown_stats, peak_regions, 112);
AT(pindown_stats, peak_bytes, 120);
AT(pindown_stats, max_regions, 128);
AT(pindown_stats, max_bytes, 136);
AT(pindown_stats, intercepting, 144);
AT(pindown_stats, distrusted, 148);
AT(pindown_stats, backend, 152);
AT(pindown_stats, objects, 168);
AT(pindown_stats, objects_made, 176);
AT(pindown_stats, objects_revoked, 184);
AT(pindown_stats, object_kept_regions, 192);
AT(pindown_stats, object_kept_bytes, 200);
AT(pindown_stats, dmabufs, 208);
AT(pindown_stats, max_dmabufs, 216);
AT(pindown_stats, fallbacks, 224);
AT(pindown_stats, exports_saved, 232);
AT(pindown_stats, retired, 240);
AT(pindown_stats, retired_ranges, 248);
AT(pindown_stats, retired_bytes, 256);
AT(pindown_stats, retired_dropped, 264);
AT(pindown_stats, escapes, 272);
AT(pindown_stats, unprotected, 280);
AT(pindown_stats, left_to_card, 288);
SIZE(pindown_consumer_stats, 48);
AT(pindown_consumer_stats, objects, 0);
AT(pindown_consumer_stats, held_objects, 8);
AT(pindown_consumer_stats, kept_objects, 16);
AT(pindown_consumer_stats, objects_made, 24);
AT(pindown_consumer_stats, create_errors, 32);
AT(pindown_consumer_stats, objects_revoked, 40);
SIZE(pindown_region_info, 64);
AT(pindown_region_info, base, 0);
AT(pindown_region_info, length, 8);
AT(pindown_region_info, pin_base, 16);
AT(pindown_region_info, pin_length, 24);
AT(pindown_region_info, buffer_id, 32);
AT(pindown_region_info, context, 40);
AT(pindown_region_info, device, 48);
AT(pindown_region_info, is_volatile, 52);
AT(pindown_region_info, is_live, 56);
AT(pindown_region_info, in_use, 60);
SIZE(pindown_object_info, 56);
AT(pindown_object_info, key, 0);
AT(pindown_object_info, base, 24);
AT(pindown_object_info, length, 32);
AT(pindown_object_info, consumer, 40);
AT(pindown_object_info, is_live, 44);
AT(pindown_object_info, in_use, 48);
IS(PINDOWN_OK, 0);
IS(PINDOWN_ERR_INVALID, -1);
IS(PINDOWN_ERR_DISABLED, -2);
IS(PINDOWN_ERR_NO_CUDA, -3);
IS(PINDOWN_ERR_NOT_DEVICE, -4);
IS(PINDOWN_ERR_HOST, -5);
IS(PINDOWN_ERR_MANAGED, -6);
IS(PINDOWN_ERR_RANGE, -7);
IS(PINDOWN_ERR_NO_SPACE, -8);
IS(PINDOWN_ERR_BUSY, -9);
IS(PINDOWN_ERR_NO_BACKEND, -10);
IS(PINDOWN_ERR_DRIVER, -11);
IS(PINDOWN_ERR_NO_MEMORY, -12);
IS(PINDOWN_ERR_NO_DMABUF, -13);
IS(PINDOWN_ERR_DEADLOCK, -14);
IS(PINDOWN_ERR_WOULD_WAIT, -15);
IS(PINDOWN_ERR_TIMED_OUT, -16);
IS(PINDOWN_REASON_FREED, 1);
IS(PINDOWN_REASON_CONTEXT, 2);
IS(PINDOWN_REASON_EVICTED, 3);
IS(PINDOWN_REASON_FLUSHED, 4);
IS(PINDOWN_REASON_STALE, 5);
IS(PINDOWN_REASON_OWNER, 6);
IS(PINDOWN_REASON_ORDERED, 7);
IS(PINDOWN_PAGE_SIZE, 65536);
IS(PINDOWN_GET_CACHED, 1);
IS(PINDOWN_GET_NOWAIT, 2);
IS(PINDOWN_CONSUMER_RANGES, 1);
