/* SPDX-License-Identifier: MIT */
/* Defines the verbs itself, each of which goes to those of a library that it opens. */
#define _GNU_SOURCE
#include <dlfcn.h>

static void *get(const char *name)
{
	static void *handle;

	if (!handle)
		handle = dlopen(SHIM_OPENS, RTLD_NOW | RTLD_LOCAL);
	return dlsym(handle, name);
}

#define SHIM(name)                                                                          \
	void *name(void *a, void *b, void *c, void *d);                                     \
	void *name(void *a, void *b, void *c, void *d)                                      \
	{                                                                                   \
		return ((void *(*)(void *, void *, void *, void *))get(#name))(a, b, c, d); \
	}
SHIM(ibv_get_device_list)
SHIM(ibv_open_device)
SHIM(ibv_close_device)
SHIM(ibv_alloc_pd)
SHIM(ibv_dealloc_pd)
SHIM(ibv_reg_mr)
SHIM(ibv_dereg_mr)
SHIM(recorder_open_mrs)
