/* SPDX-License-Identifier: MIT */
/*
 * How a room notifies a room above it, whose functions it does not know: by a pointer that is NULL
 * in the room below, and that a file above defines with its function. The linker takes that one. So
 * it is known before any constructor has run; constructors of other libraries run before ours, and
 * may fork. The pointer is not const, or compilers would take the NULL below for its value.
 */
#ifndef PDN_NOTIFY_H
#define PDN_NOTIFY_H

/* In a header of the room below: an event, and the arguments of its function. */
#define PDN_EVENT(event, arguments) \
	extern __attribute__((visibility("hidden"))) void(*pdn_on_##event) arguments

/* Once in a file of the room below. */
#define PDN_WEAK_EVENT(event, arguments) __attribute__((weak)) void(*pdn_on_##event) arguments = 0

#define PDN_NOTIFY(event, ...)                       \
	do {                                         \
		if (pdn_on_##event)                  \
			pdn_on_##event(__VA_ARGS__); \
	} while (0)

/* In one file of a room above: this function runs at that event. */
#define PDN_NOTIFIED(event, function) __typeof__(pdn_on_##event) pdn_on_##event = function

#endif
