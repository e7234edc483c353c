// SPDX-License-Identifier: MIT
/* A trace with more of everything than a report lists, or draws one by one. */
#include "tests/unit/support/made_trace.h"

#include <stdio.h>

enum { REGIONS = 3200, CONSUMERS = 210, SITES = 12, IN_A_CHUNK = 400 };
enum { SPAN = 240000, PINNED = 60500, UNPINNED = 120250 }; /* ns */

static const uint64_t first_address = 0x7f0000000000;

static struct pdn_trace_region nth_region(uint32_t n)
{
	uint64_t addr = first_address + (uint64_t)n * 65536;

	return (struct pdn_trace_region){.addr = addr,
					 .size = 65536,
					 .pin_addr = addr,
					 .pin_size = 65536,
					 .buffer_id = 100 + n,
					 .region = n + 1};
}

/* One beside the other, all pinned at the same time. */
static void add_regions(struct made *made, enum pdn_event event, uint32_t sequence, uint64_t at)
{
	for (uint32_t i = 0; i < REGIONS; i++) {
		struct pdn_trace_region what = nth_region(i);

		if (i % IN_A_CHUNK == 0)
			made_chunk(made, 0, sequence + i / IN_A_CHUNK, 77, BEGAN_NS);
		made_region(made, event, &what, at, at);
	}
}

/* Each has an object on the first region when that ends. */
static void add_consumers(struct made *made)
{
	const struct pdn_trace_region first = nth_region(0);
	struct pdn_trace_note what = {.addr = first.addr,
				      .size = first.size,
				      .extra = 1,
				      .pin_size = first.pin_size,
				      .region = first.region};
	char name[9];

	for (unsigned i = 0; i < CONSUMERS; i++) {
		snprintf(name, sizeof(name), "user%u", i);
		what.name = name;
		made_note(made, PDN_EV_HELD, &what, BEGAN_NS + UNPINNED + 10);
	}
	made_note(made, PDN_EV_HOLDER, &what, BEGAN_NS + UNPINNED + 20);
}

/* Each allocates once, and the end of the context frees all. */
static void add_sites(struct made *made)
{
	enum { ALLOC, CREATE, DESTROY };
	const uint64_t t = BEGAN_NS + UNPINNED + 1000;

	made_module(made, 1, 0x550000000000, "/home/user/app");
	made_call(made, CREATE, 0, 0, 0, 0xc0, t, t);
	for (uint32_t i = 1; i <= SITES; i++) {
		uint64_t frame = 0x0001000000001000 + i;

		made_stack(made, i, &frame, 1);
		made->stack = i;
		made_call(made, ALLOC, first_address + ((uint64_t)i << 32), (uint64_t)i << 20, 0, 0,
			  t + i * 10, t + i * 10 + 1);
	}
	made->stack = 0;
	made_call(made, DESTROY, 0, 0, 0, 0xc0, t + 1000, t + 1000);
}

void made_many(struct made *made)
{
	static const char calls[] = "cuMemAlloc_v2\0cuCtxCreate_v2\0cuCtxDestroy_v2";
	const uint32_t chunks = REGIONS / IN_A_CHUNK;

	made_begin(made, 77, BEGAN_NS);
	made_info(made, PDN_INFO_CALLS, calls, sizeof(calls));
	add_regions(made, PDN_EV_PIN, 0, BEGAN_NS + PINNED);
	add_regions(made, PDN_EV_UNPIN, chunks, BEGAN_NS + UNPINNED);
	made_chunk(made, 0, 2 * chunks, 77, BEGAN_NS);
	add_consumers(made);
	add_sites(made);
	made_error(made, "the end", 0, BEGAN_NS + SPAN);
	made_end(made, BEGAN_NS + SPAN);
}
