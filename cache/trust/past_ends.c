/* SPDX-License-Identifier: MIT */
/* Ending what is of the past, in a thread of the program. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/end/invalidate.h"
#include "cache/trust/past.h"
#include "cache/pindown.h"
#include "cache/end/work.h"

/* Lock held. Another thread may have ended more meanwhile. */
static void note_ended(uint32_t count)
{
	if ((int32_t)(count - pdn_past_ended) > 0)
		__atomic_store_n(&pdn_past_ended, count, __ATOMIC_SEQ_CST);
}

/*
 * All that was pinned up to `count` ends here; pins that are under way lose. What has been pinned
 * since then may end with it, and is pinned again.
 */
static void end_past(void)
{
	PDN_UNCANCELLED;
	const struct pdn_scope all = {.kind = PDN_GUARD_ALL};
	uint32_t count = __atomic_load_n(&pdn_past_count, __ATOMIC_SEQ_CST);
	int saved = errno, ended;

	pdn_exports_end(&all, PINDOWN_REASON_CONTEXT);
	ended = pdn_end_scope(&all, PINDOWN_REASON_CONTEXT);
	pdn_lock();
	note_ended(count);
	pdn_unlock();
	if (ended)
		pdn_log(PDN_LOG_INFO,
			"another process has made a checkpoint of this one: %d regions of before "
			"have ended, and are pinned again at their next use",
			ended);
	errno = saved;
}

PDN_NOTIFIED(past_ends, end_past);
