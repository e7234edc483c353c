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
 * Nothing may be charged between the check of a limit and the charge. So requests that would all
 * fit together go to the driver side by side, as readers of `requests`. A request that would not
 * fit beside the others under way waits for them, and goes alone: then only what is charged counts,
 * and no request that the driver is about to refuse takes room from another one.
 *
 * Large requests are always served one at a time, since the driver allocates host memory for a
 * request before it checks it (size.c). Both locks are held around the driver's call, so the
 * callback must not take them. A limit that is set while requests are under way applies to later
 * requests. The page that pdn_probe() pins for a moment is not counted.
 *
 * The default limits follow the BARs of the machine's GPUs. A process may pin as much as they hold,
 * and all processes together twice as much: pins that overlap count each, also where they share
 * the BAR. So nobody can fill the host's memory with page tables by pinning the same memory again
 * and again.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "internal.h"

static long max_pinned_mb = -1;
module_param(max_pinned_mb, long, 0644);
MODULE_PARM_DESC(max_pinned_mb,
		 "MiB that all processes together may pin, 0: no limit, -1 (default): twice all "
		 "GPUs' BARs");

static long max_process_mb = -1;
module_param(max_process_mb, long, 0644);
MODULE_PARM_DESC(max_process_mb,
		 "MiB that one process may pin, 0: no limit, -1 (default): as much as all GPUs' "
		 "BARs");

static uint max_regions = PDN_MAX_REGION;
module_param(max_regions, uint, 0644);
MODULE_PARM_DESC(max_regions, "regions that one descriptor may have (default 1048575, the most)");

struct pdn_charge {
	struct kref ref; /* one for the region, and one for each hold that shares the charge */
	struct pdn_owner *owner;
	u64 length;
};

static DEFINE_MUTEX(one_at_a_time); /* large requests */
static DECLARE_RWSEM(requests);	    /* write: a request that goes alone */
static atomic64_t asked_bytes;	    /* of the requests of readers; per process: owner->asked */

/* ---- limits ---- */

/* In bytes, 0: none. */
static u64 limit_of(long mb, unsigned int times)
{
	if (mb < 0)
		return times * pdn_size_of_bars();
	return (u64)mb > U64_MAX >> 20 ? 0 : (u64)mb << 20;
}

static bool fits(u64 bytes, u64 more, u64 limit)
{
	return !limit || (more <= limit && bytes <= limit - more);
}

/* Does that much more fit? 0, EDQUOT or ENOSPC. */
static int look_at_limits(const struct pdn_owner *owner, u64 of_process, u64 of_all)
{
	u64 process_limit = limit_of(READ_ONCE(max_process_mb), 1);
	u64 limit = limit_of(READ_ONCE(max_pinned_mb), 2);

	if (!fits(atomic64_read(&owner->bytes), of_process, process_limit))
		return -EDQUOT;
	return fits(atomic64_read(&pdn_counters[PDN_CHARGED_BYTES]), of_all, limit) ? 0 : -ENOSPC;
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

static void limits_leave(struct pdn_budget_request *request)
{
	const struct pdn_charge *charge = request->charge;

	if (request->alone) {
		up_write(&requests);
		return;
	}
	/* A charge is counted before: limits_enter() of another finds it in one of the two sums. */
	smp_mb__before_atomic();
	atomic64_sub(charge->length, &charge->owner->asked);
	atomic64_sub(charge->length, &asked_bytes);
	up_read(&requests);
}

/* After 0 limits_leave() follows. */
static int limits_enter(struct pdn_budget_request *request)
{
	const struct pdn_charge *charge = request->charge;
	struct pdn_owner *owner = charge->owner;
	u64 length = charge->length;
	int ret;

	request->alone = false;
	if (down_read_killable(&requests))
		return -EINTR;
	/* Both are full barriers, before what is charged is read. */
	if (!look_at_limits(owner, atomic64_add_return(length, &owner->asked),
			    atomic64_add_return(length, &asked_bytes)))
		return 0;
	limits_leave(request);
	if (down_write_killable(&requests))
		return -EINTR;
	request->alone = true;
	ret = look_at_limits(owner, length, length);
	if (ret)
		limits_leave(request);
	return ret;
}

static void request_drop(struct pdn_budget_request *request)
{
	if (request->is_large)
		mutex_unlock(&one_at_a_time);
	/* A new charge was never counted. */
	if (request->is_new)
		charge_free(request->charge);
	else
		pdn_charge_put(request->charge);
}

int pdn_budget_ask(struct pdn_budget_request *request, struct pdn_owner *owner, u64 length,
		   struct pdn_charge *shared)
{
	int ret = 0;

	if (!pdn_size_is_possible(length))
		return -EFBIG;
	request->is_new = !shared;
	request->is_large = false;
	request->charge = shared ? pdn_charge_get(shared) : charge_new(owner, length);
	if (!request->charge)
		return -ENOMEM;
	if (!pdn_size_is_small(length)) {
		ret = mutex_lock_killable(&one_at_a_time);
		request->is_large = !ret;
	}
	if (!ret && request->is_new)
		ret = limits_enter(request);
	if (ret)
		request_drop(request);
	return ret;
}

struct pdn_charge *pdn_budget_take(struct pdn_budget_request *request)
{
	if (request->is_new) {
		count(request->charge, 1);
		limits_leave(request);
	}
	if (request->is_large)
		mutex_unlock(&one_at_a_time);
	return request->charge;
}

void pdn_budget_leave(struct pdn_budget_request *request)
{
	if (request->is_new)
		limits_leave(request);
	request_drop(request);
}
