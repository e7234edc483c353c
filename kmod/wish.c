// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * wish.c - asking other processes to give BAR space back.
 *
 * A pin for which there is no BAR space raises a wish. The wish has a serial number, which all
 * other descriptors show in their state area and through poll(). Their processes unpin regions that
 * they only keep for later use, and answer. The wish ends when any process has given something back
 * (the pin is then tried again), when all have answered, or when time is up. Each process decides
 * whether it gives back anything, what, and how much.
 *
 * A process that could raise wishes at will could empty the caches of all others. So a wish needs
 * memory that the driver has shown to be the process' own (pin.c), and a limit raises no wish.
 *
 * This is done in the kernel because only the kernel knows all processes that hold regions, in any
 * container and of any user, and that a wish is genuine.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/poll.h>
#include <linux/seq_file.h>

#include "internal.h"
#include "trace.h"

static uint reclaim_wait_ms = 200;
module_param(reclaim_wait_ms, uint, 0644);
MODULE_PARM_DESC(reclaim_wait_ms,
		 "ms that a pin waits for BAR space of others, 0: not at all (default 200)");

static atomic64_t given; /* how often any process has given something back */
static DECLARE_WAIT_QUEUE_HEAD(givers);

/*
 * files_lock protects the list and the members that a wish reads. files_stay keeps the descriptors
 * in the list, for a walk over their regions that may sleep. A change of the list needs both.
 */
static LIST_HEAD(files);
static DEFINE_SPINLOCK(files_lock);
static DEFINE_MUTEX(files_stay);
static u32 last_wish; /* under files_lock */

void pdn_wishes_given(void)
{
	atomic64_inc(&given);
	wake_up_all(&givers);
}

/* ---- descriptors ---- */

void pdn_files_add(struct pdn_file *file)
{
	init_waitqueue_head(&file->wishes);
	mutex_lock(&files_stay);
	spin_lock(&files_lock);
	list_add_tail(&file->link, &files);
	spin_unlock(&files_lock);
	mutex_unlock(&files_stay);
}

void pdn_files_remove(struct pdn_file *file)
{
	mutex_lock(&files_stay);
	spin_lock(&files_lock);
	list_del(&file->link);
	spin_unlock(&files_lock);
	mutex_unlock(&files_stay);
	/* A waiting pin has one descriptor less to wait for. */
	wake_up_all(&givers);
}

void pdn_files_show(struct seq_file *seq)
{
	struct pdn_region *region;
	struct pdn_file *file;
	unsigned long number;

	mutex_lock(&files_stay);
	list_for_each_entry(file, &files, link) {
		xa_for_each(&file->regions, number, region) {
			region = pdn_region_get(file, number);
			if (!region)
				continue;
			pdn_region_show(seq, region);
			pdn_region_put(region);
			cond_resched();
		}
	}
	mutex_unlock(&files_stay);
}

__poll_t pdn_wishes_poll(struct pdn_file *file, struct file *filp, poll_table *table)
{
	__poll_t ready;

	poll_wait(filp, &file->wishes, table);
	spin_lock(&files_lock);
	ready = file->wanted != file->answered ? EPOLLIN | EPOLLRDNORM : 0;
	spin_unlock(&files_lock);
	return ready;
}

int pdn_wishes_answer(struct pdn_file *file, u32 serial)
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

static bool file_can_give(const struct pdn_file *file, const struct pdn_owner *asker)
{
	return file->owner != asker && !xa_empty(&file->regions);
}

static u32 wish_ask(const struct pdn_wish *wish, const struct pdn_region *region)
{
	struct pdn_file *file;
	u32 serial, asked = 0;

	spin_lock(&files_lock);
	if (!++last_wish)
		++last_wish;
	serial = last_wish;
	list_for_each_entry(file, &files, link) {
		if (!file_can_give(file, region->owner))
			continue;
		file->wanted = serial;
		pdn_state_wish(&file->state, serial, region->length, wish->gpu_uuid);
		wake_up_all(&file->wishes);
		asked++;
	}
	spin_unlock(&files_lock);
	trace_pindown_wish(region, serial, asked);
	if (!asked)
		return 0;
	pdn_count(PDN_RECLAIMS);
	return serial;
}

/* Has every descriptor that was asked answered, been closed, or no region left? */
static bool wish_is_answered(u32 serial, const struct pdn_owner *asker)
{
	struct pdn_file *file;
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

void pdn_wish_begin(struct pdn_wish *wish)
{
	*wish = (struct pdn_wish){};
	wish->given = atomic64_read(&given);
}

int pdn_wish_wait(struct pdn_wish *wish, const struct pdn_region *region)
{
	const struct pdn_owner *asker = region->owner;
	u64 seen = wish->given;
	long left;

	if (!wish->serial) {
		if (!reclaim_wait_ms)
			return -ENOSPC;
		wish->deadline = jiffies + msecs_to_jiffies(reclaim_wait_ms);
		wish->serial = wish_ask(wish, region);
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
