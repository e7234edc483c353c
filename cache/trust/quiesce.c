/* SPDX-License-Identifier: MIT */
/*
 * `pindown quiesce` before a checkpoint: ends what is idle, and closes descriptors. What is ended
 * is made again at its next use. It runs in a thread of pindown's own, while others go on.
 */
#include "cache/show/account.h"
#include "cache/backend/backend.h"
#include "cache/base/thread/lock.h"
#include "cache/end/work.h"
#include "cache/trust/past.h"
#include "cache/pindown.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "cache/show/format.h"
#include "cache/show/page.h"
#include "cache/trace/writer/file.h"

/* Regions that are pinned still are in use, but for those that another thread has just pinned. */
static int note_held(const struct pindown_region_info *info, void *arg)
{
	struct pdn_top_quiesce *answer = arg;

	if (answer->held < PDN_TOP_NAMED) {
		answer->named[answer->held].base = info->base;
		answer->named[answer->held].length = info->length;
	}
	answer->held++;
	answer->held_bytes += info->pin_length;
	return 0;
}

/*
 * Nobody uses the device of pindown.ko, and a pin that is about to needs this lock first
 * (announce() in pin.c).
 */
static void close_device(void)
{
	struct pdn_kmod_left left = {.fd = -1};

	pdn_lock();
	if (!pdn_pinned_regions() && !pdn_works_any())
		left = pdn_backend_kmod_leave();
	pdn_unlock();
	pdn_backend_kmod_close(&left);
}

static void quiesce(struct pdn_top_quiesce *answer)
{
	pdn_past_look();
	answer->ended = (uint64_t)pindown_flush();
	pdn_dmabuf_close_kept();
	close_device();
	pindown_each_region(note_held, answer);
	if (pdn_trace_file_name())
		answer->left |= PDN_LEFT_TRACE;
	if (pdn_backend_kmod_is_open())
		answer->left |= PDN_LEFT_DEVICE;
}

PDN_NOTIFIED(quiesce_wanted, quiesce);
