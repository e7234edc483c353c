/* SPDX-License-Identifier: MIT */
/*
 * fork() and exit. A child inherits descriptors, and with them would keep the parent's GPU memory
 * alive; it can't use CUDA unless the parent never did. So it drops what it has inherited and
 * begins with an empty cache.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "asym.h"
#include "backend.h"
#include "cache.h"
#include "dmabuf.h"
#include "driver.h"
#include "events.h"
#include "exports.h"
#include "index.h"
#include "live.h"
#include "object.h"

void pd_fork_prepare(void)
{
	int saved = errno;

	pd_pin_hold_for_fork(); /* comes back with the lock taken */
	errno = saved;
}

void pd_fork_parent(void)
{
	pd_pin_after_fork();
}

static void abandon(struct pindown_region *region)
{
	const struct pd_backend *backend = pd_backend_for(pd_details_of(region)->pin.device);

	if (backend)
		backend->abandon(&pd_details_of(region)->pin);
	pd_brief_of(region)->state = PD_ABANDONED;
}

void pd_fork_child(void)
{
	int saved = errno;

	for (uint32_t n = 1; n <= pd_region_high_water(); n++)
		if (pd_briefs[n].state != PD_FREE)
			abandon(&pd_regions[n]);
	pd_backend_kmod_fork_child();
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
	pd_stats_fork_child();
	pd_thread_fork_child();
	pd_live_fork_child();
	pd_trace_fork_child();
	pd_lock_fork_child();
	pd_pin_fork_child();
	pd_asym_fork_child();
	errno = saved;
}

void pd_exiting(void)
{
	pd_driver_forget();
	pd_trace_close();
	pd_live_close();
}
