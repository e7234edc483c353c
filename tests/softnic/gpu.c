/* SPDX-License-Identifier: MIT */
/* GPU memory: the buffer ids that tell whether it is still the same, and copies of its bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "softnic.h"

/* What is used of the CUDA driver: its header need not be installed. */
enum {
	ATTRIBUTE_CONTEXT = 1,
	ATTRIBUTE_MEMORY_TYPE = 2,
	ATTRIBUTE_BUFFER_ID = 7,
	ATTRIBUTE_DEVICE_ORDINAL = 9
};
enum { MEMORY_TYPE_DEVICE = 2 };
enum { STREAM_NON_BLOCKING = 1 };
typedef unsigned long long device_ptr;

static struct {
	int (*get_attribute)(void *out, int attribute, device_ptr addr);
	int (*get_range)(device_ptr *base, size_t *size, device_ptr addr);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*retain_primary)(void **context, int device);
	int (*create_stream)(void **stream, unsigned flags);
	int (*synchronize)(void *stream);
	int (*to_host)(void *to, device_ptr from, size_t length, void *stream);
	int (*to_device)(device_ptr to, const void *from, size_t length, void *stream);
} cuda;

/* One stream for each context. Protected by streams_lock, which is a leaf except for the driver. */
struct context_stream {
	void *context, *stream;
	unsigned long long id;
	struct context_stream *next;
};
static struct context_stream *streams;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static int (*get_context_id)(void *context, unsigned long long *id);

/* ---- the driver ----------------------------------------------------------------------------- */

static bool find_functions(void *libcuda)
{
	const struct {
		const char *name;
		void *function;
	} wanted[] = {
		{"cuPointerGetAttribute", &cuda.get_attribute},
		{"cuMemGetAddressRange_v2", &cuda.get_range},
		{"cuCtxPushCurrent_v2", &cuda.push},
		{"cuCtxPopCurrent_v2", &cuda.pop},
		{"cuDevicePrimaryCtxRetain", &cuda.retain_primary},
		{"cuStreamCreate", &cuda.create_stream},
		{"cuStreamSynchronize", &cuda.synchronize},
		{"cuMemcpyDtoHAsync_v2", &cuda.to_host},
		{"cuMemcpyHtoDAsync_v2", &cuda.to_device},
	};
	bool all = true;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		void *found = dlsym(libcuda, wanted[i].name);

		*(void **)wanted[i].function = found;
		all = all && found;
	}
	*(void **)&get_context_id = dlsym(libcuda, "cuCtxGetId"); /* since CUDA 12 */
	return all;
}

/* A process that has not loaded the driver has no GPU memory; it may load it later. */
static bool has_driver(void)
{
	static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
	static enum { UNKNOWN, FOUND, UNUSABLE } state;
	void *libcuda;
	bool found;

	pthread_mutex_lock(&finding);
	if (state == UNKNOWN) {
		libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (libcuda)
			state = find_functions(libcuda) ? FOUND : UNUSABLE;
	}
	found = state == FOUND;
	pthread_mutex_unlock(&finding);
	return found;
}

bool gpu_is_device_memory(uint64_t addr)
{
	unsigned type = 0;

	return has_driver() && cuda.get_attribute(&type, ATTRIBUTE_MEMORY_TYPE, addr) == 0 &&
	       type == MEMORY_TYPE_DEVICE;
}

/* 0 is no buffer id: the memory was freed. */
static unsigned long long buffer_id(uint64_t addr)
{
	unsigned long long id = 0;

	return cuda.get_attribute(&id, ATTRIBUTE_BUFFER_ID, addr) == 0 ? id : 0;
}

/* ---- contexts and streams ------------------------------------------------------------------- */

/* Memory mapped by cuMemMap belongs to no context: the device's primary one reaches it. */
static void *context_of(uint64_t addr)
{
	void *context = NULL;
	int device = 0;

	if (cuda.get_attribute(&context, ATTRIBUTE_CONTEXT, addr) == 0 && context)
		return context;
	if (cuda.get_attribute(&device, ATTRIBUTE_DEVICE_ORDINAL, addr) != 0 ||
	    cuda.retain_primary(&context, device) != 0)
		return NULL;
	return context;
}

static void *new_stream(void *context)
{
	void *stream = NULL;

	if (cuda.push(context) != 0)
		return NULL;
	if (cuda.create_stream(&stream, STREAM_NON_BLOCKING) != 0)
		stream = NULL;
	cuda.pop(&context);
	return stream;
}

/* A context may end, and another one be created at its address: then the id differs. */
static void *stream_of(void *context)
{
	struct context_stream *known;
	unsigned long long id = 0;

	if (get_context_id)
		get_context_id(context, &id);
	pthread_mutex_lock(&streams_lock);
	for (known = streams; known; known = known->next)
		if (known->context == context && known->id == id)
			break;
	if (!known && (known = calloc(1, sizeof(*known)))) {
		*known = (struct context_stream){context, new_stream(context), id, streams};
		streams = known;
	}
	pthread_mutex_unlock(&streams_lock);
	return known ? known->stream : NULL;
}

/* ---- what was registered -------------------------------------------------------------------- */

static bool piece_at(uint64_t addr, struct gpu_piece *piece)
{
	device_ptr base = 0;
	size_t size = 0;

	*piece = (struct gpu_piece){0};
	if (!gpu_is_device_memory(addr) || cuda.get_range(&base, &size, addr) != 0 || !size)
		return false;
	*piece = (struct gpu_piece){base, base + size, buffer_id(addr)};
	return piece->buffer_id && base <= addr && addr < base + size;
}

#define STEP  512ull	   /* no allocation begins in between */
#define BLOCK (2ull << 20) /* allocations are in blocks of this size, or have their own */

/*
 * A dma-buf covers whole GPU pages: there may be free memory in it, before its first allocation,
 * too, but not a whole block of it.
 */
struct gpu_memory *gpu_describe(uint64_t addr, uint64_t length, bool with_free)
{
	struct gpu_memory *gpu = NULL, *larger;
	struct gpu_piece piece;
	unsigned count = 0;

	for (uint64_t at = addr; at < addr + length; at = piece.end) {
		if (!piece_at(at, &piece)) {
			piece.end = (at / STEP + 1) * STEP;
			if (with_free && (count || at - addr < BLOCK))
				continue;
			count = 0;
			break;
		}
		larger = realloc(gpu, sizeof(*gpu) + (count + 1) * sizeof(piece));
		if (!larger) {
			free(gpu);
			errno = ENOMEM;
			return NULL;
		}
		gpu = larger;
		gpu->pieces[count++] = piece;
	}
	if (!count) {
		free(gpu);
		errno = EFAULT;
		return NULL;
	}
	gpu->count = count;
	gpu->context = context_of(gpu->pieces[0].begin);
	gpu->stream = gpu->context ? stream_of(gpu->context) : NULL;
	if (!gpu->stream) {
		free(gpu);
		errno = EIO;
		return NULL;
	}
	return gpu;
}

/* ---- an access ------------------------------------------------------------------------------ */

bool gpu_is_unchanged(const struct gpu_memory *gpu, uint64_t addr, size_t length,
		      struct gpu_change *change)
{
	uint64_t end = addr + length;

	for (unsigned i = 0; i < gpu->count; i++) {
		const struct gpu_piece *piece = &gpu->pieces[i];
		uint64_t first = addr > piece->begin ? addr : piece->begin;
		uint64_t last = (end < piece->end ? end : piece->end) - 1;

		if (addr >= piece->end || end <= piece->begin)
			continue;
		/* A smaller allocation may have come to the begin or to the end only. */
		for (int side = 0; side < 2; side++) {
			*change = (struct gpu_change){side ? last : first, piece->buffer_id,
						      buffer_id(side ? last : first)};
			if (change->now != change->registered)
				return false;
		}
	}
	return true;
}

static int copied(int result, const struct gpu_memory *gpu)
{
	int finished = result ? result : cuda.synchronize(gpu->stream);
	void *context;

	cuda.pop(&context);
	return finished;
}

int gpu_read(const struct gpu_memory *gpu, void *to, uint64_t from, size_t length)
{
	int result = cuda.push(gpu->context);

	return result ? result : copied(cuda.to_host(to, from, length, gpu->stream), gpu);
}

int gpu_write(const struct gpu_memory *gpu, uint64_t to, const void *from, size_t length)
{
	int result = cuda.push(gpu->context);

	return result ? result : copied(cuda.to_device(to, from, length, gpu->stream), gpu);
}
