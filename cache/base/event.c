/* SPDX-License-Identifier: MIT */
/* The names of the events that a trace can have. */
#include "cache/base/event.h"

const char *const pd_event_names[] = {
	[PD_EV_CALL] = "call",	       [PD_EV_PIN] = "pin",
	[PD_EV_UNPIN] = "unpin",       [PD_EV_HIT] = "hit",
	[PD_EV_EVICT] = "evict",       [PD_EV_INVALIDATE] = "invalidate",
	[PD_EV_MAP] = "map",	       [PD_EV_ERROR] = "error",
	[PD_EV_REGISTER] = "register", [PD_EV_DEREGISTER] = "deregister",
	[PD_EV_HELD] = "held",	       [PD_EV_EXPORT] = "export",
	[PD_EV_OUTLIVED] = "outlived", [PD_EV_LOST] = "lost",
};
_Static_assert(sizeof(pd_event_names) / sizeof(pd_event_names[0]) == PD_EVENTS, "one name each");
