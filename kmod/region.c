// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * region.c - regions, their tickets and their end. Their beginning is in pin.c.
 *
 * A region ends once, in one of three ways, and region->lock decides which:
 *
 *   unpin	LIVE -> ENDING. The thread that made this step calls put_pages, in the pinning
 *		process.
 *   revocation	LIVE -> REVOKED, in the callback, inside the driver's free. The page table is the
 *		driver's again when the callback returns, and is not read later.
 *   orphaning	LIVE -> ENDING, in a foreign process: the last reference to the descriptor was
 *		dropped by a child, or by a process that the descriptor was sent to. There put_pages
 *		would do nothing and return 0, with the callback still armed. So the region waits
 *		for the next call or the death of its own process, or for the callback.
 *
 * The argument of the callback is a ticket, a number that is never used twice, which it looks up.
 * The ticket holds a reference to the region, so that the callback finds the region also while it
 * is being unpinned, and before get_pages has returned.
 *
 * Unpin against callback: when put_pages is called, the free may have been faster. put_pages then
 * does nothing, and the callback has returned the page table. The driver recognizes the table by
 * its address, which must not belong to a newer pin of this process by then: owner->puts keeps
 * get_pages out while put_pages is under way. It can't keep out get_pages of other modules
 * (nvidia-peermem, gdrdrv) in the same process: see docs/internals/kernel-module.md.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/srcu.h>

#include "internal.h"
#include "trace.h"

static DEFINE_XARRAY_FLAGS(tickets, XA_FLAGS_ACCOUNT);
static atomic_long_t last_ticket;

/* Callbacks run inside the driver: unloading waits until they have left this module. */
DEFINE_STATIC_SRCU(callbacks);

struct workqueue_struct *pdn_work;

/* ---- tickets ---- */

int pdn_ticket_issue(struct pdn_region *region)
{
	int ret;

	region->ticket = atomic_long_inc_return(&last_ticket);
	kref_get(&region->ref);
	ret = xa_insert(&tickets, region->ticket, region, GFP_KERNEL);
	if (ret)
		pdn_region_put(region);
	return ret;
}

/* Returns the region with a reference, and with the ticket's own reference still in place. */
static struct pdn_region *ticket_find(unsigned long ticket)
{
	struct pdn_region *region;

	xa_lock(&tickets);
	region = xa_load(&tickets, ticket);
	if (region)
		kref_get(&region->ref);
	xa_unlock(&tickets);
	return region;
}

/* After this no callback finds the region. */
void pdn_ticket_void(struct pdn_region *region)
{
	if (xa_erase(&tickets, region->ticket))
		pdn_region_put(region);
}

/* ---- life and death ---- */

static void orphan_done(struct work_struct *work);

struct pdn_region *pdn_region_new(struct pdn_file *file, const struct pindown_pin *arg)
{
	struct pdn_region *region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);

	if (!region)
		return NULL;
	kref_init(&region->ref);
	init_rwsem(&region->lock);
	mutex_init(&region->exports_lock);
	INIT_LIST_HEAD(&region->exports);
	INIT_LIST_HEAD(&region->orphan);
	INIT_WORK(&region->orphan_done, orphan_done);
	region->state = PDN_PINNING;
	region->file = file;
	region->owner = file->owner;
	kref_get(&region->owner->ref);
	region->address = arg->address;
	region->length = arg->length;
	region->flags = arg->flags;
	return region;
}

static void region_release(struct kref *ref)
{
	struct pdn_region *region = container_of(ref, struct pdn_region, ref);

	pdn_owner_put(region->owner);
	kfree(region);
}

void pdn_region_put(struct pdn_region *region)
{
	kref_put(&region->ref, region_release);
}

struct pdn_region *pdn_region_get(struct pdn_file *file, u32 number)
{
	struct pdn_region *region;

	xa_lock(&file->regions);
	region = xa_load(&file->regions, number);
	if (region)
		kref_get(&region->ref);
	xa_unlock(&file->regions);
	return region;
}

/* A region that is still being pinned is not found: its number is only reserved. */
struct pdn_region *pdn_region_take(struct pdn_file *file, u32 number)
{
	struct pdn_region *region;

	xa_lock(&file->regions);
	region = xa_load(&file->regions, number);
	/* Storing NULL keeps the number reserved. It needs no allocation, so it can't fail. */
	if (region)
		__xa_store(&file->regions, number, NULL, 0);
	xa_unlock(&file->regions);
	return region;
}

void pdn_region_free_number(struct pdn_file *file, u32 number)
{
	xa_erase(&file->regions, number);
}

bool pdn_region_is(struct pdn_region *region, enum pdn_region_state state)
{
	bool is;

	down_read(&region->lock);
	is = region->state == state;
	up_read(&region->lock);
	return is;
}

/* Tells the process that the region is no longer valid. Needs region->lock for writing. */
static void region_clear_word(struct pdn_region *region)
{
	if (region->file)
		pdn_state_set(&region->file->state, region->number, 0);
}

/* ---- the end ---- */

/*
 * Must run in the pinning process. If it fails, the driver could not try, and the callback is still
 * armed.
 */
static int region_unpin(struct pdn_region *region)
{
	struct pdn_owner *owner = region->owner;
	struct nvidia_p2p_page_table *table;
	int ret = 0;

	down_write(&owner->puts);
	down_read(&region->lock);
	table = region->table;
	up_read(&region->lock);
	if (table)
		ret = pdn_put_pages(region, table);
	up_write(&owner->puts);
	if (ret)
		return ret;

	/* Either put_pages found the pin, or the callback has run: no callback will come now. */
	down_write(&region->lock);
	region->table = NULL;
	up_write(&region->lock);
	pdn_ticket_void(region);
	pdn_charge_put(xchg(&region->charge, NULL));
	return 0;
}

/*
 * Leaves the region to its own process. The list holds a reference to the region and one to the
 * module: the callback may come long after the last descriptor is closed.
 */
static void region_orphan(struct pdn_region *region)
{
	struct pdn_owner *owner = region->owner;

	down_write(&region->lock);
	if (region->table) {
		kref_get(&region->ref);
		__module_get(THIS_MODULE);
		spin_lock(&owner->lock);
		list_add_tail(&region->orphan, &owner->orphans);
		spin_unlock(&owner->lock);
		pdn_count(PDN_ORPHANS);
	}
	up_write(&region->lock);
}

/* The reverse, for a callback. orphan_done() drops both references after the callback. */
static bool region_leave_orphans(struct pdn_region *region)
{
	struct pdn_owner *owner = region->owner;
	bool was_orphan;

	spin_lock(&owner->lock);
	was_orphan = !list_empty(&region->orphan);
	list_del_init(&region->orphan);
	spin_unlock(&owner->lock);
	return was_orphan;
}

static void orphan_done(struct work_struct *work)
{
	pdn_region_put(container_of(work, struct pdn_region, orphan_done));
	/* Unloading waits for the workqueue, and so for the end of this function. */
	module_put(THIS_MODULE);
}

void pdn_orphans_reap(struct pdn_owner *owner)
{
	struct pdn_region *region;

	while (!list_empty(&owner->orphans)) {
		spin_lock(&owner->lock);
		region = list_first_entry_or_null(&owner->orphans, struct pdn_region, orphan);
		if (region)
			list_del_init(&region->orphan);
		spin_unlock(&owner->lock);
		if (!region)
			return;
		if (region_unpin(region)) {
			region_orphan(region);
			pdn_region_put(region);
			module_put(THIS_MODULE);
			return;
		}
		pdn_region_put(region);
		/* This is not the last reference: the caller has an open descriptor. */
		module_put(THIS_MODULE);
	}
}

/* Returns true to the one caller that has to unpin the region. */
static bool region_stop(struct pdn_region *region)
{
	bool live;

	down_write(&region->lock);
	live = region->state == PDN_LIVE;
	if (live) {
		region->state = PDN_ENDING;
		region_clear_word(region);
	}
	region->file = NULL;
	up_write(&region->lock);
	return live;
}

void pdn_region_end(struct pdn_region *region)
{
	struct pdn_hold *hold = region->hold;

	if (!region_stop(region))
		return;
	trace_pindown_unpin(region, 0);
	pdn_exports_end(region, false);
	if (hold) {
		pdn_hold_keep(hold);
		pdn_hold_put(hold);
	} else if (region->owner->tgid != task_tgid(current) || region_unpin(region)) {
		region_orphan(region);
	}
	pdn_count(PDN_UNPINS);
}

void pdn_regions_end(struct pdn_file *file)
{
	struct pdn_region *region;
	unsigned long number;

	xa_for_each(&file->regions, number, region) {
		region = pdn_region_take(file, number);
		if (!region)
			continue;
		pdn_region_end(region);
		pdn_region_free_number(file, number);
		pdn_region_put(region);
		cond_resched();
	}
}

/*
 * The driver's callback: the memory is being freed. It runs in any process, with the driver's lock
 * held, perhaps before get_pages has returned. When it returns, the page table is the driver's.
 */
void pdn_region_callback(void *data)
{
	struct nvidia_p2p_page_table *table;
	struct pdn_region *region;
	enum pdn_region_state was;
	bool was_orphan;
	int srcu;

	srcu = srcu_read_lock(&callbacks);
	region = ticket_find((unsigned long)data);
	if (!region) {
		pdn_count(PDN_STRAY_CALLBACKS);
		pr_err_ratelimited("the driver revokes a region that it has unpinned\n");
		goto out;
	}

	down_write(&region->lock);
	was = region->state;
	region->state = PDN_REVOKED;
	if (was == PDN_LIVE) {
		region_clear_word(region);
		/* After the word: a process that reads the new count also reads 0 there. */
		if (region->file)
			pdn_state_count_revocation(&region->file->state);
	}
	table = region->table;
	region->table = NULL;
	was_orphan = region_leave_orphans(region);
	up_write(&region->lock);

	if (was == PDN_LIVE) {
		pdn_exports_end(region, true);
		pdn_count(PDN_REVOCATIONS);
	}
	trace_pindown_revoke(region, was);
	if (table)
		pdn_free_table(table);
	pdn_charge_put(xchg(&region->charge, NULL));
	pdn_ticket_void(region);
	if (was_orphan)
		queue_work(pdn_work, &region->orphan_done);
	pdn_region_put(region);
out:
	srcu_read_unlock(&callbacks, srcu);
}

int pdn_regions_init(void)
{
	pdn_work = alloc_workqueue("pindown", WQ_UNBOUND, 0);
	return pdn_work ? 0 : -ENOMEM;
}

/* Descriptors, dma-bufs and orphans hold the module, so none is left here. */
void pdn_regions_exit(void)
{
	destroy_workqueue(pdn_work);
	synchronize_srcu(&callbacks);
	/*
	 * A callback is still in this module between srcu_read_unlock() and its return, perhaps
	 * preempted. This returns once each task has slept or been in user space since, and a
	 * callback does neither there.
	 */
	synchronize_rcu_tasks();
	WARN_ON(!xa_empty(&tickets));
}
