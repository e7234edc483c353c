// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * budget.c - how much may be pinned, who pins how much, and asking others to give back.
 *
 * Bytes are those of regions, as their owners asked for them. The driver maps memory that is pinned
 * twice into BAR space once, so that BAR space in use may be less.
 *
 * A pin that finds no room is a wish: it gets a serial number, which all other descriptors show in
 * their state area and through poll(). The processes behind them unpin what they keep for later use
 * only, and answer. The wish is over when somebody gave something back (then the pin is tried
 * again), when all have answered, or when time is up.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "internal.h"
#include "trace.h"

static ulong max_pinned_mb;
module_param(max_pinned_mb, ulong, 0644);
MODULE_PARM_DESC(max_pinned_mb, "MiB that all processes together may pin, 0: no limit (default)");

static ulong max_process_mb;
module_param(max_process_mb, ulong, 0644);
MODULE_PARM_DESC(max_process_mb, "MiB that one process may pin, 0: no limit (default)");

static uint reclaim_wait_ms = 200;
module_param(reclaim_wait_ms, uint, 0644);
MODULE_PARM_DESC(reclaim_wait_ms,
		 "ms that a pin waits for BAR space of others, 0: not at all (default 200)");

static uint max_regions = PD_MAX_REGION;
module_param(max_regions, uint, 0644);
MODULE_PARM_DESC(max_regions, "regions that one descriptor may have (default 1048575, the most)");

static atomic64_t all_bytes, all_regions;
static atomic64_t given; /* how often something was given back, by anybody */
static DECLARE_WAIT_QUEUE_HEAD(givers);

/* files_lock for what a wish looks at; files_stay for looking at a descriptor's regions, too. */
static LIST_HEAD(files);
static DEFINE_SPINLOCK(files_lock);
static DEFINE_MUTEX(files_stay);
static u32 last_wish; /* under files_lock */

static LIST_HEAD(gpus);
static DEFINE_MUTEX(gpus_lock);

/* ---- accounting ---- */

static u64 limit_of(const ulong *mb)
{
	ulong limit = READ_ONCE(*mb);

	return limit > U64_MAX >> 20 ? 0 : (u64)limit << 20;
}

/* Adds, unless that passes the limit. */
static bool add_below(atomic64_t *bytes, u64 more, u64 limit)
{
	s64 old = atomic64_read(bytes);

	do {
		if (limit && (more > limit || old > limit - more))
			return false;
	} while (!atomic64_try_cmpxchg(bytes, &old, old + more));
	return true;
}

u32 pd_budget_regions(void)
{
	return clamp_t(u32, READ_ONCE(max_regions), 1, PD_MAX_REGION);
}

int pd_budget_charge(struct pd_region *region)
{
	struct pd_owner *owner = region->owner;

	if (!add_below(&owner->bytes, region->length, limit_of(&max_process_mb)))
		return -EDQUOT;
	if (!add_below(&all_bytes, region->length, limit_of(&max_pinned_mb))) {
		atomic64_sub(region->length, &owner->bytes);
		return -ENOSPC;
	}
	atomic64_inc(&owner->regions);
	atomic64_inc(&all_regions);
	set_bit(0, &region->charged);
	return 0;
}

static bool uncharge(struct pd_region *region)
{
	if (!test_and_clear_bit(0, &region->charged))
		return false;
	if (region->gpu) {
		atomic64_sub(region->length, &region->gpu->bytes);
		atomic64_dec(&region->gpu->regions);
	}
	atomic64_dec(&region->owner->regions);
	atomic64_sub(region->length, &region->owner->bytes);
	atomic64_dec(&all_regions);
	atomic64_sub(region->length, &all_bytes);
	return true;
}

void pd_budget_uncharge(struct pd_region *region)
{
	if (!uncharge(region))
		return;
	atomic64_inc(&given);
	wake_up_all(&givers);
}

void pd_budget_cancel(struct pd_region *region)
{
	uncharge(region);
}

/* One record for each GPU that ever had a pin, until the module goes. */
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

/* Which GPU it is on is known once it is pinned. Fails for lack of memory only. */
int pd_budget_charge_gpu(struct pd_region *region)
{
	struct pd_gpu *gpu = gpu_of(region->gpu_uuid);

	if (!gpu)
		return -ENOMEM;
	down_write(&region->lock);
	/* A callback that was faster has given the rest back already. */
	if (region->state == PD_LIVE) {
		region->gpu = gpu;
		atomic64_add(region->length, &gpu->bytes);
		atomic64_inc(&gpu->regions);
	}
	up_write(&region->lock);
	return 0;
}

void pd_budget_stats(struct pd_owner *owner, struct pindown_stats_all *stats)
{
	struct pd_gpu *gpu;

	stats->process_bytes = atomic64_read(&owner->bytes);
	stats->process_regions = atomic64_read(&owner->regions);
	stats->all_bytes = atomic64_read(&all_bytes);
	stats->all_regions = atomic64_read(&all_regions);
	stats->process_limit = limit_of(&max_process_mb);
	stats->all_limit = limit_of(&max_pinned_mb);
	stats->gpus = 0;
	stats->gpu_bytes = 0;
	stats->gpu_regions = 0;
	memset(stats->gpu_uuid, 0, sizeof(stats->gpu_uuid));
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

void pd_gpus_show(struct seq_file *seq)
{
	struct pd_gpu *gpu;

	mutex_lock(&gpus_lock);
	list_for_each_entry(gpu, &gpus, link)
		seq_printf(seq, "%pUb %12lld %8lld\n", gpu->uuid, (s64)atomic64_read(&gpu->bytes),
			   (s64)atomic64_read(&gpu->regions));
	mutex_unlock(&gpus_lock);
}

void pd_budget_exit(void)
{
	struct pd_gpu *gpu, *next;

	list_for_each_entry_safe(gpu, next, &gpus, link)
		kfree(gpu);
}

/* ---- descriptors ---- */

void pd_budget_init_file(struct pd_file *file)
{
	init_waitqueue_head(&file->wishes);
	mutex_lock(&files_stay);
	spin_lock(&files_lock);
	list_add_tail(&file->link, &files);
	spin_unlock(&files_lock);
	mutex_unlock(&files_stay);
}

void pd_budget_exit_file(struct pd_file *file)
{
	mutex_lock(&files_stay);
	spin_lock(&files_lock);
	list_del(&file->link);
	spin_unlock(&files_lock);
	mutex_unlock(&files_stay);
	/* One fewer to wait for. */
	wake_up_all(&givers);
}

void pd_files_show(struct seq_file *seq)
{
	struct pd_region *region;
	struct pd_file *file;
	unsigned long number;

	mutex_lock(&files_stay);
	list_for_each_entry(file, &files, link) {
		xa_for_each(&file->regions, number, region) {
			region = pd_region_get(file, number);
			if (!region)
				continue;
			pd_region_show(seq, region);
			pd_region_put(region);
			cond_resched();
		}
	}
	mutex_unlock(&files_stay);
}

__poll_t pd_budget_poll(struct pd_file *file, struct file *filp, poll_table *table)
{
	__poll_t ready;

	poll_wait(filp, &file->wishes, table);
	spin_lock(&files_lock);
	ready = file->wanted != file->answered ? EPOLLIN | EPOLLRDNORM : 0;
	spin_unlock(&files_lock);
	return ready;
}

int pd_budget_answer(struct pd_file *file, u32 serial)
{
	int ret = 0;

	spin_lock(&files_lock);
	if (!file->wanted || (s32)(serial - file->wanted) > 0)
		ret = -EINVAL;
	else if ((s32)(serial - file->answered) > 0 || !file->answered)
		file->answered = serial;
	spin_unlock(&files_lock);
	wake_up_all(&givers);
	return ret;
}

/* ---- wishes ---- */

static bool file_can_give(const struct pd_file *file, const struct pd_owner *asker)
{
	return file->owner != asker && !xa_empty(&file->regions);
}

static u32 wish_ask(const struct pd_region *region)
{
	struct pd_file *file;
	u32 serial, asked = 0;

	spin_lock(&files_lock);
	if (!++last_wish)
		++last_wish;
	serial = last_wish;
	list_for_each_entry(file, &files, link) {
		if (!file_can_give(file, region->owner))
			continue;
		file->wanted = serial;
		pd_state_wish(&file->state, serial, region->length);
		wake_up_all(&file->wishes);
		asked++;
	}
	spin_unlock(&files_lock);
	trace_pindown_wish(region, serial, asked);
	if (!asked)
		return 0;
	pd_count(PD_RECLAIMS);
	return serial;
}

/* True when everybody who was asked has answered, has gone, or has nothing left. */
static bool wish_is_answered(u32 serial, const struct pd_owner *asker)
{
	struct pd_file *file;
	bool answered = true;

	spin_lock(&files_lock);
	list_for_each_entry(file, &files, link) {
		if (!file_can_give(file, asker) || (s32)(file->wanted - serial) < 0)
			continue;
		if (!file->answered || (s32)(file->answered - serial) < 0) {
			answered = false;
			break;
		}
	}
	spin_unlock(&files_lock);
	return answered;
}

void pd_wish_begin(struct pd_wish *wish)
{
	wish->serial = 0;
	wish->given = atomic64_read(&given);
}

int pd_wish_wait(struct pd_wish *wish, const struct pd_region *region)
{
	const struct pd_owner *asker = region->owner;
	u64 seen = wish->given;
	long left;

	if (!wish->serial) {
		if (!reclaim_wait_ms)
			return -ENOSPC;
		wish->deadline = jiffies + msecs_to_jiffies(reclaim_wait_ms);
		wish->serial = wish_ask(region);
		if (!wish->serial)
			return -ENOSPC;
	}
	left = wish->deadline - jiffies;
	if (left <= 0)
		return -ENOSPC;
	left = wait_event_interruptible_timeout(givers,
						(u64)atomic64_read(&given) != seen ||
							wish_is_answered(wish->serial, asker),
						left);
	if (left < 0)
		return -EINTR;
	wish->given = atomic64_read(&given);
	return wish->given != seen && left ? 0 : -ENOSPC;
}
