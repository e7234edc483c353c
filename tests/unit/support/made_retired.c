// SPDX-License-Identifier: MIT
/* A trace with memory that was freed under registrations: what became of each. */
#include "tests/unit/support/made_trace.h"

#include <string.h>

enum { MAKER = 1, FREER, ORDER = 10000 /* ns from one kind to the next */ };

/* One registration of memory of its own, which is freed now. */
struct one {
	struct pdn_trace_region region;
	struct pdn_trace_note note;
	uint64_t at;
};

static struct one begin(struct made *made, uint32_t n, uint64_t size, uint64_t at)
{
	struct one one = {.at = at + 1000};

	one.region = (struct pdn_trace_region){.addr = 0x7f0000000000 + (uint64_t)n * (16 << 20),
					       .size = size,
					       .pin_size = size,
					       .buffer_id = 500 + n,
					       .region = n + 1};
	made_region(made, PDN_EV_PIN, &one.region, at, at + 100);
	one.note = (struct pdn_trace_note){.addr = one.region.addr,
					   .size = size,
					   .pin_size = size,
					   .buffer_id = one.region.buffer_id,
					   .region = n + 1,
					   .number = 30 + n,
					   .reason = PINDOWN_REASON_FREED,
					   .name = "verbs"};
	return one;
}

static void name_holder(struct made *made, const struct one *one, unsigned flags)
{
	struct pdn_trace_note note = one->note;

	note.origin = MAKER;
	note.stack = FREER;
	note.flags = (uint16_t)flags;
	made_note(made, PDN_EV_HOLDER, &note, one->at + 100);
}

static void end_object(struct made *made, const struct one *one, uint64_t later)
{
	struct pdn_trace_note note = one->note;

	note.flags = PDN_TRACE_IN_USE;
	made_note(made, PDN_EV_DEREGISTER, &note, one->at + later);
	made_region(made, PDN_EV_UNPIN, &one->region, one->at + later + 1, one->at + later + 2);
}

static void invalidate(struct made *made, struct one *one, unsigned flags)
{
	one->region.reason = PINDOWN_REASON_FREED;
	one->region.flags = (uint16_t)flags;
	made_region(made, PDN_EV_INVALIDATE, &one->region, one->at, one->at);
	one->region.flags = 0;
}

/* Whole blocks around the memory are reserved. */
static void retire(struct made *made, const struct one *one, enum pdn_retire_outcome outcome,
		   uint64_t later)
{
	const uint64_t block = 2 << 20, begin = one->note.addr & -block,
		       end = (one->note.addr + one->note.size + block - 1) & -block;

	made_note(made, PDN_EV_RETIRE,
		  &(struct pdn_trace_note){.addr = one->note.addr,
					   .size = end - one->note.addr,
					   .pin_size = end - begin,
					   .buffer_id = one->note.buffer_id,
					   .device = -1,
					   .extra = outcome},
		  one->at + later);
}

static void keep(struct made *made, struct one *one)
{
	struct pdn_trace_note held = one->note;

	invalidate(made, one, PDN_TRACE_IN_USE);
	name_holder(made, one, 0);
	held.extra = 1;
	held.flags = PDN_TRACE_IN_USE;
	made_note(made, PDN_EV_HELD, &held, one->at + 200);
}

/* Two registrations of small buffers in one block, kept until the second one's free. */
static void end_behind(struct made *made, uint32_t n, uint64_t at)
{
	struct one first = begin(made, n, 65536, at), second = begin(made, n + 1, 65536, at + 10);

	second.region.addr = second.note.addr = first.note.addr + 65536;
	keep(made, &first);
	keep(made, &second);
	retire(made, &second, PDN_RETIRE_RESERVED, 300);
	end_object(made, &second, 400);
	end_object(made, &first, 500);
	retire(made, &second, PDN_RETIRE_RELEASED, 600);
}

/* A dma-buf of the program's own, which is open when the memory is freed. */
static void export_and_free(struct made *made, uint32_t n, uint64_t at)
{
	struct pdn_trace_note note = {.addr = 0x7f0000000000 + (uint64_t)n * (16 << 20),
				      .size = 4 << 20,
				      .number = 30 + n,
				      .device = -1,
				      .extra = 7,
				      .stack = MAKER};

	made_note(made, PDN_EV_EXPORT, &note, at);
	note.stack = FREER;
	note.flags = PDN_TRACE_IN_USE;
	note.reason = PINDOWN_REASON_FREED;
	made_note(made, PDN_EV_OUTLIVED, &note, at + 1000);
}

void made_fate(struct made *made, char kind, uint32_t n, uint64_t at)
{
	struct one one;

	if (kind == 's') {
		end_behind(made, n, at);
		return;
	}
	if (kind == 'x') {
		export_and_free(made, n, at);
		return;
	}
	one = begin(made, n, 4 << 20, at);
	if (kind == 'k') {
		keep(made, &one);
		return;
	}
	invalidate(made, &one, 0);
	name_holder(made, &one, PDN_TRACE_REVOKED);
	end_object(made, &one, 200);
	if (kind == 'r')
		return;
	retire(made, &one, kind == 'e' ? PDN_RETIRE_ESCAPED : PDN_RETIRE_RESERVED, 300);
	if (kind == 'd' || kind == 'E')
		retire(made, &one, kind == 'd' ? PDN_RETIRE_DROPPED : PDN_RETIRE_ESCAPED, 400);
	if (kind != 'c')
		return;
	retire(made, &one, PDN_RETIRE_RELEASED, 400);
	retire(made, &one, PDN_RETIRE_GIVEN_BACK, 500);
}

void made_retired(struct made *made, const char *kinds)
{
	static const uint64_t maker = 0x0001000000001111, freer = 0x0002000000002222;
	uint32_t n = 0;

	made_begin(made, 77, BEGAN_NS);
	made_info(made, PDN_INFO_COMMAND, "./app", 6);
	made_chunk(made, 0, 0, 77, BEGAN_NS);
	made_module(made, 1, 0x7f5500000000, "/usr/lib/libcache.so");
	made_module(made, 2, 0x550000000000, "/home/user/app");
	made_stack(made, MAKER, &maker, 1);
	made_stack(made, FREER, &freer, 1);
	for (; *kinds && *kinds != 'l'; kinds++, n += 2)
		made_fate(made, *kinds, n, BEGAN_NS + (n + 1) * ORDER);
	if (!*kinds)
		made_end(made, BEGAN_NS + (n + 2) * ORDER);
}
