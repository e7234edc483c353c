/* SPDX-License-Identifier: MIT */
/* The scripted driver's functions, under the names that the cache looks up. */
#define _GNU_SOURCE
#include "tests/unit/support/fake_state.h"

#include <string.h>

static int fake_cuMemGetHandleForAddressRange(void *handle, uint64_t base, size_t size, int type,
					      unsigned long long flags)
{
	struct fake_question question;
	int result = fake_asks(FAKE_EXPORT, &question, base, size);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&fake_lock);
		result = !fake_current_context ? FAKE_INVALID_CONTEXT
			 : type != 1	       ? FAKE_INVALID_VALUE
			 : flags	       ? FAKE_NOT_SUPPORTED
					       : fake_make_export(handle, base, size);
		pthread_mutex_unlock(&fake_lock);
	}
	return fake_answers(FAKE_EXPORT, &question, result);
}

/* ---- queries ---- */

enum {
	ATTR_CONTEXT = 1,
	ATTR_MEMORY_TYPE = 2,
	ATTR_DEVICE_POINTER = 3,
	ATTR_HOST_POINTER = 4,
	ATTR_SYNC_MEMOPS = 6,
	ATTR_BUFFER_ID = 7,
	ATTR_IS_MANAGED = 8,
	ATTR_DEVICE_ORDINAL = 9,
	ATTR_RANGE_START_ADDR = 11,
	ATTR_RANGE_SIZE = 12,
	ATTR_MAPPED = 13,
	ATTR_RDMA_CAPABLE = 15,
	ATTR_MEMPOOL_HANDLE = 17,
	ATTR_MAPPING_BASE_ADDR = 19,
};

/* The range of mapped memory is its reservation. */
static uint64_t range_of(const struct memory *m, uint64_t *size)
{
	bool reserved = m->kind == FAKE_VMM && m->base - fake_reserved < fake_reserved_size;

	*size = reserved ? fake_reserved_size : m->size;
	return reserved ? fake_reserved : m->base;
}

/* With m NULL: the value for an address that the driver does not know. */
static int attribute(const struct memory *m, int attr, void *data)
{
	uint64_t ignored;

	switch (attr) {
	case ATTR_CONTEXT:
		*(void **)data = m ? m->context : NULL;
		return FAKE_SUCCESS;
	case ATTR_MEMORY_TYPE:
		*(unsigned *)data = !m ? 0 : m->kind == FAKE_HOST ? 1 : 2;
		return FAKE_SUCCESS;
	case ATTR_DEVICE_POINTER:
	case ATTR_HOST_POINTER:
		*(uint64_t *)data = m ? m->base : 0;
		return FAKE_SUCCESS;
	case ATTR_MAPPING_BASE_ADDR:
		*(uint64_t *)data = m && !fake_hides_pieces ? m->base : 0;
		return FAKE_SUCCESS;
	case ATTR_RANGE_START_ADDR:
		*(uint64_t *)data = m ? range_of(m, &ignored) : 0;
		return FAKE_SUCCESS;
	case ATTR_SYNC_MEMOPS:
	case ATTR_RDMA_CAPABLE:
		*(unsigned *)data = m ? 1 : 0;
		return FAKE_SUCCESS;
	case ATTR_BUFFER_ID:
		*(uint64_t *)data = m ? m->id : 0;
		return FAKE_SUCCESS;
	case ATTR_IS_MANAGED:
		*(unsigned *)data = m && m->kind == FAKE_MANAGED;
		return FAKE_SUCCESS;
	case ATTR_DEVICE_ORDINAL:
		*(int *)data = m ? m->device : -2;
		return FAKE_SUCCESS;
	case ATTR_RANGE_SIZE:
		*(size_t *)data = 0;
		if (m)
			range_of(m, data);
		return FAKE_SUCCESS;
	case ATTR_MAPPED:
		*(unsigned *)data = m ? 1 : 0;
		return FAKE_SUCCESS;
	case ATTR_MEMPOOL_HANDLE:
		*(void **)data = m ? m->pool : NULL;
		return FAKE_SUCCESS;
	}
	return FAKE_INVALID_VALUE;
}

static struct {
	uint64_t begin, end;
	unsigned count;
} watched;

void fake_watch_questions(uint64_t begin, uint64_t end)
{
	pthread_mutex_lock(&fake_lock);
	watched.begin = begin;
	watched.end = end;
	watched.count = 0;
	pthread_mutex_unlock(&fake_lock);
}

unsigned fake_watched_questions(void)
{
	unsigned count;

	pthread_mutex_lock(&fake_lock);
	count = watched.count;
	pthread_mutex_unlock(&fake_lock);
	return count;
}

/* fake_lock held. */
static struct memory *known(uint64_t addr)
{
	struct memory *m = fake_find(addr);

	watched.count += addr >= watched.begin && addr < watched.end;

	fake_asked_last = addr;
	return m && m->kind != FAKE_GRAPH ? m : NULL;
}

static int fake_cuPointerGetAttribute(void *data, int attr, uint64_t addr)
{
	struct fake_question question;
	int result = fake_asks(FAKE_QUERY, &question, addr, 1);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&fake_lock);
		struct memory *m = known(addr);
		result = m ? attribute(m, attr, data) : FAKE_INVALID_VALUE;
		pthread_mutex_unlock(&fake_lock);
	}
	return fake_answers(FAKE_QUERY, &question, result);
}

/*
 * For an address that the driver doesn't know this call succeeds, unlike the one for a single
 * attribute, and answers zeros.
 */
static int fake_cuPointerGetAttributes(unsigned n, int *attrs, void **data, uint64_t addr)
{
	struct fake_question question;
	int result = fake_asks(FAKE_QUERY, &question, addr, 1);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&fake_lock);
		struct memory *m = known(addr);
		for (unsigned i = 0; i < n && result == FAKE_SUCCESS; i++)
			result = attribute(m, attrs[i], data[i]);
		pthread_mutex_unlock(&fake_lock);
	}
	return fake_answers(FAKE_QUERY, &question, result);
}

static int fake_cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t addr)
{
	struct fake_question question;
	int result = fake_asks(FAKE_QUERY, &question, addr, 1);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&fake_lock);
		struct memory *m = known(addr);
		if (m && base)
			*base = m->base;
		if (m && size)
			*size = m->size;
		result = !fake_current_context ? FAKE_INVALID_CONTEXT
			 : m		       ? FAKE_SUCCESS
					       : FAKE_NOT_FOUND;
		pthread_mutex_unlock(&fake_lock);
	}
	return fake_answers(FAKE_QUERY, &question, result);
}

static int fake_cuPointerSetAttribute(const void *value, int attr, uint64_t addr)
{
	struct fake_question question;
	int result = fake_asks(FAKE_SYNC, &question, addr, 1);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&fake_lock);
		struct memory *m = known(addr);
		result = !m || attr != ATTR_SYNC_MEMOPS || *(const unsigned *)value != 1
				 ? FAKE_INVALID_VALUE
			 : m->kind == FAKE_VMM ? FAKE_NOT_SUPPORTED
					       : FAKE_SUCCESS;
		pthread_mutex_unlock(&fake_lock);
	}
	return fake_answers(FAKE_SYNC, &question, result);
}

/* ---- the rest ---- */

static int fake_cuInit(unsigned flags)
{
	(void)flags;
	return fake_leaving(FAKE_OTHER, fake_entered(FAKE_OTHER));
}

static int fake_cuDriverGetVersion(int *version)
{
	int result = fake_entered(FAKE_OTHER);

	*version = 13000;
	return fake_leaving(FAKE_OTHER, result);
}

static int fake_cuCtxGetCurrent(void **context)
{
	int result = fake_entered(FAKE_OTHER);

	*context = fake_current_context;
	return fake_leaving(FAKE_OTHER, result);
}

static int fake_cuCtxSetCurrent(void *context)
{
	int result = fake_entered(FAKE_OTHER);

	fake_current_context = context;
	return fake_leaving(FAKE_OTHER, result);
}

bool fake_is_mapped(uint64_t base, uint64_t id)
{
	pthread_mutex_lock(&fake_lock);
	struct memory *m = fake_find(base);
	bool is = m && m->kind == FAKE_VMM && m->base == base && m->id == id;
	pthread_mutex_unlock(&fake_lock);
	return is;
}

static int fake_cuCtxPushCurrent_v2(void *context)
{
	int result = fake_entered(FAKE_OTHER);

	if (result == FAKE_SUCCESS) {
		fake_current_context = context;
		__atomic_fetch_add(&fake_pushes, 1, __ATOMIC_RELAXED);
	}
	return fake_leaving(FAKE_OTHER, result);
}

static int fake_cuCtxPopCurrent_v2(void **context)
{
	int result = fake_entered(FAKE_OTHER);

	*context = fake_current_context;
	fake_current_context = NULL;
	return fake_leaving(FAKE_OTHER, result);
}

static int fake_cuCtxGetDevice(int *device)
{
	int result = fake_entered(FAKE_OTHER);

	*device = 0;
	return fake_leaving(FAKE_OTHER, result);
}

static int fake_cuDeviceGet(int *device, int ordinal)
{
	int result = fake_entered(FAKE_OTHER);

	*device = ordinal;
	return fake_leaving(FAKE_OTHER, result);
}

static int fake_cuDeviceGetCount(int *count)
{
	int result = fake_entered(FAKE_OTHER);

	*count = 2;
	return fake_leaving(FAKE_OTHER, result);
}

/* The device has all that the cache may ask for (116: GPU_DIRECT_RDMA, 124: DMA_BUF). */
static int fake_cuDeviceGetAttribute(int *value, int attr, int device)
{
	int result = fake_entered(FAKE_OTHER);

	(void)attr, (void)device;
	pthread_mutex_lock(&fake_lock);
	*value = !fake_dmabuf_missing;
	pthread_mutex_unlock(&fake_lock);
	return fake_leaving(FAKE_OTHER, result);
}

void *fake_symbol(const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} symbols[] = {
#define SYMBOL(name) {#name, (void *)fake_##name}
		SYMBOL(cuMemGetHandleForAddressRange),
		SYMBOL(cuPointerGetAttribute),
		SYMBOL(cuPointerGetAttributes),
		SYMBOL(cuPointerSetAttribute),
		SYMBOL(cuMemGetAddressRange_v2),
		SYMBOL(cuInit),
		SYMBOL(cuDriverGetVersion),
		SYMBOL(cuCtxGetCurrent),
		SYMBOL(cuCtxSetCurrent),
		SYMBOL(cuCtxGetDevice),
		SYMBOL(cuCtxPushCurrent_v2),
		SYMBOL(cuCtxPopCurrent_v2),
		SYMBOL(cuDeviceGet),
		SYMBOL(cuDeviceGetCount),
		SYMBOL(cuDeviceGetAttribute),
#undef SYMBOL
	};

	for (unsigned i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (strcmp(name, symbols[i].name) == 0)
			return symbols[i].function;
	return NULL;
}
