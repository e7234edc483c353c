// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * budget.c - how much may be pinned, and how much each process pins.
 *
 * The unit of the budget is a *charge*: the bytes of one pin of the driver, charged to the process
 * that asked for it and to one GPU, and checked against the limits of the process and the machine.
 *
 *   Owner	The owner of the descriptor, also after its death: a charge holds a reference to it.
 *   Pins	Each pin with callback, and each hold (a persistent pin). Drivers since 580 map
 *		memory into the BAR once for both kinds: there the hold of a dma-buf shares the
 *		charge of its region with callback. All other pins count in full, also where they
 *		overlap.
 *   Begin	When the driver has made the pin, and so has checked that the memory belongs to the
 *		process. A request that the driver refuses is never counted.
 *   End	When the driver has the pin back: by put_pages, by the callback, or, for a hold, by
 *		put_pages_persistent once the last importer has detached.
 *
 * Where there is a limit, requests are served one at a time, so that nothing can be charged between
 * the check of the limit and the charge. Large requests are always served one at a time, since the
 * driver allocates host memory for a request before it checks it (size.c). one_at_a_time is held
 * around the driver's call, so the callback must not take it. A limit that is set while requests
 * are under way applies to later requests. The page that pd_probe() pins for a moment is not
 * counted.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "internal.h"

static ulong max_pinned_mb;
module_param(max_pinned_mb, ulong, 0644);
MODULE_PARM_DESC(max_pinned_mb, "MiB that all processes together may pin, 0: no limit (default)");

static ulong max_process_mb;
module_param(max_process_mb, ulong, 0644);
MODULE_PARM_DESC(max_process_mb, "MiB that one process may pin, 0: no limit (default)");

static uint max_regions = PD_MAX_REGION;
module_param(max_regions, uint, 0644);
MODULE_PARM_DESC(max_regions, "regions that one descriptor may have (default 1048575, the most)");

struct pd_gpu {
	struct list_head link;
	u8 uuid[16];
	atomic64_t bytes;
	atomic64_t regions;
};

struct pd_charge {
	struct kref ref; /* one for the region, and one for each hold that shares the charge */
	struct pd_owner *owner;
	struct pd_gpu *gpu; /* NULL: not known yet */
	u64 length;
};

static atomic64_t all_bytes, all_regions;
static DEFINE_MUTEX(one_at_a_time);

static LIST_HEAD(gpus);
static DEFINE_MUTEX(gpus_lock);

/* ---- limits ---- */

static u64 limit_of(const ulong *mb)
{
	ulong limit = READ_ONCE(*mb);

	return limit > U64_MAX >> 20 ? 0 : (u64)limit << 20;
}

static bool is_limited(void)
{
	return limit_of(&max_process_mb) || limit_of(&max_pinned_mb);
}

static bool fits(const atomic64_t *bytes, u64 more, u64 limit)
{
	return !limit || (more <= limit && (u64)atomic64_read(bytes) <= limit - more);
}

static int look_at_limits(const struct pd_owner *owner, u64 length)
{
	if (!fits(&owner->bytes, length, limit_of(&max_process_mb)))
		return -EDQUOT;
	return fits(&all_bytes, length, limit_of(&max_pinned_mb)) ? 0 : -ENOSPC;
}

u32 pd_budget_regions(void)
{
	return clamp_t(u32, READ_ONCE(max_regions), 1, PD_MAX_REGION);
}

/* ---- charges ---- */

static void count(struct pd_charge *charge, int sign)
{
	s64 bytes = sign * (s64)charge->length;

	atomic64_add(bytes, &charge->owner->bytes);
	atomic64_add(sign, &charge->owner->regions);
	atomic64_add(bytes, &all_bytes);
	atomic64_add(sign, &all_regions);
	if (charge->gpu) {
		atomic64_add(bytes, &charge->gpu->bytes);
		atomic64_add(sign, &charge->gpu->regions);
	}
}

static struct pd_charge *charge_new(struct pd_owner *owner, u64 length)
{
	struct pd_charge *charge = kzalloc(sizeof(*charge), GFP_KERNEL_ACCOUNT);

	if (!charge)
		return NULL;
	kref_init(&charge->ref);
	kref_get(&owner->ref);
	charge->owner = owner;
	charge->length = length;
	return charge;
}

static void charge_free(struct pd_charge *charge)
{
	pd_owner_put(charge->owner);
	kfree(charge);
}

struct pd_charge *pd_charge_get(struct pd_charge *charge)
{
	kref_get(&charge->ref);
	return charge;
}

static void charge_release(struct kref *ref)
{
	struct pd_charge *charge = container_of(ref, struct pd_charge, ref);

	count(charge, -1);
	charge_free(charge);
	pd_wishes_given();
}

void pd_charge_put(struct pd_charge *charge)
{
	if (charge)
		kref_put(&charge->ref, charge_release);
}

/* ---- asking the driver ---- */

int pd_room_ask(struct pd_room *room, struct pd_owner *owner, u64 length, struct pd_charge *shared)
{
	int ret = 0;

	if (!pd_size_is_possible(length))
		return -EFBIG;
	room->is_new = !shared;
	room->charge = shared ? pd_charge_get(shared) : charge_new(owner, length);
	if (!room->charge)
		return -ENOMEM;
	room->alone = !pd_size_is_small(length) || (room->is_new && is_limited());
	if (room->alone)
		ret = mutex_lock_killable(&one_at_a_time);
	if (ret) {
		room->alone = false;
	} else if (room->is_new) {
		ret = look_at_limits(owner, length);
	}
	if (ret)
		pd_room_leave(room);
	return ret;
}

struct pd_charge *pd_room_take(struct pd_room *room)
{
	if (room->is_new)
		count(room->charge, 1);
	if (room->alone)
		mutex_unlock(&one_at_a_time);
	return room->charge;
}

void pd_room_leave(struct pd_room *room)
{
	if (room->alone)
		mutex_unlock(&one_at_a_time);
	/* A new charge was never counted. */
	if (room->is_new)
		charge_free(room->charge);
	else
		pd_charge_put(room->charge);
}

/* ---- GPUs ---- */

/* There is one pd_gpu for each GPU that ever had a pin, until the module is unloaded. */
static struct pd_gpu *gpu_of(const u8 *uuid)
{
	struct pd_gpu *gpu;

	mutex_lock(&gpus_lock);
	list_for_each_entry(gpu, &gpus, link)
		if (!memcmp(gpu->uuid, uuid, sizeof(gpu->uuid)))
			goto out;
	gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	if (gpu) {
		memcpy(gpu->uuid, uuid, sizeof(gpu->uuid));
		list_add_tail(&gpu->link, &gpus);
	}
out:
	mutex_unlock(&gpus_lock);
	return gpu;
}

int pd_charge_gpu(struct pd_charge *charge, const u8 *uuid)
{
	struct pd_gpu *gpu = charge->gpu ?: gpu_of(uuid);

	if (!gpu)
		return -ENOMEM;
	if (!charge->gpu) {
		charge->gpu = gpu;
		atomic64_add(charge->length, &gpu->bytes);
		atomic64_inc(&gpu->regions);
	}
	return 0;
}

/* ---- for people ---- */

static void gpu_stats(struct pindown_stats_all *stats)
{
	struct pd_gpu *gpu;

	mutex_lock(&gpus_lock);
	list_for_each_entry(gpu, &gpus, link) {
		if (stats->gpus++ != stats->gpu)
			continue;
		stats->gpu_bytes = atomic64_read(&gpu->bytes);
		stats->gpu_regions = atomic64_read(&gpu->regions);
		memcpy(stats->gpu_uuid, gpu->uuid, sizeof(stats->gpu_uuid));
	}
	mutex_unlock(&gpus_lock);
}

void pd_budget_own_stats(struct pd_owner *owner, struct pindown_stats_all *stats)
{
	stats->process_bytes = atomic64_read(&owner->bytes);
	stats->process_regions = atomic64_read(&owner->regions);
	stats->process_limit = limit_of(&max_process_mb);
	stats->all_limit = limit_of(&max_pinned_mb);
}

void pd_budget_all_stats(struct pindown_stats_all *stats)
{
	stats->all_bytes = atomic64_read(&all_bytes);
	stats->all_regions = atomic64_read(&all_regions);
	gpu_stats(stats);
}

void pd_budget_exit(void)
{
	struct pd_gpu *gpu, *next;

	list_for_each_entry_safe(gpu, next, &gpus, link)
		kfree(gpu);
}
