/* SPDX-License-Identifier: MIT */
/* Graphics resources, for the calls that create them. All functions need the API lock. */
#ifndef SIM_GRAPHICS_H
#define SIM_GRAPHICS_H

#include "handles.h"
#include "memory.h"

/* Memory of another interface, which has an address while it is mapped. */
struct sim_resource {
	struct sim_extent *extent;
	uint64_t size;
	int device;
	struct sim_alloc *mapped;
	bool frame; /* a frame of EGL: mapped as long as it exists */
	struct sim_resource *next_plane;
};

#define SIM_GL_BUFFERS 1024u /* numbers that glGenBuffers() could have returned */

static inline uint64_t sim_gl_buffer_bytes(unsigned buffer)
{
	return (1ull << 20) + buffer * 65536ull;
}

/*
 * Creates a resource on the current context's device, with a handle of its own. NULL: out of
 * memory.
 */
struct sim_resource *sim_resource_new(uint64_t size);
void sim_resource_delete(struct sim_resource *resource);
CUresult sim_resource_map(struct sim_resource *resource);
void sim_resource_unmap(struct sim_resource *resource);

static inline struct sim_resource *sim_resource_of(CUgraphicsResource handle)
{
	return sim_handle(handle, SIM_GRAPHICS_RESOURCE);
}

#endif
