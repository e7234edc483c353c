// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * region.c - a region from its pin to its end.
 *
 * A region ends once, in one of three ways, and region->lock decides which:
 *
 *   unpin	LIVE -> ENDING. Whoever made that step calls put_pages, in the pinning process.
 *   revocation	LIVE -> REVOKED, in the callback, inside the driver's free. The page table is the
 *		driver's again when the callback returns, and nobody looks at it later.
 *   orphaning	LIVE -> ENDING, by a foreign process: the last reference to the descriptor was
 *		dropped by a child, or by whom it was sent to. put_pages would do nothing there and
 *		answer 0, with the callback still armed. So the region waits for its own process to
 *		come by (any call, or its death), or for the callback.
 *
 * The callback is given a ticket, a number that is never used twice, and looks it up. The ticket
 * holds the region, so that a callback that comes while the region is being unpinned, or while
 * get_pages has not even returned, finds it.
 *
 * Unpin against callback: put_pages may find that the free was faster. Then it does nothing, and
 * the callback has given the page table back. The driver compares its address, so the address must
 * not belong to a newer pin of this process by then: owner->puts keeps get_pages out while
 * put_pages is under way.
 */
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/srcu.h>

#include "internal.h"
#include "trace.h"

static DEFINE_XARRAY(tickets);
static atomic_long_t last_ticket;

/* Callbacks run inside the driver: unloading waits until they have left this module. */
DEFINE_STATIC_SRCU(callbacks);

struct workqueue_struct *pd_work;

/* ---- tickets ---- */

static int ticket_issue(struct pd_region *region)
{
	int ret;

	region->ticket = atomic_long_inc_return(&last_ticket);
	kref_get(&region->ref);
	ret = xa_insert(&tickets, region->ticket, region, GFP_KERNEL_ACCOUNT);
	if (ret)
		pd_region_put(region);
	return ret;
}

/* Returns the region with a reference, and with the ticket's own reference still in place. */
static struct pd_region *ticket_show(unsigned long ticket)
{
	struct pd_region *region;

	xa_lock(&tickets);
	region = xa_load(&tickets, ticket);
	if (region)
		kref_get(&region->ref);
	xa_unlock(&tickets);
	return region;
}

/* From now on no callback finds it. */
static void ticket_void(struct pd_region *region)
{
	if (xa_erase(&tickets, region->ticket))
		pd_region_put(region);
}

/* ---- life and death ---- */

static void orphan_done(struct work_struct *work);

static struct pd_region *region_new(struct pd_file *file, const struct pindown_pin *arg)
{
	struct pd_region *region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);

	if (!region)
		return NULL;
	kref_init(&region->ref);
	init_rwsem(&region->lock);
	mutex_init(&region->exports_lock);
	INIT_LIST_HEAD(&region->exports);
	INIT_LIST_HEAD(&region->orphan);
	INIT_WORK(&region->orphan_done, orphan_done);
	region->state = PD_PINNING;
	region->file = file;
	region->owner = file->owner;
	kref_get(&region->owner->ref);
	region->address = arg->address;
	region->length = arg->length;
	region->p2p_token = arg->p2p_token;
	region->va_space_token = arg->va_space_token;
	region->flags = arg->flags;
	return region;
}

static void region_release(struct kref *ref)
{
	struct pd_region *region = container_of(ref, struct pd_region, ref);

	pd_map_release(region);
	kvfree(region->runs);
	pd_owner_put(region->owner);
	kfree(region);
}

void pd_region_put(struct pd_region *region)
{
	kref_put(&region->ref, region_release);
}

struct pd_region *pd_region_get(struct pd_file *file, u32 number)
{
	struct pd_region *region;

	xa_lock(&file->regions);
	region = xa_load(&file->regions, number);
	if (region)
		kref_get(&region->ref);
	xa_unlock(&file->regions);
	return region;
}

/* One that is still being pinned has its number reserved, and is not found. */
struct pd_region *pd_region_take(struct pd_file *file, u32 number)
{
	struct pd_region *region;

	xa_lock(&file->regions);
	region = xa_load(&file->regions, number);
	/* Storing NULL leaves the place reserved. It exists: nothing is allocated or fails. */
	if (region)
		__xa_store(&file->regions, number, NULL, 0);
	xa_unlock(&file->regions);
	return region;
}

void pd_region_free_number(struct pd_file *file, u32 number)
{
	xa_erase(&file->regions, number);
}

bool pd_region_is_live(struct pd_region *region)
{
	bool live;

	down_read(&region->lock);
	live = region->state == PD_LIVE;
	up_read(&region->lock);
	return live;
}

/*
 * Nobody in user space reaches it any more. Needs region->lock for writing, with the state changed
 * already: a fault that comes now finds that, and one that was faster has its page zapped here.
 */
static void region_hide(struct pd_region *region)
{
	if (region->file)
		pd_state_set(&region->file->state, region->number, 0);
	pd_map_end(region);
}

/* ---- the end ---- */

/* In the pinning process. Fails when the driver can't even try: the callback is armed still. */
static int region_unpin(struct pd_region *region)
{
	struct pd_owner *owner = region->owner;
	struct nvidia_p2p_page_table *table;
	int ret = 0;

	down_write(&owner->puts);
	down_read(&region->lock);
	table = region->table;
	up_read(&region->lock);
	if (table)
		ret = pd_put_pages(region, table);
	up_write(&owner->puts);
	if (ret)
		return ret;

	/* Either put_pages found the pin, or the callback has run: none will come any more. */
	if (!pd_put_calls_back) {
		down_write(&region->lock);
		region->table = NULL;
		up_write(&region->lock);
		ticket_void(region);
	}
	pd_budget_uncharge(region);
	return 0;
}

/*
 * Leaves it to its process. In the list it has a reference, and the module has one too: the
 * callback may come long after the last descriptor is closed.
 */
static void region_orphan(struct pd_region *region)
{
	struct pd_owner *owner = region->owner;

	down_write(&region->lock);
	if (region->table) {
		kref_get(&region->ref);
		__module_get(THIS_MODULE);
		spin_lock(&owner->lock);
		list_add_tail(&region->orphan, &owner->orphans);
		spin_unlock(&owner->lock);
		pd_count(PD_ORPHANS);
	}
	up_write(&region->lock);
}

/* The reverse, in a callback. The reference and the module are let go behind its back. */
static bool region_is_adopted(struct pd_region *region)
{
	struct pd_owner *owner = region->owner;
	bool was_orphan;

	spin_lock(&owner->lock);
	was_orphan = !list_empty(&region->orphan);
	list_del_init(&region->orphan);
	spin_unlock(&owner->lock);
	return was_orphan;
}

static void orphan_done(struct work_struct *work)
{
	pd_region_put(container_of(work, struct pd_region, orphan_done));
	/* Unloading waits for the workqueue, and so for the end of this function. */
	module_put(THIS_MODULE);
}

void pd_orphans_reap(struct pd_owner *owner)
{
	struct pd_region *region;

	while (!list_empty(&owner->orphans)) {
		spin_lock(&owner->lock);
		region = list_first_entry_or_null(&owner->orphans, struct pd_region, orphan);
		if (region)
			list_del_init(&region->orphan);
		spin_unlock(&owner->lock);
		if (!region)
			return;
		if (region_unpin(region)) {
			region_orphan(region);
			pd_region_put(region);
			module_put(THIS_MODULE);
			return;
		}
		pd_region_put(region);
		/* Not the last one: the caller runs on behalf of an open descriptor. */
		module_put(THIS_MODULE);
	}
}

/* True for the one caller that has to give the pin back. */
static bool region_stops(struct pd_region *region)
{
	bool live;

	down_write(&region->lock);
	live = region->state == PD_LIVE;
	if (live) {
		region->state = PD_ENDING;
		region_hide(region);
	}
	region->file = NULL;
	up_write(&region->lock);
	return live;
}

void pd_region_end(struct pd_region *region)
{
	struct pd_hold *hold = region->hold;

	if (!region_stops(region))
		return;
	trace_pindown_unpin(region, 0);
	pd_exports_end(region, false);
	if (hold) {
		pd_hold_is_kept(hold);
		pd_hold_put(hold);
		pd_budget_uncharge(region);
	} else if (region->owner->tgid != task_tgid(current) || region_unpin(region)) {
		region_orphan(region);
	}
	pd_count(PD_UNPINS);
}

void pd_regions_end(struct pd_file *file)
{
	struct pd_region *region;
	unsigned long number;

	xa_for_each(&file->regions, number, region) {
		region = pd_region_take(file, number);
		if (!region)
			continue;
		pd_region_end(region);
		pd_region_free_number(file, number);
		pd_region_put(region);
		cond_resched();
	}
}

/*
 * The driver's callback: the memory is being freed. Runs in any process, with the driver's lock
 * held, perhaps before get_pages has returned. The page table is the driver's when it returns.
 */
void pd_region_callback(void *data)
{
	struct nvidia_p2p_page_table *table;
	struct pd_region *region;
	enum pd_region_state was;
	bool was_orphan;
	int srcu;

	srcu = srcu_read_lock(&callbacks);
	region = ticket_show((unsigned long)data);
	if (!region) {
		pd_count(PD_STRAY_CALLBACKS);
		pr_err_ratelimited("the driver revokes a region that it has unpinned\n");
		goto out;
	}

	down_write(&region->lock);
	was = region->state;
	if (was == PD_LIVE && region->file)
		pd_state_count_revocation(&region->file->state);
	region->state = PD_REVOKED;
	if (was == PD_LIVE)
		region_hide(region);
	table = region->table;
	region->table = NULL;
	was_orphan = region_is_adopted(region);
	up_write(&region->lock);

	if (was == PD_LIVE) {
		pd_exports_end(region, true);
		pd_count(PD_REVOCATIONS);
	}
	trace_pindown_revoke(region, was);
	if (table)
		pd_free_table(table);
	pd_budget_uncharge(region);
	ticket_void(region);
	if (was_orphan)
		queue_work(pd_work, &region->orphan_done);
	pd_region_put(region);
out:
	srcu_read_unlock(&callbacks, srcu);
}

int pd_regions_init(void)
{
	pd_work = alloc_workqueue("pindown", WQ_UNBOUND, 0);
	return pd_work ? 0 : -ENOMEM;
}

/* No descriptor, dma-buf or orphan is left: each of them holds the module. */
void pd_regions_exit(void)
{
	destroy_workqueue(pd_work);
	synchronize_srcu(&callbacks);
	WARN_ON(!xa_empty(&tickets));
}

/* ---- pinning ---- */

static int pin_once(struct pd_region *region)
{
	struct pd_owner *owner = region->owner;
	struct pd_hold *hold;
	int ret;

	if (region->flags & PINDOWN_PIN_PERSISTENT) {
		hold = pd_hold_new(owner, region->address, region->length, region->flags);
		if (IS_ERR(hold))
			return PTR_ERR(hold);
		region->hold = hold;
		return 0;
	}
	/* A try that failed may have been revoked already: its ticket is used up. */
	if (region->state == PD_REVOKED)
		return -ESTALE;
	down_read(&owner->puts);
	ret = pd_get_pages(region);
	up_read(&owner->puts);
	return ret;
}

static bool is_want_of_space(int error)
{
	return error == -ENOMEM || error == -ENOSPC;
}

/* Charges the budget and pins; asks others for space where there is none. */
static int pin_with_wishes(struct pd_region *region)
{
	struct pd_wish wish;
	int ret, wait;

	pd_wish_begin(&wish);
	for (;;) {
		ret = pd_budget_charge(region);
		if (!ret) {
			ret = pin_once(region);
			if (!ret)
				break;
			pd_budget_cancel(region);
		}
		if (!is_want_of_space(ret))
			return ret;
		if (region->flags & PINDOWN_PIN_NO_RECLAIM)
			return -ENOSPC;
		wait = pd_wish_wait(&wish, region);
		if (wait == -ENOSPC)
			pr_warn_ratelimited("no BAR space for %llu KiB of process %d (error %d)\n",
					    region->length >> 10, task_tgid_nr(current), ret);
		if (wait)
			return wait;
	}
	if (wish.serial)
		pd_count(PD_RECLAIM_SAVES);
	return 0;
}

/* The page table, while the driver has not taken it back. Needs region->lock. */
static const struct nvidia_p2p_page_table *table_of(const struct pd_region *region)
{
	if (region->state == PD_REVOKED)
		return NULL;
	return region->hold ? region->hold->table : region->table;
}

/*
 * It is pinned: from here on it is ended like any other, also when what the driver handed out makes
 * no sense.
 */
static int region_goes_live(struct pd_region *region, struct pd_layout *layout)
{
	int ret = -ESTALE;

	down_write(&region->lock);
	if (region->state == PD_PINNING) {
		region->state = PD_LIVE;
		pd_count(PD_PINS);
		ret = pd_layout_measure(layout, table_of(region), region->length);
	}
	up_write(&region->lock);
	return ret;
}

/* Takes over what the page table says: nobody looks at it later. */
static int region_takes_layout(struct pd_region *region, const struct pd_layout *layout)
{
	int ret = -ESTALE;

	down_write(&region->lock);
	if (region->state == PD_LIVE) {
		pd_layout_read(layout, table_of(region));
		region->runs = layout->runs;
		region->run_count = layout->run_count;
		region->page_size = layout->page_size;
		region->page_count = layout->page_count;
		memcpy(region->gpu_uuid, layout->gpu_uuid, sizeof(region->gpu_uuid));
		pd_state_set(&region->file->state, region->number, region->state_value);
		ret = 0;
	}
	up_write(&region->lock);
	return ret;
}

/* The layout is as long as the driver's table is: it is made room for when that is known. */
static int region_reads_table(struct pd_region *region)
{
	struct pd_layout layout = {};
	int ret;

	ret = region_goes_live(region, &layout);
	if (ret)
		return ret;
	layout.runs = kvmalloc_array(layout.run_count, sizeof(*layout.runs), GFP_KERNEL_ACCOUNT);
	if (!layout.runs)
		return -ENOMEM;
	ret = region_takes_layout(region, &layout);
	if (ret)
		kvfree(layout.runs);
	return ret;
}

static u32 next_state_value(struct pd_file *file)
{
	u32 value;

	do {
		value = atomic_inc_return(&file->generation);
	} while (!value);
	return value;
}

static int region_make(struct pd_region *region)
{
	int ret;

	if (!(region->flags & PINDOWN_PIN_PERSISTENT)) {
		ret = ticket_issue(region);
		if (ret)
			return ret;
	}
	ret = pin_with_wishes(region);
	if (ret) {
		ticket_void(region);
		return ret;
	}
	region->state_value = next_state_value(region->file);
	ret = region_reads_table(region);
	if (!ret)
		ret = pd_budget_charge_gpu(region);
	if (ret)
		pd_region_end(region);
	return ret;
}

static int pin_is_valid(const struct pindown_pin *arg)
{
	u64 end;

	if (arg->flags & ~(PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_FORCE_BAR1 |
			   PINDOWN_PIN_NO_RECLAIM))
		return -EINVAL;
	if (arg->reserved || arg->reserved2)
		return -EINVAL;
	if (!arg->length || arg->length > PD_MAX_LENGTH ||
	    !IS_ALIGNED(arg->address | arg->length, pd_granularity) ||
	    check_add_overflow(arg->address, arg->length, &end))
		return -EINVAL;
	if (!(arg->flags & PINDOWN_PIN_PERSISTENT))
		return arg->flags & PINDOWN_PIN_FORCE_BAR1 ? -EINVAL : 0;
	if (arg->p2p_token || arg->va_space_token)
		return -EINVAL;
	return pd_provider_is_persistent() ? 0 : -EOPNOTSUPP;
}

int pd_region_pin(struct pd_file *file, struct pindown_pin *arg, struct pd_region **made)
{
	struct pd_region *region;
	int ret;

	ret = pin_is_valid(arg);
	if (ret)
		return ret;
	region = region_new(file, arg);
	if (!region)
		return -ENOMEM;
	/* Reserved, not yet found by anybody. */
	ret = xa_alloc(&file->regions, &region->number, NULL, XA_LIMIT(1, pd_budget_regions()),
		       GFP_KERNEL_ACCOUNT);
	if (ret) {
		ret = ret == -EBUSY ? -EMFILE : ret;
		goto err_region;
	}
	ret = pd_state_add(&file->state, region->number);
	if (ret)
		goto err_number;
	ret = region_make(region);
	if (ret)
		goto err_number;

	arg->region = region->number;
	arg->state_value = region->state_value;
	arg->state_offset = pd_state_offset(region->number);
	arg->page_size = region->page_size;
	arg->page_count = region->page_count;
	arg->map_offset = pd_map_offset(region->number);
	memcpy(arg->gpu_uuid, region->gpu_uuid, sizeof(arg->gpu_uuid));
	trace_pindown_pin(region, 0);
	*made = region;
	return 0;

err_number:
	pd_region_free_number(file, region->number);
err_region:
	pd_count(ret == -ESTALE ? PD_LOST_RACES : PD_PIN_FAILURES);
	trace_pindown_pin(region, ret);
	pd_region_put(region);
	return ret;
}

void pd_region_publish(struct pd_file *file, struct pd_region *region)
{
	/* The reserved place takes it without an allocation. */
	xa_store(&file->regions, region->number, region, GFP_KERNEL);
}
