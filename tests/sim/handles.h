/* SPDX-License-Identifier: MIT */
/* The handles that the program may use: made-up pointers and ended handles are recognized. */
#ifndef SIM_HANDLES_H
#define SIM_HANDLES_H

#include <stdbool.h>

enum sim_type {
	SIM_CONTEXT = 1,
	SIM_STREAM,
	SIM_EVENT,
	SIM_POOL_HANDLE,
	SIM_GRAPH_HANDLE,
	SIM_GRAPH_EXEC,
	SIM_GRAPH_NODE,
	SIM_MODULE,
	SIM_LIBRARY,
	SIM_FUNCTION,
	SIM_ARRAY,
	SIM_MIPMAP,
	SIM_PHYSICAL,  /* cuMemCreate */
	SIM_MULTICAST, /* cuMulticastCreate */
	SIM_EXTERNAL_MEMORY,
	SIM_GRAPHICS_RESOURCE,
	SIM_EGL_CONNECTION,
	SIM_GREEN,
	SIM_RESOURCE_DESC,
};

/* A zeroed object of a type; NULL: no memory. All functions here need the API lock. */
void *sim_handle_new(enum sim_type type, unsigned long size);
/* Ends the handle and frees the object. */
void sim_handle_delete(void *handle);
/* Ends the handle; the object stays, for code that still uses it. */
void sim_handle_end(void *handle);
/* The object, or NULL if this is not a live handle of that type. */
void *sim_handle(const void *handle, enum sim_type type);
/* Iterates over all live objects of a type: the next one after *position, NULL at the end. */
void *sim_handle_next(enum sim_type type, unsigned long *position);

#endif
