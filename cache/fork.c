/* SPDX-License-Identifier: MIT */
/*
 * fork() and exit: a child drops everything that it inherits. It would keep the parent's GPU memory
 * alive by the descriptors. CUDA does not work in the child of a process that has registered GPU
 * memory, and pindown is off there. All other children begin as a process does. When this happens,
 * and which data is then whole: base/process/process.h.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/backend/backend.h"
#include "cache/base/thread/barrier.h"
#include "cache/base/process/fork_gate.h"
#include "cache/base/memory/hashed.h"
#include "cache/base/notify.h"
#include "cache/base/process/process.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/driver/driver.h"
#include "cache/hook_events.h"
#include "cache/hit/index.h"
#include "cache/objects/object.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"
#include "cache/show/page.h"
#include "cache/trace/writer/writer.h"

/* ---- in a child ----------------------------------------------------------------------------- */

static void abandon(struct pdn_pin *pin)
{
	const struct pdn_backend *backend = pdn_backend_chosen(pin->device);

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
	bool is_shared = pdn_fork_gate_is_shared();

	pdn_fork_gate_forget();
	if (!is_shared) {
		pdn_flights_each_pin(abandon);
		pdn_region_each_pin(abandon);
		pdn_fork_gate_close_noted();
	}
	pdn_backend_kmod_fork_child(is_shared);
}

static void begin_again(void)
{
	if (pdn_region_limit)
		pdn_index_reset();
	pdn_hashed_clear_all();
	pdn_regions_forget();
	pdn_objects_forget();
	pdn_clients_fork_child();
	pdn_thread_fork_child();
	pdn_top_fork_child();
	pdn_trace_fork_child();
	pdn_fork_gate_child();
	pdn_barrier_fork_child();
}

PDN_NOTIFIED(child_abandons, abandon_all);
PDN_NOTIFIED(child_begins, begin_again);

/* ---- what hook/ calls ------------------------------------------------------------------------ */

void pdn_fork_prepare(void)
{
	pdn_fork_gate_shut();
}

void pdn_fork_parent(void)
{
	pdn_fork_gate_open();
}

void pdn_fork_child(void)
{
	pdn_process_fork_child();
}

/* ---- exit ----------------------------------------------------------------------------------- */

PDN_STARTS void pdn_exiting(void)
{
	pdn_driver_forget();
	pdn_trace_close();
	pdn_top_close();
}
