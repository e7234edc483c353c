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
 * Several pins may wait at a time. A descriptor shows one wish, the oldest that it has not
 * answered, and the next one after the answer.
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
static LIST_HEAD(wishes); /* of pins that wait, oldest first; under files_lock */
static u32 last_wish;	  /* under files_lock */

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

/* ---- wishes; all of this needs files_lock ---- */

/* `before` 0: there was none yet. */
static bool is_later(u32 serial, u32 before)
{
	return !before || (s32)(serial - before) > 0;
}

/* A number that is only reserved, for a pin that is under way, gives nothing. */
static bool file_can_give(struct pdn_file *file, const struct pdn_owner *asker)
{
	unsigned long number = 0;

	return file->owner != asker && xa_find(&file->regions, &number, ULONG_MAX, XA_PRESENT);
}

static bool file_owes_answer(const struct pdn_file *file, const struct pdn_wish *wish)
{
	return file->owner != wish->region->owner && !is_later(wish->serial, file->asked) &&
	       is_later(wish->serial, file->answered);
}

/* Shows the oldest wish that the descriptor has not answered, if it does not show it already. */
static void file_show_oldest(struct pdn_file *file)
{
	struct pdn_wish *wish;

	list_for_each_entry(wish, &wishes, link) {
		if (!file_owes_answer(file, wish))
			continue;
		if (file->wanted == wish->serial)
			return;
		file->wanted = wish->serial;
		pdn_state_wish(&file->state, wish->serial, wish->region->length, wish->gpu_uuid);
		wake_up_all(&file->wishes);
		return;
	}
}

/* Returns the number of descriptors that were asked. */
static u32 wish_ask(struct pdn_wish *wish)
{
	struct pdn_file *file;
	u32 asked = 0;

	if (!++last_wish)
		++last_wish;
	wish->serial = last_wish;
	list_add_tail(&wish->link, &wishes);
	list_for_each_entry(file, &files, link) {
		if (!file_can_give(file, wish->region->owner))
			continue;
		file->asked = wish->serial;
		file_show_oldest(file);
		asked++;
	}
	return asked;
}

/* Has every descriptor that was asked answered, been closed, or no region left? */
static bool wish_is_answered(const struct pdn_wish *wish)
{
	struct pdn_file *file;

	list_for_each_entry(file, &files, link)
		if (file_owes_answer(file, wish) && file_can_give(file, wish->region->owner))
			return false;
	return true;
}

/* ---- for the rest of the module ---- */

int pdn_wishes_answer(struct pdn_file *file, u32 serial)
{
	int ret = 0;

	spin_lock(&files_lock);
	if (!file->wanted || is_later(serial, file->wanted)) {
		ret = -EINVAL;
	} else if (is_later(serial, file->answered)) {
		file->answered = serial;
		file_show_oldest(file);
	}
	spin_unlock(&files_lock);
	wake_up_all(&givers);
	return ret;
}

static bool wish_raise(struct pdn_wish *wish)
{
	u32 asked;

	spin_lock(&files_lock);
	asked = wish_ask(wish);
	spin_unlock(&files_lock);
	trace_pindown_wish(wish->region, wish->serial, asked);
	if (asked)
		pdn_count(PDN_RECLAIMS);
	return asked;
}

static bool wish_is_over(const struct pdn_wish *wish)
{
	bool over;

	if ((u64)atomic64_read(&given) != wish->given)
		return true;
	spin_lock(&files_lock);
	over = wish_is_answered(wish);
	spin_unlock(&files_lock);
	return over;
}

void pdn_wish_begin(struct pdn_wish *wish, const struct pdn_region *region)
{
	*wish = (struct pdn_wish){ .region = region, .given = atomic64_read(&given) };
	INIT_LIST_HEAD(&wish->link);
}

int pdn_wish_wait(struct pdn_wish *wish)
{
	u64 seen = wish->given;
	long left;

	if (!wish->serial) {
		if (!reclaim_wait_ms)
			return -ENOSPC;
		wish->deadline = jiffies + msecs_to_jiffies(reclaim_wait_ms);
		if (!wish_raise(wish))
			return -ENOSPC;
	}
	left = wish->deadline - jiffies;
	if (left <= 0)
		return -ENOSPC;
	left = wait_event_interruptible_timeout(givers, wish_is_over(wish), left);
	if (left < 0)
		return -EINTR;
	wish->given = atomic64_read(&given);
	return wish->given != seen && left ? 0 : -ENOSPC;
}

/*
 * Descriptors that have not answered it show the next one. If there is none they still show it:
 * what they give back late helps the next try.
 */
void pdn_wish_end(struct pdn_wish *wish)
{
	struct pdn_file *file;

	if (!wish->serial)
		return;
	spin_lock(&files_lock);
	list_del_init(&wish->link);
	list_for_each_entry(file, &files, link)
		file_show_oldest(file);
	spin_unlock(&files_lock);
}
