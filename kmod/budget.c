// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * budget.c - how much may be pinned, and how much each process pins.
 *
 * The unit of the budget is a *charge*: the bytes of one pin of the driver, charged to the process
 * that asked for it, and checked against the limits of the process and the machine.
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
 * are under way applies to later requests. The page that pdn_probe() pins for a moment is not
 * counted.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "internal.h"

static ulong max_pinned_mb;
module_param(max_pinned_mb, ulong, 0644);
MODULE_PARM_DESC(max_pinned_mb, "MiB that all processes together may pin, 0: no limit (default)");

static ulong max_process_mb;
module_param(max_process_mb, ulong, 0644);
MODULE_PARM_DESC(max_process_mb, "MiB that one process may pin, 0: no limit (default)");

static uint max_regions = PDN_MAX_REGION;
module_param(max_regions, uint, 0644);
MODULE_PARM_DESC(max_regions, "regions that one descriptor may have (default 1048575, the most)");

struct pdn_charge {
	struct kref ref; /* one for the region, and one for each hold that shares the charge */
	struct pdn_owner *owner;
	u64 length;
};

static DEFINE_MUTEX(one_at_a_time);

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

static int look_at_limits(const struct pdn_owner *owner, u64 length)
{
	if (!fits(&owner->bytes, length, limit_of(&max_process_mb)))
		return -EDQUOT;
	return fits(&pdn_counters[PDN_CHARGED_BYTES], length, limit_of(&max_pinned_mb)) ? 0 : -ENOSPC;
}

u32 pdn_budget_regions(void)
{
	return clamp_t(u32, READ_ONCE(max_regions), 1, PDN_MAX_REGION);
}

/* ---- charges ---- */

static void count(struct pdn_charge *charge, int sign)
{
	s64 bytes = sign * (s64)charge->length;

	atomic64_add(bytes, &charge->owner->bytes);
	atomic64_add(bytes, &pdn_counters[PDN_CHARGED_BYTES]);
	atomic64_add(sign, &pdn_counters[PDN_CHARGES]);
}

static struct pdn_charge *charge_new(struct pdn_owner *owner, u64 length)
{
	struct pdn_charge *charge = kzalloc(sizeof(*charge), GFP_KERNEL_ACCOUNT);

	if (!charge)
		return NULL;
	kref_init(&charge->ref);
	kref_get(&owner->ref);
	charge->owner = owner;
	charge->length = length;
	return charge;
}

static void charge_free(struct pdn_charge *charge)
{
	pdn_owner_put(charge->owner);
	kfree(charge);
}

struct pdn_charge *pdn_charge_get(struct pdn_charge *charge)
{
	kref_get(&charge->ref);
	return charge;
}

static void charge_release(struct kref *ref)
{
	struct pdn_charge *charge = container_of(ref, struct pdn_charge, ref);

	count(charge, -1);
	charge_free(charge);
	pdn_wishes_given();
}

void pdn_charge_put(struct pdn_charge *charge)
{
	if (charge)
		kref_put(&charge->ref, charge_release);
}

/* ---- asking the driver ---- */

int pdn_budget_ask(struct pdn_budget_request *request, struct pdn_owner *owner, u64 length,
		   struct pdn_charge *shared)
{
	int ret = 0;

	if (!pdn_size_is_possible(length))
		return -EFBIG;
	request->is_new = !shared;
	request->charge = shared ? pdn_charge_get(shared) : charge_new(owner, length);
	if (!request->charge)
		return -ENOMEM;
	request->alone = !pdn_size_is_small(length) || (request->is_new && is_limited());
	if (request->alone)
		ret = mutex_lock_killable(&one_at_a_time);
	if (ret) {
		request->alone = false;
	} else if (request->is_new) {
		ret = look_at_limits(owner, length);
	}
	if (ret)
		pdn_budget_leave(request);
	return ret;
}

struct pdn_charge *pdn_budget_take(struct pdn_budget_request *request)
{
	if (request->is_new)
		count(request->charge, 1);
	if (request->alone)
		mutex_unlock(&one_at_a_time);
	return request->charge;
}

void pdn_budget_leave(struct pdn_budget_request *request)
{
	if (request->alone)
		mutex_unlock(&one_at_a_time);
	/* A new charge was never counted. */
	if (request->is_new)
		charge_free(request->charge);
	else
		pdn_charge_put(request->charge);
}
