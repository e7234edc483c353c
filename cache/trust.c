/* SPDX-License-Identifier: MIT */
/*
 * Whether hits go by what the cache knows, or each is checked by buffer id: where frees are not
 * watched at all, where they can't all be seen (volatile.c), and everywhere once something has
 * shown that one may be missed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "cache.h"
#include "config.h"
#include "events.h"
#include "log.h"

enum trust {
	NOT_WATCHED, /* nobody has said that frees are watched */
	WATCHED,
	DISTRUSTED, /* for good */
};

/* Changed under the lock; pd_is_distrusted() reads it without. */
static uint32_t trust;

bool pd_is_distrusted(void)
{
	return __atomic_load_n(&trust, __ATOMIC_RELAXED) == DISTRUSTED;
}

bool pd_is_intercepting(void)
{
	return trust == WATCHED;
}

enum pd_state pd_state_for(bool is_volatile)
{
	switch (pd_config()->verify) {
	case PD_VERIFY_ALWAYS:
		return PD_CHECKED;
	case PD_VERIFY_NEVER:
		return PD_LIVE;
	case PD_VERIFY_AUTO:
		break;
	}
	return is_volatile || trust != WATCHED ? PD_CHECKED : PD_LIVE;
}

/*
 * Lock held, which pins and evictions hold too when they ask pd_state_for() and set a state. A hit
 * pairs with this in hold_if(): one that loads LIVE all the same began before this is over.
 */
static void check_what_is_live(void)
{
	for (uint32_t n = pd_queues_first(); n; n = pd_queues_next(n))
		if (pd_briefs[n].state == PD_LIVE)
			__atomic_store_n(&pd_briefs[n].state,
					 pd_state_for(pd_details[n].flags & PD_REGION_VOLATILE),
					 __ATOMIC_SEQ_CST);
}

/* False: it can't be changed any more. */
static bool change_trust(enum trust to)
{
	bool may_change;

	pd_lock();
	may_change = trust != DISTRUSTED;
	if (may_change) {
		__atomic_store_n(&trust, to, __ATOMIC_RELAXED);
		check_what_is_live();
		pd_account_trust();
	}
	pd_unlock();
	return may_change;
}

void pd_set_intercepting(bool yes)
{
	change_trust(yes ? WATCHED : NOT_WATCHED);
}

static const char *what_follows(void)
{
	return pd_config()->verify == PD_VERIFY_NEVER
		       ? "hits go unchecked all the same, as PINDOWN_VERIFY=never has it"
		       : "from now on every hit is checked by buffer id";
}

void pd_distrust(const char *format, ...)
{
	char why[512];
	va_list arguments;
	int saved = errno;

	if (pd_is_distrusted() || !pd_config()->enabled || !change_trust(DISTRUSTED))
		return;
	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	pd_log(PD_LOG_WARN, "%s; %s", why, what_follows());
	errno = saved;
}
