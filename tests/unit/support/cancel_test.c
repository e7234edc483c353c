/* SPDX-License-Identifier: MIT */
#include "tests/unit/support/cancel_test.h"

#include "cache/hook_events.h"

void (*act)(void);
pindown_region *region;
pindown_object *object;

void attach(void)
{
	pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object);
}

void invalidate(void)
{
	pindown_invalidate(AT(0), 0);
}

void flush(void)
{
	pindown_flush();
}

void end_owner(void)
{
	pindown_end_owner(consumer, 1);
}

void recheck(void)
{
	pdn_recheck(NULL);
}
