/* SPDX-License-Identifier: MIT */
/* See fake_driver.h. One lock around the tables, never held while a test's own function runs. */
#define _GNU_SOURCE
#include "fake_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_MEMORY  4096
#define MAX_EXPORTS 16384
#define PAGE_2M	    ((uint64_t)2 << 20)

struct memory {
	uint64_t base, size, id;
	enum fake_kind kind;
	void *context, *pool;
	int device;
	bool alive;
};

#define IDS 4

struct dmabuf {
	uint64_t ids[IDS]; /* of the memory it keeps; unused: 0 */
	uint64_t bytes;
	int reader;
	bool open;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory memory[MAX_MEMORY];
static unsigned memories;
static struct dmabuf exports[MAX_EXPORTS];
static unsigned exports_used, exports_made;
static uint64_t last_id = 41;

static unsigned counts[FAKE_CALLS + 1];
static struct {
	enum fake_call call;
	unsigned first, times;
	int result;
} failing = {.call = FAKE_CALLS};
static struct {
	enum fake_call call;
	unsigned edges; /* still to go by */
	void (*fn)(void *);
	void *arg;
	bool met;
} edge;
static uint64_t pin_space = UINT64_MAX;
static int pin_space_result = FAKE_OUT_OF_MEMORY;
static unsigned swaps;
static bool dmabuf_missing;

/*
 * What this thread asked about last. A range rounded out to whole pages may hold several small
 * allocations: this tells which of them an export is for.
 */
static __thread uint64_t asked_last;
static __thread void *current_context = FAKE_CONTEXT;

static void edge_passed(enum fake_call call)
{
	void (*fn)(void *) = NULL;
	void *arg = NULL;

	pthread_mutex_lock(&lock);
	if (edge.fn && (edge.call == call || edge.call == FAKE_CALLS) && edge.edges-- == 0) {
		fn = edge.fn;
		arg = edge.arg;
		edge.fn = NULL;
		edge.met = true;
	}
	pthread_mutex_unlock(&lock);
	if (fn)
		fn(arg);
}

/* What each call begins with; anything but success is the call's result. */
static int entered(enum fake_call call)
{
	int result = FAKE_SUCCESS;

	edge_passed(call);
	pthread_mutex_lock(&lock);
	counts[FAKE_CALLS]++;
	unsigned at = counts[call]++;
	if (failing.call == call && at >= failing.first && at - failing.first < failing.times)
		result = failing.result;
	pthread_mutex_unlock(&lock);
	return result;
}

static int leaving(enum fake_call call, int result)
{
	edge_passed(call);
	return result;
}

/* ---- the program's side ---- */

void fake_alloc_in(uint64_t base, uint64_t size, enum fake_kind kind, void *context, int device,
		   void *pool)
{
	pthread_mutex_lock(&lock);
	unsigned at = 0;
	while (at < memories && memory[at].alive)
		at++;
	if (at == MAX_MEMORY) {
		fprintf(stderr, "fake driver: more than %d allocations\n", MAX_MEMORY);
		abort();
	}
	if (at == memories)
		memories++;
	memory[at] = (struct memory){base, size, ++last_id, kind, context, pool, device, true};
	pthread_mutex_unlock(&lock);
}

void fake_alloc(uint64_t base, uint64_t size, enum fake_kind kind)
{
	bool owned = kind == FAKE_LINEAR || kind == FAKE_MANAGED || kind == FAKE_HOST;
	void *pool = kind == FAKE_POOL ? (void *)0xb0 : NULL;

	fake_alloc_in(base, size, kind, owned ? FAKE_CONTEXT : NULL, 0, pool);
}

static struct memory *find(uint64_t addr)
{
	for (unsigned i = 0; i < memories; i++)
		if (memory[i].alive && addr - memory[i].base < memory[i].size)
			return &memory[i];
	return NULL;
}

int fake_free(uint64_t base)
{
	pthread_mutex_lock(&lock);
	struct memory *m = find(base);
	bool ok = m && m->base == base;
	if (ok)
		m->alive = false;
	pthread_mutex_unlock(&lock);
	return ok ? FAKE_SUCCESS : FAKE_INVALID_VALUE;
}

void fake_context_destroy(void *context)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < memories; i++)
		if (memory[i].context == context)
			memory[i].alive = false;
	pthread_mutex_unlock(&lock);
}

void fake_pool_free_all(void *pool)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < memories; i++)
		if (memory[i].pool == pool)
			memory[i].alive = false;
	pthread_mutex_unlock(&lock);
}

void fake_no_current_context(void)
{
	current_context = NULL;
}

uint64_t fake_id(uint64_t addr)
{
	pthread_mutex_lock(&lock);
	struct memory *m = find(addr);
	uint64_t id = m ? m->id : 0;
	pthread_mutex_unlock(&lock);
	return id;
}

/* ---- the script ---- */

unsigned fake_count(enum fake_call call)
{
	pthread_mutex_lock(&lock);
	unsigned n = counts[call];
	pthread_mutex_unlock(&lock);
	return n;
}

void fake_fail(enum fake_call call, unsigned nth, unsigned times, int result)
{
	pthread_mutex_lock(&lock);
	failing.call = call;
	failing.first = counts[call] + nth;
	failing.times = times;
	failing.result = result;
	pthread_mutex_unlock(&lock);
}

void fake_pin_space(uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	pin_space = bytes;
	pthread_mutex_unlock(&lock);
}

void fake_pin_space_result(int result)
{
	pthread_mutex_lock(&lock);
	pin_space_result = result;
	pthread_mutex_unlock(&lock);
}

void fake_swap_during_export(unsigned times)
{
	pthread_mutex_lock(&lock);
	swaps = times;
	pthread_mutex_unlock(&lock);
}

void fake_no_dmabuf(void)
{
	pthread_mutex_lock(&lock);
	dmabuf_missing = true;
	pthread_mutex_unlock(&lock);
}

void fake_at_edge(enum fake_call call, unsigned nth, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	edge.call = call;
	edge.edges = nth;
	edge.fn = fn;
	edge.arg = arg;
	edge.met = false;
	pthread_mutex_unlock(&lock);
}

bool fake_edge_met(void)
{
	pthread_mutex_lock(&lock);
	bool met = edge.met;
	pthread_mutex_unlock(&lock);
	return met;
}

/* ---- exports ---- */

static bool still_open(struct dmabuf *e)
{
	struct pollfd p = {.fd = e->reader};

	if (e->open && poll(&p, 1, 0) == 1 && (p.revents & POLLHUP)) {
		close(e->reader);
		e->open = false;
	}
	return e->open;
}

static bool id_alive(uint64_t id)
{
	for (unsigned i = 0; i < memories; i++)
		if (memory[i].alive && memory[i].id == id)
			return true;
	return false;
}

static unsigned open_exports(bool (*counts_in)(struct dmabuf *, uint64_t), uint64_t id)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < exports_used; i++)
		if (still_open(&exports[i]) && counts_in(&exports[i], id))
			n++;
	pthread_mutex_unlock(&lock);
	return n;
}

static bool any(struct dmabuf *e, uint64_t id)
{
	(void)e, (void)id;
	return true;
}

static bool of_dead(struct dmabuf *e, uint64_t id)
{
	(void)id;
	for (unsigned i = 0; i < IDS; i++)
		if (e->ids[i] && !id_alive(e->ids[i]))
			return true;
	return false;
}

static bool of_id(struct dmabuf *e, uint64_t id)
{
	for (unsigned i = 0; i < IDS; i++)
		if (e->ids[i] == id)
			return true;
	return false;
}

unsigned fake_open_exports(void)
{
	return open_exports(any, 0);
}

unsigned fake_open_exports_of_dead(void)
{
	return open_exports(of_dead, 0);
}

unsigned fake_open_exports_of(uint64_t id)
{
	return open_exports(of_id, id);
}

unsigned fake_exports_made(void)
{
	pthread_mutex_lock(&lock);
	unsigned n = exports_made;
	pthread_mutex_unlock(&lock);
	return n;
}

static void lock_for_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

void fake_handle_forks(void)
{
	pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);
}

static bool is_of_an_export(const struct stat *st)
{
	struct stat reader;

	for (unsigned i = 0; i < exports_used; i++)
		if (exports[i].open && fstat(exports[i].reader, &reader) == 0 &&
		    reader.st_dev == st->st_dev && reader.st_ino == st->st_ino)
			return true;
	return false;
}

unsigned fake_descriptors_here(void)
{
	unsigned n = 0;
	struct stat st;

	pthread_mutex_lock(&lock);
	for (int fd = 0; fd < 4096; fd++) {
		int how = fcntl(fd, F_GETFL);
		if (how != -1 && (how & O_ACCMODE) == O_WRONLY && fstat(fd, &st) == 0 &&
		    S_ISFIFO(st.st_mode) && is_of_an_export(&st))
			n++;
	}
	pthread_mutex_unlock(&lock);
	return n;
}

static bool backed(uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < memories; i++) {
		struct memory *m = &memory[i];
		if (m->alive && m->kind <= FAKE_VMM && m->base < end && m->base + m->size > begin)
			return true;
	}
	return false;
}

/* The 2 MiB blocks of [base, end) are all backed by something that lives and can be exported. */
static bool exportable(uint64_t base, uint64_t end)
{
	if (((base | end) & 4095) || base >= end)
		return false;
	for (uint64_t block = base & -PAGE_2M; block < end; block += PAGE_2M)
		if (!backed(block, block + PAGE_2M))
			return false;
	return true;
}

/* What an export of [base, end) keeps alive: what was asked about, or all mappings of a VMM range.
 */
static void kept_by_export(struct dmabuf *e, uint64_t base, uint64_t end)
{
	struct memory *asked = find(asked_last);
	unsigned n = 0;

	if (asked && asked->kind != FAKE_VMM) {
		e->ids[0] = asked->id;
		return;
	}
	for (unsigned i = 0; i < memories && n < IDS; i++) {
		struct memory *m = &memory[i];
		if (m->alive && m->kind == FAKE_VMM && m->base < end && m->base + m->size > base)
			e->ids[n++] = m->id;
	}
}

static uint64_t open_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < exports_used; i++)
		if (still_open(&exports[i]))
			bytes += exports[i].bytes;
	return bytes;
}

static struct dmabuf *unused_export(void)
{
	for (unsigned i = 0; i < exports_used; i++)
		if (!exports[i].open)
			return &exports[i];
	if (exports_used == MAX_EXPORTS) {
		fprintf(stderr, "fake driver: more than %d exports\n", MAX_EXPORTS);
		abort();
	}
	return &exports[exports_used++];
}

/* Called with the lock. */
static int make_export(int *handle, uint64_t base, uint64_t size)
{
	struct memory *m = find(asked_last);
	int ends[2];

	if (dmabuf_missing)
		return FAKE_NOT_SUPPORTED;
	if (!exportable(base, base + size))
		return FAKE_INVALID_VALUE;
	if (open_bytes() + size > pin_space)
		return pin_space_result;
	if (pipe2(ends, 0))
		return FAKE_OPERATING_SYSTEM;
	int reader = fcntl(ends[0], F_DUPFD_CLOEXEC, 300);
	close(ends[0]);
	if (reader < 0) {
		close(ends[1]);
		return FAKE_OPERATING_SYSTEM;
	}
	struct dmabuf *made = unused_export();
	*made = (struct dmabuf){.bytes = size, .reader = reader, .open = true};
	kept_by_export(made, base, base + size);
	exports_made++;
	*handle = ends[1];
	if (swaps && m) {
		swaps--;
		m->id = ++last_id;
	}
	return FAKE_SUCCESS;
}

static int fake_cuMemGetHandleForAddressRange(void *handle, uint64_t base, size_t size, int type,
					      unsigned long long flags)
{
	int result = entered(FAKE_EXPORT);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&lock);
		result = !current_context ? FAKE_INVALID_CONTEXT
			 : type != 1	  ? FAKE_INVALID_VALUE
			 : flags	  ? FAKE_NOT_SUPPORTED
					  : make_export(handle, base, size);
		pthread_mutex_unlock(&lock);
	}
	return leaving(FAKE_EXPORT, result);
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
};

/* m NULL: the value that an address unknown to the driver has. */
static int attribute(const struct memory *m, int attr, void *data)
{
	switch (attr) {
	case ATTR_CONTEXT:
		*(void **)data = m ? m->context : NULL;
		return FAKE_SUCCESS;
	case ATTR_MEMORY_TYPE:
		*(unsigned *)data = !m ? 0 : m->kind == FAKE_HOST ? 1 : 2;
		return FAKE_SUCCESS;
	case ATTR_DEVICE_POINTER:
	case ATTR_HOST_POINTER:
	case ATTR_RANGE_START_ADDR:
		*(uint64_t *)data = m ? m->base : 0;
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
		*(size_t *)data = m ? m->size : 0;
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

static struct memory *known(uint64_t addr)
{
	struct memory *m = find(addr);

	asked_last = addr;
	return m && m->kind != FAKE_GRAPH ? m : NULL;
}

static int fake_cuPointerGetAttribute(void *data, int attr, uint64_t addr)
{
	int result = entered(FAKE_QUERY);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&lock);
		struct memory *m = known(addr);
		result = m ? attribute(m, attr, data) : FAKE_INVALID_VALUE;
		pthread_mutex_unlock(&lock);
	}
	return leaving(FAKE_QUERY, result);
}

/* The plural succeeds for an address that the driver doesn't know, with zeros. */
static int fake_cuPointerGetAttributes(unsigned n, int *attrs, void **data, uint64_t addr)
{
	int result = entered(FAKE_QUERY);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&lock);
		struct memory *m = known(addr);
		for (unsigned i = 0; i < n && result == FAKE_SUCCESS; i++)
			result = attribute(m, attrs[i], data[i]);
		pthread_mutex_unlock(&lock);
	}
	return leaving(FAKE_QUERY, result);
}

static int fake_cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t addr)
{
	int result = entered(FAKE_QUERY);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&lock);
		struct memory *m = known(addr);
		if (m && base)
			*base = m->base;
		if (m && size)
			*size = m->size;
		result = m ? FAKE_SUCCESS : FAKE_NOT_FOUND;
		pthread_mutex_unlock(&lock);
	}
	return leaving(FAKE_QUERY, result);
}

static int fake_cuPointerSetAttribute(const void *value, int attr, uint64_t addr)
{
	int result = entered(FAKE_SYNC);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&lock);
		struct memory *m = known(addr);
		result = !m || attr != ATTR_SYNC_MEMOPS || *(const unsigned *)value != 1
				 ? FAKE_INVALID_VALUE
			 : m->kind == FAKE_VMM ? FAKE_NOT_SUPPORTED
					       : FAKE_SUCCESS;
		pthread_mutex_unlock(&lock);
	}
	return leaving(FAKE_SYNC, result);
}

/* ---- the rest ---- */

static int fake_cuInit(unsigned flags)
{
	(void)flags;
	return leaving(FAKE_OTHER, entered(FAKE_OTHER));
}

static int fake_cuDriverGetVersion(int *version)
{
	int result = entered(FAKE_OTHER);

	*version = 13000;
	return leaving(FAKE_OTHER, result);
}

static int fake_cuCtxGetCurrent(void **context)
{
	int result = entered(FAKE_OTHER);

	*context = current_context;
	return leaving(FAKE_OTHER, result);
}

static int fake_cuCtxSetCurrent(void *context)
{
	int result = entered(FAKE_OTHER);

	current_context = context;
	return leaving(FAKE_OTHER, result);
}

/* Only mapped memory has an allocation handle. */
static int fake_cuMemRetainAllocationHandle(unsigned long long *handle, void *addr)
{
	int result = entered(FAKE_OTHER);

	if (result == FAKE_SUCCESS) {
		pthread_mutex_lock(&lock);
		struct memory *m = find((uintptr_t)addr);
		if (m && m->kind == FAKE_VMM)
			*handle = m->id;
		else
			result = FAKE_INVALID_VALUE;
		pthread_mutex_unlock(&lock);
	}
	return leaving(FAKE_OTHER, result);
}

static int fake_cuMemRelease(unsigned long long handle)
{
	(void)handle;
	return leaving(FAKE_OTHER, entered(FAKE_OTHER));
}

static int fake_cuCtxPushCurrent_v2(void *context)
{
	int result = entered(FAKE_OTHER);

	if (result == FAKE_SUCCESS)
		current_context = context;
	return leaving(FAKE_OTHER, result);
}

static int fake_cuCtxPopCurrent_v2(void **context)
{
	int result = entered(FAKE_OTHER);

	*context = current_context;
	current_context = NULL;
	return leaving(FAKE_OTHER, result);
}

static int fake_cuCtxGetDevice(int *device)
{
	int result = entered(FAKE_OTHER);

	*device = 0;
	return leaving(FAKE_OTHER, result);
}

static int fake_cuDeviceGet(int *device, int ordinal)
{
	int result = entered(FAKE_OTHER);

	*device = ordinal;
	return leaving(FAKE_OTHER, result);
}

static int fake_cuDeviceGetCount(int *count)
{
	int result = entered(FAKE_OTHER);

	*count = 2;
	return leaving(FAKE_OTHER, result);
}

/* All that the cache might ask for (116: GPU_DIRECT_RDMA, 124: DMA_BUF) is there. */
static int fake_cuDeviceGetAttribute(int *value, int attr, int device)
{
	int result = entered(FAKE_OTHER);

	(void)attr, (void)device;
	pthread_mutex_lock(&lock);
	*value = !dmabuf_missing;
	pthread_mutex_unlock(&lock);
	return leaving(FAKE_OTHER, result);
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
		SYMBOL(cuMemRetainAllocationHandle),
		SYMBOL(cuMemRelease),
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
