/* SPDX-License-Identifier: MIT */
/*
 * pindown_dl.h - pindown for a library or a program that is not linked with it.
 *
 * It looks for the functions of pindown.h in the running process, where a preload has brought them
 * or not. So the same binary runs with pindown and without it:
 *
 *	static struct pindown_dl pindown;
 *
 *	if (pindown_dl_load(&pindown))
 *		result = pindown.get(addr, length, 0, &region);
 *	else
 *		without pindown
 *
 * The members are named as the functions, without "pindown_", and behave like them. All functions
 * of pindown.h are there, or none. For GNU C and C++, clang included; link with -ldl where dlsym()
 * is not in libc.
 */
#ifndef PINDOWN_DL_H
#define PINDOWN_DL_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <pindown.h>

#define PINDOWN_DL_FUNCTIONS(X) \
	X(attach)               \
	X(attach_region)        \
	X(consumer_add)         \
	X(consumer_remove)      \
	X(consumer_stats)       \
	X(detach)               \
	X(driver_error)         \
	X(each_object)          \
	X(each_region)          \
	X(end_owner)            \
	X(flush)                \
	X(get)                  \
	X(getv)                 \
	X(invalidate)           \
	X(invalidate_context)   \
	X(object_data)          \
	X(object_is_live)       \
	X(object_region)        \
	X(put)                  \
	X(putv)                 \
	X(region_base)          \
	X(region_buffer_id)     \
	X(region_close_dmabuf)  \
	X(region_context)       \
	X(region_device)        \
	X(region_dmabuf)        \
	X(region_is_live)       \
	X(region_is_volatile)   \
	X(region_length)        \
	X(region_pin_base)      \
	X(region_pin_length)    \
	X(stats)                \
	X(strerror)             \
	X(subscribe)            \
	X(unsubscribe)          \
	X(version)

#define PINDOWN_DL_MEMBER(name) __typeof__(pindown_##name) *name;
struct pindown_dl {
	PINDOWN_DL_FUNCTIONS(PINDOWN_DL_MEMBER)
};
#undef PINDOWN_DL_MEMBER

/* Is this the version of the header, or a later one that only adds to it? */
static inline int pindown_dl_suits(const char *version)
{
	char *rest;

	return strtoul(version, &rest, 10) == PINDOWN_VERSION_MAJOR && *rest == '.' &&
	       strtoul(rest + 1, NULL, 10) >= PINDOWN_VERSION_MINOR;
}

/*
 * Fill in *dl. 1: pindown is in this process, in a version that suits this header. 0: it is not,
 * and all members are NULL. The answer stays the same for a preload. Another library may still be
 * loaded with RTLD_GLOBAL later, so a library may ask again.
 */
static inline int pindown_dl_load(struct pindown_dl *dl)
{
	void *all = (void *)0; /* RTLD_DEFAULT, which needs _GNU_SOURCE */
	void *found;
	int missing = 0;

#define PINDOWN_DL_FIND(name)                     \
	found = dlsym(all, "pindown_" #name);     \
	memcpy(&dl->name, &found, sizeof(found)); \
	missing += !found;
	PINDOWN_DL_FUNCTIONS(PINDOWN_DL_FIND)
#undef PINDOWN_DL_FIND
	if (!missing && pindown_dl_suits(dl->version()))
		return 1;
	memset(dl, 0, sizeof(*dl));
	return 0;
}

#endif
