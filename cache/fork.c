/* SPDX-License-Identifier: MIT */
/*
 * fork() and exit: a child drops everything that it inherits, and begins with an empty cache. It
 * would keep the parent's GPU memory alive by the descriptors that it inherits, and it can't use
 * CUDA unless the parent never did. When this happens, and which data is then whole:
 * base/process.h.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/account.h"
#include "cache/backend/backend.h"
#include "cache/base/barrier.h"
#include "cache/base/fork_gate.h"
#include "cache/base/lock.h"
#include "cache/base/notify.h"
#include "cache/base/process.h"
#include "cache/base/thread.h"
#include "cache/driver/driver.h"
#include "cache/evict.h"
#include "cache/foreign_dmabufs.h"
#include "cache/hook_events.h"
#include "cache/index.h"
#include "cache/invalidate.h"
#include "cache/objects/object.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/subscribe.h"
#include "cache/top/page.h"
#include "cache/trace/writer.h"
#include "cache/volatile.h"

/* ---- in a child ----------------------------------------------------------------------------- */

static void abandon(struct pd_pin *pin)
{
	const struct pd_backend *backend = pd_backend_chosen(pin->device);

	if (backend)
		backend->abandon(pin);
}

/*
 * A pin is in the list of flights until it is in a region's record, so that it is found in one of
 * the two wherever the threads of the parent were. A number that looks like a descriptor of ours is
 * not closed if its file is another.
 */
static void abandon_all(void)
{
	pd_fork_gate_forget();
	pd_flights_each_pin(abandon);
	pd_region_each_pin(abandon);
	pd_fork_gate_close_noted();
	pd_backend_kmod_fork_child();
}

static void begin_again(void)
{
	if (pd_hook_fork_child)
		pd_hook_fork_child();
	if (pd_region_limit)
		pd_index_reset();
	pd_region_fork_child();
	pd_objects_fork_child();
	pd_creations_fork_child();
	pd_exports_fork_child();
	pd_consumers_fork_child();
	pd_queues_fork_child();
	pd_occupied = 0;
	pd_end_fork_child();
	pd_flights_fork_child();
	pd_dmabuf_fork_child();
	pd_volatile_fork_child();
	pd_subscribe_fork_child();
	pd_accounts_fork_child();
	pd_thread_fork_child();
	pd_live_fork_child();
	pd_trace_fork_child();
	pd_lock_fork_child();
	pd_fork_gate_child();
	pd_asym_fork_child();
}

PD_NOTIFIED(child_abandons, abandon_all);
PD_NOTIFIED(child_begins, begin_again);

/* ---- what hook/ calls ------------------------------------------------------------------------ */

void pd_fork_prepare(void)
{
	pd_fork_gate_shut();
}

void pd_fork_parent(void)
{
	pd_fork_gate_open();
}

void pd_fork_child(void)
{
	pd_process_fork_child();
}

/* ---- exit ----------------------------------------------------------------------------------- */

void pd_exiting(void)
{
	pd_driver_forget();
	pd_trace_close();
	pd_live_close();
}
