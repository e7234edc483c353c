/* SPDX-License-Identifier: MIT */
/* The names of the events that a trace can have. */
#include "cache/base/environment/event.h"

const char pdn_event_names[][12] = {
	[PDN_EV_CALL] = "call",		[PDN_EV_PIN] = "pin",
	[PDN_EV_UNPIN] = "unpin",	[PDN_EV_HIT] = "hit",
	[PDN_EV_EVICT] = "evict",	[PDN_EV_INVALIDATE] = "invalidate",
	[PDN_EV_MAP] = "map",		[PDN_EV_ERROR] = "error",
	[PDN_EV_REGISTER] = "register", [PDN_EV_DEREGISTER] = "deregister",
	[PDN_EV_HELD] = "held",		[PDN_EV_EXPORT] = "export",
	[PDN_EV_OUTLIVED] = "outlived", [PDN_EV_HOLDER] = "holder",
	[PDN_EV_RETIRE] = "retire",	[PDN_EV_LOST] = "lost",
};
_Static_assert(sizeof(pdn_event_names) / sizeof(pdn_event_names[0]) == PDN_EVENTS, "one name each");
