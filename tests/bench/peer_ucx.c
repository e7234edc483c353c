// SPDX-License-Identifier: MIT
/*
 * UCX's registration cache (ucs_rcache), of any version from 1.13 to 1.22, with a pin that does
 * nothing. An event of libucm notifies it of a free, as its own hooks of the CUDA calls do.
 *
 * BENCH_ASKS in the environment is the file of a driver that does nothing. Then each pin and each
 * free makes the calls that UCX's own CUDA code makes (1.22), as far as this driver has them.
 * Before a pin, these ask what memory it is, and for the range of its allocation, and set
 * SYNC_MEMOPS; before a free, they ask for that range. UCX also asks for an allocation handle, and
 * changes the current context twice.
 *
 * Without a limit on its regions, which is its default, the cache of 1.22 keeps no order in which
 * it would evict them. With a limit it does, under a lock of its own or, if UCX itself calls it,
 * under the caller's.
 */
#include "bench.h"
#include "peer.h"
#include "hook/cuda/abi.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>

const char peer_name[] = "ucx";
const bool peer_has_frees = true;

/* Exported by libucm, but declared in no installed header. */
void ucm_event_enter(void);
void ucm_event_leave(void);
void ucm_event_dispatch(ucm_event_type_t type, ucm_event_t *event);

static ucs_rcache_t *cache;
static uint64_t registered;
static ucs_rcache_region_t **held;
static uint32_t held_count;

static struct {
	CUresult (*attributes)(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
	CUresult (*set)(const void *, CUpointer_attribute, CUdeviceptr);
	CUresult (*range)(CUdeviceptr *, size_t *, CUdeviceptr);
} driver;

static void *question(void *library, const char *name)
{
	void *function = dlsym(library, name);

	if (!function)
		stop(name, 0);
	return function;
}

static void find_driver(const char *file)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		stop(dlerror(), 0);
	*(void **)&driver.attributes = question(library, "cuPointerGetAttributes");
	*(void **)&driver.set = question(library, "cuPointerSetAttribute");
	*(void **)&driver.range = question(library, "cuMemGetAddressRange_v2");
}

static void ask_range(CUdeviceptr addr)
{
	CUdeviceptr base;
	size_t size;

	if (driver.range(&base, &size, addr) != CUDA_SUCCESS)
		stop("cuMemGetAddressRange", 0);
}

static void ask_before_pin(CUdeviceptr addr)
{
	unsigned type = 0, managed = 0, on = 1;
	CUdevice device;
	CUcontext context;
	CUpointer_attribute asked[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
	void *answers[] = {&type, &managed, &device, &context};

	if (driver.attributes(4, asked, answers, addr) != CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE || managed)
		stop("cuPointerGetAttributes", (int)type);
	if (driver.set(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, addr) != CUDA_SUCCESS)
		stop("cuPointerSetAttribute", 0);
	ask_range(addr);
}

static ucs_status_t reg(void *context, ucs_rcache_t *rcache, void *arg, ucs_rcache_region_t *region,
			uint16_t flags)
{
	(void)context, (void)rcache, (void)arg, (void)region, (void)flags;
	__atomic_fetch_add(&registered, 1, __ATOMIC_RELAXED);
	return UCS_OK;
}

static ucs_status_t reg_asking(void *context, ucs_rcache_t *rcache, void *arg,
			       ucs_rcache_region_t *region, uint16_t flags)
{
	ask_before_pin(region->super.start);
	return reg(context, rcache, arg, region, flags);
}

static void dereg(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region)
{
	(void)context, (void)rcache, (void)region;
}

static void dump(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region, char *buf,
		 size_t max)
{
	(void)context, (void)rcache, (void)region;
	snprintf(buf, max, "-");
}

#ifdef PEER_UCX_MERGES
static void merge(void *context, ucs_rcache_t *rcache, void *arg, ucs_rcache_region_t *region)
{
	(void)context, (void)rcache, (void)arg, (void)region;
}
#endif

static ucs_rcache_ops_t ops = {.mem_reg = reg,
			       .mem_dereg = dereg,
#ifdef PEER_UCX_MERGES
			       .merge = merge,
#endif
			       .dump_region = dump};

/* Only libucp says it. */
const char *peer_version(void)
{
	void *ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
	const char *(*version)(void) = NULL;

	if (ucp)
		*(void **)&version = dlsym(ucp, "ucp_get_version_string");
	return version ? version() : "of an unknown version";
}

static int flags(bool limited)
{
#ifdef PEER_UCX_LOCKS_LRU
	return UCS_RCACHE_FLAG_NO_PFN_CHECK | (limited ? UCS_RCACHE_FLAG_NEED_LRU_LOCK : 0);
#else
	(void)limited;
	return UCS_RCACHE_FLAG_NO_PFN_CHECK;
#endif
}

void peer_open(size_t regions, size_t limit)
{
	const ucs_rcache_params_t params = {
		.region_struct_size = sizeof(ucs_rcache_region_t),
#ifdef PEER_UCX_ALIGNS_ALL
		.alignment = UCS_RCACHE_MIN_ALIGNMENT,
		.max_alignment = PEER_BYTES,
#endif
		.ucm_events = UCM_EVENT_MEM_TYPE_FREE,
		.ucm_event_priority = 1000,
		.ops = &ops,
		.flags = flags(limit != 0),
		.max_regions = limit ? limit : ~0ul,
		.max_size = ~(size_t)0,
		.max_unreleased = ~(size_t)0,
	};
	const char *asks = getenv("BENCH_ASKS");
	ucs_status_t status;

	(void)regions;
	if (asks)
		ops.mem_reg = reg_asking;
	status = ucs_rcache_create(&params, "bench", NULL, &cache);
	if (status != UCS_OK)
		stop("ucs_rcache_create", status);
	/* After that: UCX looks for a libcuda, too, and would take this one. */
	if (asks)
		find_driver(asks);
}

void peer_thread(void)
{
}

static inline ucs_rcache_region_t *get(uint64_t addr, size_t length)
{
	ucs_rcache_region_t *region;
	ucs_status_t status = ucs_rcache_get(cache, (void *)addr, length,
#ifndef PEER_UCX_ALIGNS_ALL
					     UCS_RCACHE_MIN_ALIGNMENT,
#endif
					     PROT_READ | PROT_WRITE, NULL, &region);

	if (__builtin_expect(status != UCS_OK, 0))
		stop("ucs_rcache_get", status);
	return region;
}

/* It registers the requested range, not the allocation. */
void peer_gets(const struct regions *regions, const uint32_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ucs_rcache_region_put(cache, get(region_at(regions, order[i]), PEER_BYTES));
}

static void report_free(uint64_t addr, uint64_t length)
{
	ucm_event_t event = {.mem_type = {.address = (void *)addr,
					  .size = length,
					  .mem_type = UCS_MEMORY_TYPE_CUDA}};

	ucm_event_enter();
	ucm_event_dispatch(UCM_EVENT_MEM_TYPE_FREE, &event);
	ucm_event_leave();
}

static inline __attribute__((always_inline)) void
gets_and_frees(const struct regions *regions, const uint32_t *order, size_t count, bool asks)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t addr = region_at(regions, order[i] & ~PEER_FREED);

		if (order[i] & PEER_FREED) {
			if (asks)
				ask_range(addr);
			report_free(addr, PEER_BYTES);
		}
		ucs_rcache_region_put(cache, get(addr, PEER_BYTES));
	}
}

/* One loop without a check whether to ask. */
void peer_gets_and_frees(const struct regions *regions, const uint32_t *order, size_t count)
{
	if (driver.range)
		gets_and_frees(regions, order, count, true);
	else
		gets_and_frees(regions, order, count, false);
}

void peer_frees(const struct regions *regions, const uint32_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++)
		report_free(region_at(regions, order[i]), PEER_BYTES);
}

void peer_free_range(uint64_t begin, uint64_t length)
{
	report_free(begin, length);
}

void peer_hold(const struct regions *regions, uint32_t first, uint32_t count)
{
	held = calloc(count, sizeof(ucs_rcache_region_t *));
	if (!held)
		stop("no memory", 0);
	for (held_count = 0; held_count < count; held_count++)
		held[held_count] = get(region_at(regions, first + held_count), PEER_BYTES);
}

void peer_let_go(void)
{
	while (held_count)
		ucs_rcache_region_put(cache, held[--held_count]);
	free(held);
}

void peer_flush(const struct regions *regions, const uint32_t *order, size_t count)
{
	peer_frees(regions, order, count);
	peer_gets(regions, order, 1); /* the next get that misses deregisters unlinked regions */
}

bool peer_count(void)
{
	return false;
}

uint64_t peer_pins(void)
{
	return registered;
}
