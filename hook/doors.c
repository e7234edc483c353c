/* SPDX-License-Identifier: MIT */
/*
 * Registration caches of other libraries that can be told from outside that memory ends. UCX's can:
 * by ucm_vm_munmap() of its public header ucm/api/ucm.h, whether its own CUDA hooks are on or not.
 * That function unmaps nothing. UCX remembers the range, and its next look-up drops the
 * registrations there.
 *
 * UCX's own hooks do the same at the same moment, before the driver's free, so they take the same
 * locks: the one of UCX's list of handlers, for reading, and one that is held for a few
 * instructions, during which UCX calls nobody. The lock of the table is only tried.
 *
 * A subscriber tells UCX. So a free of memory that nobody has registered costs nothing more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include "cache/base/environment/config.h"
#include "cache/base/environment/log.h"
#include "cache/pindown.h"
#include "hook/hook.h"
#include "hook/loader/loaded/loaded.h"
#include "hook/loader/loaded/scope.h"

/* Also when nobody holds the region: UCX may have a registration that pindown has not made. */
static void tell(const struct pindown_invalidation *what, void *door)
{
	void (*ucm_vm_munmap)(void *address, size_t length) = door;

	if (what->reason != PINDOWN_REASON_EVICTED && what->reason != PINDOWN_REASON_FLUSHED)
		ucm_vm_munmap((void *)(uintptr_t)what->base, what->length);
}

void pdn_door_find(const void *caller)
{
	static void *latest;
	struct pdn_asker asker;
	int error = errno;
	void *door;

	if (!pdn_config()->enabled)
		return;
	pdn_asker_find(&asker, caller);
	door = asker.readable ? pdn_elf_find(&asker.elf, "ucm_vm_munmap") : NULL;
	/*
	 * A process may have several copies of UCX; each makes this call once. A build of UCX as
	 * one library makes it for its modules, too. The library must stay loaded, even if the call
	 * that it makes for this fails. Relaxed: `latest` is only compared.
	 */
	if (door && __atomic_exchange_n(&latest, door, __ATOMIC_RELAXED) != door &&
	    pdn_open_loaded(asker.map->l_name) && pindown_subscribe(tell, door) > 0)
		pdn_log(PDN_LOG_DEBUG, "%s is told when memory ends", asker.map->l_name);
	errno = error;
}
