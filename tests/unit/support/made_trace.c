// SPDX-License-Identifier: MIT
/* Writes traces record by record, from docs/internals/trace-format.md and without the writer. */
#include "tests/unit/support/made_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t realtime_offset = 1767323045000000000; /* 2026-01-02 03:04:05 UTC */

static void give_up(const char *what)
{
	perror(what);
	exit(1);
}

static void add_unit(struct made *made)
{
	if (made->size == made->capacity) {
		made->capacity = made->capacity ? made->capacity * 2 : PDN_TRACE_UNIT;
		made->bytes = realloc(made->bytes, made->capacity);
		if (!made->bytes)
			give_up("memory");
	}
	memset(made->bytes + made->size, 0, PDN_TRACE_UNIT);
	made->size += PDN_TRACE_UNIT;
}

static struct pdn_trace_header *header(struct made *made)
{
	return (struct pdn_trace_header *)(void *)made->bytes;
}

static struct pdn_trace_clock clock_at(uint64_t ns)
{
	return (struct pdn_trace_clock){ns * TICKS_IN_NS, ns, ns + realtime_offset};
}

void made_begin(struct made *made, uint32_t pid, uint64_t began_ns)
{
	memset(made, 0, sizeof(*made));
	add_unit(made);
	memcpy(header(made)->magic, PDN_TRACE_MAGIC, 8);
	header(made)->major = 1;
	header(made)->minor = 2;
	header(made)->header_bytes = 4096;
	header(made)->unit = 65536;
	header(made)->pid = made->pid = pid;
	header(made)->ppid = 1;
	header(made)->event_mask = (1u << PDN_EV_LOST) - 1;
	header(made)->begin = clock_at(began_ns);
	header(made)->units = 1;
	made->at = 4096;
}

void made_info(struct made *made, enum pdn_trace_info_kind kind, const void *data, size_t bytes)
{
	struct pdn_trace_info info = {(uint32_t)bytes, 0, (uint16_t)kind};

	memcpy(made->bytes + made->at, &info, sizeof(info));
	memcpy(made->bytes + made->at + sizeof(info), data, bytes);
	made->at += sizeof(info) + ((bytes + 7) & ~(size_t)7);
}

static struct pdn_trace_chunk *new_chunk(struct made *made, enum pdn_chunk_kind kind)
{
	struct pdn_trace_chunk *chunk;

	made->chunk = made->size;
	made->at = made->size + sizeof(*chunk);
	add_unit(made);
	header(made)->units++;
	chunk = (struct pdn_trace_chunk *)(void *)(made->bytes + made->chunk);
	chunk->magic = 0x4b434450;
	chunk->kind = (uint16_t)kind;
	chunk->units = 1;
	return chunk;
}

void made_counters(struct made *made, uint64_t hits, uint64_t misses, uint64_t lost, uint64_t told)
{
	struct pdn_trace_chunk *chunk = new_chunk(made, PDN_CHUNK_COUNTERS);
	struct pdn_trace_slot *slot = (struct pdn_trace_slot *)(chunk + 1);

	/* The slots of two threads, with a free slot between them. */
	slot[0].tid = 1;
	slot[0].hits = hits / 3;
	slot[0].misses = misses;
	slot[2].tid = 2;
	slot[2].hits = hits - hits / 3;
	slot[2].tag_checks = 4;
	slot[2].lost_events = lost;
	slot[2].told = told;
}

void made_chunk(struct made *made, uint32_t stream, uint32_t sequence, uint32_t tid, uint64_t ns)
{
	struct pdn_trace_chunk *chunk = new_chunk(made, PDN_CHUNK_EVENTS);

	chunk->stream = stream;
	chunk->sequence = sequence;
	chunk->tid = tid;
	chunk->base = made->base = ns * TICKS_IN_NS;
	chunk->clock = clock_at(ns);
}

void made_word(struct made *made, uint64_t word)
{
	memcpy(made->bytes + made->at, &word, 8);
	made->at += 8;
}

static void made_first(struct made *made, uint64_t words, uint64_t type, uint64_t what,
		       uint64_t end_ns)
{
	made_word(made, words | type << 8 | what << 16 | (end_ns * TICKS_IN_NS - made->base) << 32);
}

/* Fields that are zero are left out. */
static unsigned add_field(uint64_t *words, unsigned *fields, unsigned n, unsigned field,
			  uint64_t value)
{
	if (!value)
		return n;
	words[n] = value;
	*fields |= field;
	return n + 1;
}

static void put(struct made *made, unsigned type, unsigned what, unsigned aside, uint64_t begin,
		uint64_t end, const uint64_t *words, unsigned count, unsigned fields)
{
	made_first(made, 2 + count, type, what, end);
	made_word(made,
		  (end - begin) * TICKS_IN_NS | (uint64_t)fields << 32 | (uint64_t)aside << 48);
	for (unsigned i = 0; i < count; i++)
		made_word(made, words[i]);
}

void made_call(struct made *made, unsigned call, uint64_t addr, uint64_t size, int64_t result,
	       uint64_t extra, uint64_t begin, uint64_t end)
{
	uint64_t words[8], taken = (end - begin) * TICKS_IN_NS;
	bool fits = result >= 0 && result <= 65535, quick = taken <= UINT32_MAX;
	unsigned fields = 0, n = 0;

	n = add_field(words, &fields, n, 1, addr);
	n = add_field(words, &fields, n, 2, size);
	n = add_field(words, &fields, n, 4, fits ? 0 : (uint64_t)result);
	n = add_field(words, &fields, n, 8, quick ? 0 : taken);
	n = add_field(words, &fields, n, 16, extra);
	n = add_field(words, &fields, n, 0x400, made->stack);
	put(made, 1, call, fits ? (unsigned)result : 0, quick ? begin : end, end, words, n, fields);
}

void made_region(struct made *made, enum pdn_event event, const struct pdn_trace_region *what,
		 uint64_t begin, uint64_t end)
{
	unsigned fields = 0, n = 0;
	uint64_t words[12];

	n = add_field(words, &fields, n, 1, what->addr);
	n = add_field(words, &fields, n, 2, what->size);
	n = add_field(words, &fields, n, 4, (uint64_t)(int64_t)what->result);
	fields |= 0x20; /* a device or a region of number 0 is a field, too */
	words[n++] = what->region | (uint64_t)what->reason << 32 |
		     (uint64_t)(uint16_t)what->device << 48;
	n = add_field(words, &fields, n, 0x40, what->pin_addr);
	n = add_field(words, &fields, n, 0x80, what->pin_size);
	n = add_field(words, &fields, n, 0x100, what->buffer_id);
	n = add_field(words, &fields, n, 0x200, what->context);
	n = add_field(words, &fields, n, 0x400, made->stack);
	put(made, 2, event, what->flags, begin, end, words, n, fields);
}

void made_note(struct made *made, enum pdn_event event, const struct pdn_trace_note *what,
	       uint64_t at)
{
	size_t length = what->name ? strlen(what->name) : 0;
	unsigned fields = 0, n = 0;
	uint64_t words[12], name[2] = {0};

	n = add_field(words, &fields, n, 0x1, what->addr);
	n = add_field(words, &fields, n, 0x2, what->size);
	fields |= 0x10 | 0x20;
	words[n++] = what->extra;
	words[n++] = what->region | (uint64_t)what->reason << 32 |
		     (uint64_t)(uint16_t)what->device << 48;
	n = add_field(words, &fields, n, 0x80, what->pin_size);
	n = add_field(words, &fields, n, 0x100, what->buffer_id);
	n = add_field(words, &fields, n, 0x400, what->stack);
	n = add_field(words, &fields, n, 0x1000, what->number);
	n = add_field(words, &fields, n, 0x2000, what->origin);
	memcpy(name, what->name ? what->name : "", length);
	for (unsigned i = 0; i < (length + 7) / 8; i++)
		words[n++] = name[i];
	put(made, PDN_RECORD_NOTE, event, (what->flags & 0xffu) | (unsigned)length << 8, at, at,
	    words, n, fields);
}

void made_error(struct made *made, const char *text, int64_t result, uint64_t end)
{
	size_t length = strlen(text), text_words = (length + 7) / 8;

	made_first(made, 3 + text_words, 3, PDN_EV_ERROR, end);
	made_word(made, 4ull << 32 | (uint64_t)length << 48);
	made_word(made, (uint64_t)result);
	memcpy(made->bytes + made->at, text, length);
	made->at += text_words * 8;
}

void made_clock(struct made *made, uint64_t base_ns)
{
	struct pdn_trace_clock clock = clock_at(base_ns);

	made_word(made, 5 | 4 << 8);
	made->base = base_ns * TICKS_IN_NS;
	made_word(made, made->base);
	made_word(made, clock.ticks);
	made_word(made, clock.monotonic);
	made_word(made, clock.realtime);
}

void made_thread(struct made *made, uint32_t tid)
{
	made_word(made, 2 | 5 << 8);
	made_word(made, tid);
}

void made_lost(struct made *made, uint64_t count)
{
	made_word(made, 2 | 6 << 8);
	made_word(made, count);
}

void made_stack(struct made *made, uint32_t number, const uint64_t *frames, unsigned count)
{
	made_word(made, (2 + count) | 7 << 8 | count << 16);
	made_word(made, number);
	for (unsigned i = 0; i < count; i++)
		made_word(made, frames[i]);
}

/* Its build id has 8 bytes that no file has. */
void made_module(struct made *made, unsigned number, uint64_t begin, const char *path)
{
	size_t length = strlen(path), path_words = (length + 7) / 8;

	made_word(made, (6 + path_words) | 8 << 8 | number << 16);
	made_word(made, begin);
	made_word(made, begin + 0x100000);
	made_word(made, begin);
	made_word(made, 8 | (uint64_t)length << 16);
	made_word(made, 0x0123456789abcdef);
	memcpy(made->bytes + made->at, path, length);
	made->at += path_words * 8;
}

void made_end(struct made *made, uint64_t ns)
{
	header(made)->end = clock_at(ns);
}

/* ---- the story ------------------------------------------------------------------------------ */

enum { ALLOC, FREE, ASYNC };

static struct pdn_trace_region region(uint32_t number, uint64_t addr, uint64_t size, int16_t device)
{
	return (struct pdn_trace_region){.addr = addr,
					 .size = size,
					 .pin_addr = addr & ~65535ull,
					 .pin_size = (size + 65535) & ~65535ull,
					 .buffer_id = 100 + number,
					 .context = 0x5500aa00,
					 .region = number,
					 .device = device};
}

static void freed(struct made *made, struct pdn_trace_region what, uint64_t at)
{
	what.reason = PINDOWN_REASON_FREED;
	made_region(made, PDN_EV_INVALIDATE, &what, at + 100, at + 200);
	made_region(made, PDN_EV_UNPIN, &what, at + 300, at + 900);
	made_call(made, FREE, what.addr, 0, 0, 0, at, at + 1000);
}

static void first_thread(struct made *made, uint64_t t)
{
	struct pdn_trace_region a = region(1, 0x7f0000000000, 4 << 20, 0),
				b = region(2, 0x7f0000400200, 1000, 0),
				managed = region(0, 0x7e0000000000, 65536, 0), missed;

	made_call(made, ALLOC, a.addr, a.size, 0, 0, t + 1000, t + 2270);
	made_region(made, PDN_EV_PIN, &a, t + 3000, t + 13000);
	made_region(made, PDN_EV_HIT,
		    &(struct pdn_trace_region){.addr = a.addr + 4096, .size = 100, .region = 1},
		    t + 14000, t + 14000);
	made_call(made, ASYNC, b.addr, b.size, 0, 0xabc0, t + 15000, t + 15490);
	b.flags = PDN_TRACE_VOLATILE | PDN_TRACE_NO_SYNC | PDN_TRACE_FELL_BACK | PDN_TRACE_PCIE;
	made_region(made, PDN_EV_PIN, &b, t + 16000, t + 17000);
	managed.result = PINDOWN_ERR_MANAGED;
	managed.pin_size = managed.pin_addr = 0;
	made_region(made, PDN_EV_PIN, &managed, t + 18000, t + 18100);
	made_call(made, ALLOC, 0, 1ull << 40, 2, 0, t + 20000, t + 25000);
	made_error(made, "SYNC_MEMOPS was refused", 801, t + 26000);
	missed = b;
	missed.flags = PDN_TRACE_MISSED;
	missed.reason = PINDOWN_REASON_STALE;
	made_region(made, PDN_EV_INVALIDATE, &missed, t + 30000, t + 30000);
	made_region(made, PDN_EV_UNPIN, &missed, t + 30100, t + 30500);
	freed(made, a, t + 40000);
}

/*
 * Regions that are in use when they are freed: another thread unpins them much later, and one is
 * never unpinned.
 */
static void second_thread(struct made *made, uint64_t t)
{
	struct pdn_trace_region c = region(3, 0x7f1000000000, 64 << 20, 1),
				d = region(4, 0x7f1010000000, 2 << 20, 1),
				e = region(5, 0x7f1020000000, 8 << 20, 1);
	/* frames in libcudart, in the program, and in code without a file */
	static const uint64_t frames[] = {0x0003000000001111, 0x0001000000004321, 0x7f5500001234};

	made_module(made, 3, 0x7f5500000000, "/usr/lib/libcudart.so.12");
	made_module(made, 1, 0x550000000000, "/home/user/app");
	made_stack(made, 70000, frames, 3);
	made->stack = 70000;
	made_region(made, PDN_EV_PIN, &c, t + 50000, t + 60000);
	made->stack = 0;
	made_region(made, PDN_EV_PIN, &d, t + 61000, t + 62000);
	made_region(made, PDN_EV_MAP, &d, t + 62500, t + 62500);
	made_region(made, PDN_EV_PIN, &e, t + 63000, t + 64000);
	c.flags = d.flags = PDN_TRACE_IN_USE;
	c.reason = d.reason = PINDOWN_REASON_FREED;
	made_region(made, PDN_EV_INVALIDATE, &c, t + 70100, t + 70200);
	made->stack = 70000;
	made_call(made, FREE, c.addr, 0, 0, 0, t + 70000, t + 71000);
	made->stack = 0;
	made_region(made, PDN_EV_INVALIDATE, &d, t + 72100, t + 72200);
	made_call(made, FREE, d.addr, 0, 0, 0, t + 72000, t + 73000);
	made_lost(made, 7);
	made_thread(made, 4003);
	/* So much later that 32 bits of ticks can't tell. */
	made_clock(made, t + 3000000000);
	c.flags = 0;
	made_region(made, PDN_EV_UNPIN, &c, t + 3000000000, t + 3000000500);
	e.reason = PINDOWN_REASON_EVICTED;
	made_region(made, PDN_EV_EVICT, &e, t + 3000001000, t + 3000001000);
	made_region(made, PDN_EV_UNPIN, &e, t + 3000001100, t + 3000001500);
	/* The call began before the thread's first chunk was full. */
	made_call(made, 9, 0xf00, 0, -3, 0, t + 65000, t + 3000002000);
}

/*
 * What a later version may write: a record type, fields and a chunk that this version does not
 * know.
 */
static void from_the_future(struct made *made, uint64_t t)
{
	made_word(made, 3 | 77 << 8 | 0xffull << 40);
	made_word(made, 0x1111);
	made_word(made, 0x2222);
	made_first(made, 5, PDN_RECORD_CALL, FREE, t + 45000);
	made_word(made, 100 | (uint64_t)(1 | 0x400 | 0x8000) << 32);
	made_word(made, 0x7f0000000000);
	made_word(made, 0x3333);
	made_word(made, 0x4444);
}

void made_story(struct made *made, unsigned process)
{
	static const char calls[] = "cuMemAlloc_v2\0cuMemFree_v2\0cuMemAllocAsync";
	static const char command[] = "./app\0--size\0three words";
	static const char environment[] = "PINDOWN_TRACE=app.pdt";
	uint64_t t = BEGAN_NS + process * 20000;

	made_begin(made, 4001 + process * 10, t);
	made_info(made, PDN_INFO_VERSION, "0.1", 3);
	made_info(made, PDN_INFO_HOST, "node7", 5);
	made_info(made, PDN_INFO_PROGRAM, "/home/user/app", 14);
	made_info(made, 99, "what a later version adds", 25);
	made_info(made, PDN_INFO_DIRECTORY, "/home/user", 10);
	made_info(made, PDN_INFO_COMMAND, command, sizeof(command));
	made_info(made, PDN_INFO_ENVIRONMENT, environment, sizeof(environment));
	made_info(made, PDN_INFO_CALLS, calls, sizeof(calls));
	made_counters(made, 1000, 6, 12, 7);
	made_chunk(made, 0, 0, made->pid, t);
	first_thread(made, t);
	from_the_future(made, t);
	if (process == 0) {
		made_chunk(made, 1, 0, 4002, t + 50000);
		second_thread(made, t);
		made_chunk(made, 1, 1, 4003, t + 3100000000);
		made_call(made, ALLOC, 0x10000, 1, 0, 0, t + 3100000000, t + 3100000100);
		made_end(made, t + 3200000000);
	}
	new_chunk(made, 55);
	add_unit(made); /* a unit that was claimed and never used */
	header(made)->units++;
}

/*
 * Rank 3 pins most. Rank 5 frees memory in use; rank 7 can't pin twice; rank 9 holds a registration
 * for too long. Rank 11 does so, too, and is cured; rank 21's address escapes. The others pin 4 MiB
 * each.
 */
void made_rank(struct made *made, unsigned rank)
{
	struct pdn_trace_region a = region(1, 0x7f0000000000, rank == 3 ? 1 << 30 : 4 << 20, 0),
				refused = region(0, 0x7e0000000000, 65536, 0);
	char host[20], environment[100];
	int length;

	a.device = (int16_t)(rank % 4);
	made_begin(made, 10000 + rank, BEGAN_NS + rank * 1000);
	length = sprintf(host, "node%u", rank / 8);
	made_info(made, PDN_INFO_HOST, host, (size_t)length);
	made_info(made, PDN_INFO_COMMAND, "./solver\0--size\0large", 22);
	length = sprintf(environment, "PINDOWNBAR1=137438953472%cSLURM_PROCID=%u", 0, rank);
	made_info(made, PDN_INFO_ENVIRONMENT, environment, (size_t)length + 1);
	made_info(made, PDN_INFO_CALLS, "cuMemAlloc_v2\0cuMemFree_v2", 27);
	made_counters(made, 1000 + rank, 1, 0, 0);
	made_chunk(made, 0, 0, made->pid, BEGAN_NS);
	made_region(made, PDN_EV_PIN, &a, BEGAN_NS + 3000, BEGAN_NS + 13000);
	refused.result = PINDOWN_ERR_MANAGED;
	refused.pin_size = refused.pin_addr = 0;
	for (unsigned i = 0; rank == 7 && i < 2; i++)
		made_region(made, PDN_EV_PIN, &refused, BEGAN_NS + 14000, BEGAN_NS + 15000);
	a.reason = PINDOWN_REASON_FREED;
	if (rank == 5)
		a.flags = PDN_TRACE_IN_USE;
	if (rank == 9)
		made_note(made, PDN_EV_HELD,
			  &(struct pdn_trace_note){.addr = a.addr,
						   .size = a.size,
						   .extra = 1,
						   .pin_size = a.pin_size,
						   .region = 1,
						   .reason = PINDOWN_REASON_FREED,
						   .name = "ibv_mr"},
			  BEGAN_NS + 39000);
	if (rank == 11 || rank == 21)
		made_fate(made, rank == 11 ? 'c' : 'e', 9, BEGAN_NS + 30000);
	made_region(made, PDN_EV_INVALIDATE, &a, BEGAN_NS + 40100, BEGAN_NS + 40200);
	a.flags = 0;
	made_region(made, PDN_EV_UNPIN, &a, BEGAN_NS + 60000, BEGAN_NS + 61000);
	made_end(made, BEGAN_NS + 100000);
}

void made_good(struct made *made)
{
	struct pdn_trace_region a = region(1, 0x7f0000000000, 4 << 20, 0);

	made_begin(made, 77, BEGAN_NS);
	made_counters(made, 10, 1, 0, 0);
	made_chunk(made, 0, 0, 77, BEGAN_NS);
	made_region(made, PDN_EV_PIN, &a, BEGAN_NS + 3000, BEGAN_NS + 13000);
	made_region(made, PDN_EV_UNPIN, &a, BEGAN_NS + 40000, BEGAN_NS + 41000);
	made_end(made, BEGAN_NS + 50000);
}

void made_unfreed(struct made *made)
{
	static const char calls[] = "cuMemAlloc_v2\0cuMemFree_v2\0cuMemAllocAsync\0cuMemFreeAsync\0"
				    "cuMemMap\0cuMemUnmap\0cuCtxCreate_v2\0cuCtxDestroy_v2";
	enum { MAP = 4, UNMAP, CREATE, DESTROY };
	static const uint64_t frames[] = {0x0001000000004321, 0x0001000000000042};
	const uint64_t t = BEGAN_NS, addr = 0x7f0000000000, mib = 1 << 20;

	made_begin(made, 77, BEGAN_NS);
	made_info(made, PDN_INFO_COMMAND, "./leaky", 8);
	made_info(made, PDN_INFO_CALLS, calls, sizeof(calls));
	made_chunk(made, 0, 0, 77, BEGAN_NS);
	made_module(made, 1, 0x550000000000, "/home/user/leaky");
	made_stack(made, 1, frames, 2);
	made_call(made, CREATE, 0, 0, 0, 0xc0, t + 100, t + 200);
	made_call(made, ALLOC, addr, 8 * mib, 0, 0, t + 1000, t + 2000);
	/* A free and an allocation of the same address: the allocation begins first, ends last. */
	made_call(made, FREE, addr, 0, 0, 0, t + 10000, t + 12000);
	made_chunk(made, 1, 0, 78, BEGAN_NS);
	made->stack = 1;
	made_call(made, ALLOC, addr, 4 * mib, 0, 0, t + 9000, t + 13000);
	made->stack = 0;
	made_call(made, ASYNC, addr + 64 * mib, 2 * mib, 0, 0, t + 20000, t + 20100);
	made_call(made, 3, addr + 64 * mib, 0, 0, 0, t + 21000, t + 21100);
	/* Two mappings that one call unmaps, and one that stays. */
	made_call(made, MAP, addr + 128 * mib, 2 * mib, 0, 5, t + 30000, t + 30100);
	made_call(made, MAP, addr + 130 * mib, 2 * mib, 0, 6, t + 31000, t + 31100);
	made_call(made, MAP, addr + 132 * mib, 1 * mib, 0, 7, t + 32000, t + 32100);
	made_call(made, UNMAP, addr + 128 * mib, 4 * mib, 0, 0, t + 33000, t + 33100);
	/* Failed, and of memory that this process has not allocated. */
	made_call(made, ALLOC, addr + 256 * mib, 512 * mib, 2, 0, t + 34000, t + 34100);
	made_call(made, FREE, addr + 512 * mib, 0, 0, 0, t + 35000, t + 35100);
	made_call(made, DESTROY, 0, 0, 0, 0xc0, t + 40000, t + 41000);
	made_end(made, t + 50000);
}

void made_crossed(struct made *made)
{
	struct pdn_trace_region a = region(1, 0x7f0000000000, 4 << 20, 0),
				b = region(2, 0x7f0010000000, 2 << 20, 0);

	made_begin(made, 77, BEGAN_NS);
	made_chunk(made, 0, 0, 77, BEGAN_NS);
	made_region(made, PDN_EV_PIN, &a, BEGAN_NS + 3000, BEGAN_NS + 13000);
	made_chunk(made, 1, 0, 78, BEGAN_NS);
	made_region(made, PDN_EV_PIN, &b, BEGAN_NS + 4000, BEGAN_NS + 5000);
	made_end(made, BEGAN_NS + 50000);
}

void made_live(struct made *made, uint32_t pid)
{
	made_good(made);
	header(made)->pid = pid;
	header(made)->end = (struct pdn_trace_clock){0};
}

/*
 * All of them differ, so a reader that counts must tell them apart. One call of `early` began
 * before all other events.
 */
static void much(struct made *made, const char *what, uint32_t number, uint64_t ns)
{
	struct pdn_trace_region region = {.buffer_id = number, .pin_size = 65536};
	uint64_t frame = number;

	if (strcmp(what, "pins") == 0) {
		made_region(made, PDN_EV_PIN, &region, ns, ns);
	} else if (strcmp(what, "hits") == 0) {
		made_region(made, PDN_EV_HIT, &region, ns, ns);
	} else if (strcmp(what, "stacks") == 0) {
		made_stack(made, number, &frame, 1);
		made->stack = number;
		made_call(made, 0, 0, 0, 0, 0, ns, ns);
		made->stack = 0;
	} else {
		made_call(made, 0, number, 0, 0, 0, strcmp(what, "early") == 0 ? BEGAN_NS : ns, ns);
	}
}

void made_much(struct made *made, const char *what, size_t bytes)
{
	bool threads = strcmp(what, "threads") == 0;
	uint64_t ns = BEGAN_NS + 1000;
	uint32_t number = 0;

	made_begin(made, 77, BEGAN_NS);
	for (uint32_t chunk = 0; made->size < bytes; chunk++) {
		made_chunk(made, threads ? chunk : 0, threads ? 0 : chunk,
			   threads ? 77 + chunk : 77, ns);
		while (made->at + 100 < made->size)
			much(made, what, ++number, ++ns);
	}
	made_end(made, ns);
}

void made_write(const struct made *made, const char *path)
{
	static const unsigned char zeroes[4096];
	FILE *file = fopen(path, "w");

	/* Pages of zeroes become holes: a job's thousands of traces are nearly nothing else. */
	for (size_t at = 0; file && at < made->size; at += sizeof(zeroes))
		if (memcmp(made->bytes + at, zeroes, sizeof(zeroes)) != 0 &&
		    (fseek(file, (long)at, SEEK_SET) != 0 ||
		     fwrite(made->bytes + at, sizeof(zeroes), 1, file) != 1))
			give_up(path);
	if (!file || fflush(file) != 0 || ftruncate(fileno(file), (off_t)made->size) != 0 ||
	    fclose(file) != 0)
		give_up(path);
}

void made_free(struct made *made)
{
	free(made->bytes);
	memset(made, 0, sizeof(*made));
}
