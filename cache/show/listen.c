/* SPDX-License-Identifier: MIT */
/*
 * Waiting for `pindown quiesce`, which raises a number in the page and wakes whoever sleeps there.
 * The thread has everything ended that it can, and the page itself withdrawn. Then it ends, too:
 * the next page starts another one.
 */
#define _GNU_SOURCE
#include "cache/show/listen.h"

#include <linux/futex.h>
#include <stddef.h>

#include "cache/base/thread/helper.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"
#include "cache/show/page.h"

PDN_WEAK_EVENT(quiesce_wanted, (struct pdn_top_quiesce * answer));

/* Acquire pairs with the tool's system call, which writes it. */
static uint32_t wanted_in(const struct pdn_top_page *page)
{
	return __atomic_load_n(&page->quiesce.wanted, __ATOMIC_ACQUIRE);
}

/* By several processes, so not a private one. */
static void wait_for_a_wish(struct pdn_top_page *page, uint32_t answered)
{
	while (wanted_in(page) == answered)
		pdn_sys(SYS_futex, &page->quiesce.wanted, FUTEX_WAIT, answered, NULL);
}

static void *listen_at(void *arg)
{
	struct pdn_top_page *page = arg;
	bool goes_on = true;

	for (uint32_t wanted = 0; goes_on;) {
		struct pdn_top_quiesce answer = {0};

		wait_for_a_wish(page, wanted);
		wanted = wanted_in(page);
		PDN_NOTIFY(quiesce_wanted, &answer);
		answer.wanted = answer.answered = wanted;
		goes_on = !pdn_top_withdraw(&answer);
	}
	return NULL;
}

void pdn_top_listen(struct pdn_top_page *page)
{
	static bool said;

	__atomic_store_n(&page->quiesce.listens, 1, __ATOMIC_RELAXED);
	if (pdn_helper_start(listen_at, page))
		return;
	__atomic_store_n(&page->quiesce.listens, 0, __ATOMIC_RELAXED);
	pdn_log_once(&said, PDN_LOG_INFO,
		     "PINDOWN_QUIESCE: no thread can be started that answers pindown quiesce");
}
