// SPDX-License-Identifier: MIT
/* UCX's registration cache (ucs_rcache) with a pin that does nothing, as hits.h wants it. */
#include "bench.h"
#include "hits.h"

#include <sys/mman.h>
#include <ucs/memory/rcache.h>

const char hits_name[] = "ucx";

static ucs_rcache_t *cache;
static size_t registered, deregistered;

static ucs_status_t reg(void *context, ucs_rcache_t *rcache, void *arg, ucs_rcache_region_t *region,
			uint16_t flags)
{
	(void)context, (void)rcache, (void)arg, (void)region, (void)flags;
	registered++;
	return UCS_OK;
}

static void dereg(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region)
{
	(void)context, (void)rcache, (void)region;
	deregistered++;
}

static void dump(void *context, ucs_rcache_t *rcache, ucs_rcache_region_t *region, char *buf,
		 size_t max)
{
	(void)context, (void)rcache, (void)region;
	snprintf(buf, max, "-");
}

static const ucs_rcache_ops_t ops = {.mem_reg = reg, .mem_dereg = dereg, .dump_region = dump};

void hits_open(uint64_t *addrs, size_t count)
{
	/* Memory events are left out: nothing is unmapped here, and a hit does not look at them. */
	const ucs_rcache_params_t params = {
		.region_struct_size = sizeof(ucs_rcache_region_t),
		.alignment = UCS_RCACHE_MIN_ALIGNMENT,
		.max_alignment = HITS_REGION_BYTES,
		.ops = &ops,
		.flags = UCS_RCACHE_FLAG_NO_PFN_CHECK,
		.max_regions = ~0ul,
		.max_size = ~(size_t)0,
		.max_unreleased = ~(size_t)0,
	};
	char *base = mmap(NULL, count * HITS_REGION_BYTES, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ucs_rcache_region_t *region;
	ucs_status_t status = ucs_rcache_create(&params, "bench", NULL, &cache);
	size_t i;

	if (base == MAP_FAILED || status != UCS_OK)
		stop("ucs_rcache_create", status);
	for (i = 0; i < count; i++) {
		addrs[i] = (uint64_t)(base + i * HITS_REGION_BYTES);
		status = ucs_rcache_get(cache, (void *)addrs[i], HITS_REGION_BYTES,
					PROT_READ | PROT_WRITE, NULL, &region);
		if (status != UCS_OK)
			stop("ucs_rcache_get", status);
		ucs_rcache_region_put(cache, region);
	}
}

void hits_thread(void)
{
}

void hits_loop(const uint64_t *addrs, size_t count)
{
	ucs_rcache_region_t *region;
	size_t i;

	for (i = 0; i < count; i++) {
		if (ucs_rcache_get(cache, (void *)addrs[i], 4096, PROT_READ | PROT_WRITE, NULL,
				   &region) != UCS_OK)
			stop("ucs_rcache_get", 0);
		ucs_rcache_region_put(cache, region);
	}
}

void hits_close(size_t regions, size_t gets)
{
	(void)gets;
	if (registered != regions)
		stop("some gets were no hits: registered", (int)registered);
	ucs_rcache_destroy(cache);
	if (deregistered != regions)
		stop("deregistered", (int)deregistered);
}
