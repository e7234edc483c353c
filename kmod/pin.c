// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * pin.c - the beginning of a region: its number and its word, get_pages, its charge in the budget,
 * and what the driver's page table says.
 *
 * The callback may run as soon as get_pages has begun. The pin and the callback both check the
 * region's state under region->lock: if the callback was first, the pin leaves the page table
 * alone.
 */
#include <linux/overflow.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

/* Hands the charge to the region, unless the callback has ended the region already. */
static void region_set_charge(struct pdn_region *region, struct pdn_charge *charge)
{
	down_write(&region->lock);
	if (region->state == PDN_PINNING) {
		region->charge = charge;
		charge = NULL;
	}
	up_write(&region->lock);
	pdn_charge_put(charge);
}

static int pin_with_callback(struct pdn_region *region)
{
	struct pdn_owner *owner = region->owner;
	struct pdn_budget_request request;
	int ret;

	/* The callback may have used up the ticket already, in a try that failed. */
	if (pdn_region_is(region, PDN_REVOKED))
		return -ESTALE;
	ret = pdn_budget_ask(&request, owner, region->length, NULL);
	if (ret)
		return ret;
	down_read(&owner->puts);
	ret = pdn_get_pages(region);
	up_read(&owner->puts);
	if (ret)
		pdn_budget_leave(&request);
	else
		region_set_charge(region, pdn_budget_take(&request));
	return ret;
}

static int pin_persistently(struct pdn_region *region)
{
	struct pdn_hold *hold = pdn_hold_new(region->owner, region->address, region->length,
					     NULL);

	if (IS_ERR(hold))
		return PTR_ERR(hold);
	region->hold = hold;
	return 0;
}

/*
 * Does the memory belong to the process? The driver's ENOMEM does not say: it means that the BAR is
 * full, and then the address was checked; or that there was no host memory for the page table, or
 * that the process is being killed, and then it was not. For one GPU page there is always host
 * memory, so a pin of one page tells. If there is room for it, it also tells on which GPU the
 * memory is.
 */
static int check_memory_is_own(const struct pdn_region *region, struct pdn_wish *wish)
{
	int ret = pdn_probe(region->owner, region->address, wish->gpu_uuid);

	if (fatal_signal_pending(current))
		return -EINTR;
	return ret == -ENOMEM ? 0 : ret;
}

static int pin_once(struct pdn_region *region)
{
	return region->flags & PINDOWN_PIN_PERSISTENT ? pin_persistently(region)
						      : pin_with_callback(region);
}

/* Asks other processes for BAR space, and waits for some. 0: try again. */
static int wish_for_space(struct pdn_region *region, struct pdn_wish *wish)
{
	int ret;

	if (region->flags & PINDOWN_PIN_NO_RECLAIM || !pdn_provider_is_persistent())
		return -ENOSPC;
	ret = wish->serial ? 0 : check_memory_is_own(region, wish);
	if (ret)
		return ret;
	ret = pdn_wish_wait(wish);
	if (ret == -ENOSPC)
		pr_warn_ratelimited("no BAR space for %llu KiB of process %d\n",
				    region->length >> 10, task_tgid_nr(current));
	return ret;
}

/* Pins the region. If there is no BAR space, asks other processes for some and tries again. */
static int pin_or_reclaim(struct pdn_region *region)
{
	struct pdn_wish wish;
	int ret;

	pdn_wish_begin(&wish, region);
	/* ENOMEM means missing BAR space: at a limit the error is ENOSPC or EDQUOT. */
	while ((ret = pin_once(region)) == -ENOMEM) {
		ret = wish_for_space(region, &wish);
		if (ret)
			break;
	}
	pdn_wish_end(&wish);
	if (!ret && wish.serial)
		pdn_count(PDN_RECLAIM_SAVES);
	return ret;
}

/*
 * The memory is pinned. Reads the page table, which is not read later, and sets the region's word.
 * From here on the region ends like any other, also if the page table turns out to be invalid.
 */
static int region_mark_live(struct pdn_region *region)
{
	int ret = -ESTALE;

	down_write(&region->lock);
	if (region->state == PDN_PINNING) {
		region->state = PDN_LIVE;
		pdn_count(PDN_PINS);
		ret = pdn_table_read(region, region->hold ? region->hold->table : region->table);
		if (!ret)
			pdn_state_set(&region->file->state, region->number, region->state_value);
	}
	up_write(&region->lock);
	return ret;
}

static u32 next_state_value(struct pdn_file *file)
{
	u32 value;

	do {
		value = atomic_inc_return(&file->generation);
	} while (!value);
	return value;
}

static int region_begin(struct pdn_region *region)
{
	int ret;

	if (!(region->flags & PINDOWN_PIN_PERSISTENT)) {
		ret = pdn_ticket_issue(region);
		if (ret)
			return ret;
	}
	ret = pin_or_reclaim(region);
	if (ret) {
		pdn_ticket_void(region);
		return ret;
	}
	region->state_value = next_state_value(region->file);
	ret = region_mark_live(region);
	if (ret)
		pdn_region_end(region);
	return ret;
}

static int pin_is_valid(const struct pindown_pin *arg)
{
	u64 end;

	if (arg->flags & ~(PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_NO_RECLAIM) || arg->reserved)
		return -EINVAL;
	if (!arg->length || !IS_ALIGNED(arg->address | arg->length, PDN_GRANULARITY) ||
	    check_add_overflow(arg->address, arg->length, &end))
		return -EINVAL;
	if (arg->flags & PINDOWN_PIN_PERSISTENT && !pdn_provider_is_persistent())
		return -EOPNOTSUPP;
	return 0;
}

int pdn_region_pin(struct pdn_file *file, struct pindown_pin *arg, struct pdn_region **made)
{
	struct pdn_region *region;
	int ret;

	ret = pin_is_valid(arg);
	if (ret)
		return ret;
	region = pdn_region_new(file, arg);
	if (!region)
		return -ENOMEM;
	/* The number is reserved, and does not lead to the region yet. */
	ret = xa_alloc(&file->regions, &region->number, NULL, XA_LIMIT(1, pdn_budget_regions()),
		       GFP_KERNEL);
	if (ret) {
		ret = ret == -EBUSY ? -EMFILE : ret;
		goto err_region;
	}
	ret = pdn_state_add(&file->state, region->number);
	if (ret)
		goto err_number;
	ret = region_begin(region);
	if (ret)
		goto err_number;

	arg->region = region->number;
	arg->state_value = region->state_value;
	arg->state_offset = pdn_state_offset(region->number);
	arg->page_size = region->page_size;
	arg->page_count = region->page_count;
	arg->was_map_offset = 0;
	memcpy(arg->gpu_uuid, region->gpu_uuid, sizeof(arg->gpu_uuid));
	trace_pindown_pin(region, 0);
	*made = region;
	return 0;

err_number:
	pdn_region_free_number(file, region->number);
err_region:
	pdn_count(ret == -ESTALE ? PDN_LOST_RACES : PDN_PIN_FAILURES);
	trace_pindown_pin(region, ret);
	pdn_region_put(region);
	return ret;
}

void pdn_region_publish(struct pdn_file *file, struct pdn_region *region)
{
	/* The number is reserved, so this needs no allocation and can't fail. */
	xa_store(&file->regions, region->number, region, GFP_KERNEL);
}
