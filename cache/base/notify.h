/* SPDX-License-Identifier: MIT */
/*
 * How a room notifies the rooms above it, whose functions it does not know. A file above registers
 * a function for an event at link time: the linker collects the functions of one event in a section
 * of their own. So they are known before any constructor has run; constructors of other libraries
 * run before ours, and may fork. The functions of one event run in no particular order.
 */
#ifndef PD_NOTIFY_H
#define PD_NOTIFY_H

/*
 * The room below: declares an event, whose functions take these arguments; runs its functions, from
 * one file only (GNU ld would list the bounds of the section as dynamic symbols).
 */
#define PD_EVENT(event, arguments)                            \
	extern void(*const __start_pd_on_##event[]) arguments \
		__attribute__((weak, visibility("hidden")));  \
	extern void(*const __stop_pd_on_##event[]) arguments  \
		__attribute__((weak, visibility("hidden")))

#define PD_NOTIFY(event, ...)                                                        \
	do {                                                                         \
		__typeof__(&__start_pd_on_##event[0]) pd_fn = __start_pd_on_##event; \
		for (; pd_fn < __stop_pd_on_##event; pd_fn++)                        \
			(*pd_fn)(__VA_ARGS__);                                       \
	} while (0)

/* The room above: this function runs at that event. */
#define PD_NOTIFIED(event, function)                                    \
	static __typeof__(&(function)) const pd_on_##event##_##function \
		__attribute__((used, section("pd_on_" #event))) = function

#endif
