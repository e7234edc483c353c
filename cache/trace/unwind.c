// SPDX-License-Identifier: MIT
/* Interpreting .eh_frame, without trusting it: the step from a stack frame to its caller's. */
#include "cache/trace/unwind.h"

#include <stdbool.h>
#include <string.h>

#include "cache/base/safe_read.h"

#if defined(__x86_64__) || defined(__aarch64__)

/* Registers by their numbers in DWARF. */
#if defined(__x86_64__)
enum { FRAME_POINTER = 6, STACK_POINTER = 7, RETURN_ADDRESS = 16 };
#else
enum { FRAME_POINTER = 29, STACK_POINTER = 31, RETURN_ADDRESS = 30 };
#endif
enum { MAX_INSTRUCTIONS = 20000, MAX_REMEMBERED = 8 };

/* ---- reading through a buffer --------------------------------------------------------------- */

struct cursor {
	uint64_t at, end; /* in the process */
	uint64_t begin;	  /* address of the buffer's content */
	unsigned held;
	bool bad; /* beyond the end, or not readable: every further byte is 0 */
	unsigned char buffer[256];
};

static void fill(struct cursor *cursor)
{
	uint64_t left = cursor->end - cursor->at;

	cursor->begin = cursor->at;
	cursor->held = left < sizeof(cursor->buffer) ? (unsigned)left : sizeof(cursor->buffer);
	if (!cursor->held || !pdn_safe_read(cursor->buffer, cursor->at, cursor->held)) {
		cursor->held = 0;
		cursor->bad = true;
	}
}

static uint8_t byte(struct cursor *cursor)
{
	if (cursor->at >= cursor->end)
		cursor->bad = true;
	if (cursor->bad)
		return 0;
	if (cursor->at < cursor->begin || cursor->at >= cursor->begin + cursor->held)
		fill(cursor);
	if (cursor->bad)
		return 0;
	return cursor->buffer[cursor->at++ - cursor->begin];
}

static uint64_t number(struct cursor *cursor, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)byte(cursor) << (8 * i);
	return value;
}

static uint64_t uleb(struct cursor *cursor)
{
	uint64_t value = 0;

	for (unsigned shift = 0; !cursor->bad; shift += 7) {
		uint8_t next = byte(cursor);

		if (shift < 64)
			value |= (uint64_t)(next & 0x7f) << shift;
		if (!(next & 0x80))
			break;
	}
	return value;
}

static int64_t sleb(struct cursor *cursor)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t next = 0;

	while (!cursor->bad) {
		next = byte(cursor);
		if (shift < 64)
			value |= (uint64_t)(next & 0x7f) << shift;
		shift += 7;
		if (!(next & 0x80))
			break;
	}
	if (shift < 64 && next & 0x40)
		value |= ~0ull << shift;
	return (int64_t)value;
}

static void skip(struct cursor *cursor, uint64_t bytes)
{
	if (bytes > cursor->end - cursor->at)
		cursor->bad = true;
	else
		cursor->at += bytes;
}

/* An address as .eh_frame encodes it: absolute, or relative to its own place. */
static uint64_t address(struct cursor *cursor, unsigned encoding)
{
	uint64_t base = (encoding & 0x70) == 0x10 ? cursor->at : 0, value;

	switch (encoding & 0x0f) {
	case 0x00: /* absptr */
	case 0x04: /* udata8 */
	case 0x0c: /* sdata8 */
		value = number(cursor, 8);
		break;
	case 0x03: /* udata4 */
		value = number(cursor, 4);
		break;
	case 0x0b: /* sdata4 */
		value = (uint64_t)(int64_t)(int32_t)number(cursor, 4);
		break;
	default:
		cursor->bad = true;
		return 0;
	}
	if ((encoding & 0x70) != 0 && (encoding & 0x70) != 0x10)
		cursor->bad = true;
	return base + value;
}

/* ---- finding the entry of a function -------------------------------------------------------- */

/* The index is a sorted table of pairs: a function's begin, and its entry (FDE) in .eh_frame. */
static uint64_t find_entry(uint64_t index, uint64_t bytes, uint64_t pc)
{
	struct {
		uint8_t version, frame_encoding, count_encoding, table_encoding;
		int32_t frame;
		uint32_t count;
	} head;
	int32_t pair[2];
	uint32_t low = 0, high;

	if (bytes < sizeof(head) || !pdn_safe_read(&head, index, sizeof(head)))
		return 0;
	/* The only form that linkers write: 4 bytes each, relative to the index itself. */
	if (head.version != 1 || (head.frame_encoding & 0x0f) != 0x0b ||
	    head.count_encoding != 0x03 || head.table_encoding != 0x3b)
		return 0;
	high = head.count;
	if (!high || high > (bytes - sizeof(head)) / sizeof(pair))
		return 0;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (!pdn_safe_read(pair, index + sizeof(head) + middle * sizeof(pair),
				   sizeof(pair)))
			return 0;
		if (index + (uint64_t)(int64_t)pair[0] <= pc)
			low = middle;
		else
			high = middle;
	}
	if (!pdn_safe_read(pair, index + sizeof(head) + low * sizeof(pair), sizeof(pair)) ||
	    index + (uint64_t)(int64_t)pair[0] > pc)
		return 0;
	return index + (uint64_t)(int64_t)pair[1];
}

/* An entry of .eh_frame begins with its length. False: it is none that can be read. */
static bool open_entry(struct cursor *cursor, uint64_t at)
{
	uint32_t length;

	*cursor = (struct cursor){.at = at, .end = at + 4};
	length = (uint32_t)number(cursor, 4);
	cursor->end = cursor->at + length;
	return !cursor->bad && length && length < 1u << 24;
}

/* A CIE: what the entries of several functions have in common. */
struct common {
	uint64_t code_unit;
	int64_t data_unit;
	unsigned encoding; /* of addresses */
	bool has_length;   /* of the augmentation */
	struct cursor program;
};

static bool read_augmentation(struct common *common, struct cursor *cursor, const char *letters)
{
	uint64_t length, end;

	if (!letters[0])
		return true;
	if (letters[0] != 'z')
		return false;
	common->has_length = true;
	length = uleb(cursor);
	end = cursor->at + length;
	for (letters++; *letters; letters++) {
		if (*letters == 'R')
			common->encoding = byte(cursor);
		else if (*letters == 'L')
			byte(cursor);
		else if (*letters == 'P')
			address(cursor, byte(cursor) & 0x1fu);
		else if (*letters == 'S')
			return false; /* the frame of a signal: its registers are saved elsewhere */
#if defined(__aarch64__)
		else if (*letters == 'B' || *letters == 'G')
			continue; /* the key of signatures; tagged memory */
#endif
		else
			break;
	}
	if (cursor->bad || end < cursor->at || end > cursor->end)
		return false;
	cursor->at = end;
	return true;
}

static bool read_common(struct common *common, uint64_t at)
{
	struct cursor *cursor = &common->program;
	unsigned version, used = 0;
	uint64_t return_register;
	char letters[8] = "";

	memset(common, 0, sizeof(*common));
	if (!open_entry(cursor, at) || number(cursor, 4) != 0)
		return false;
	version = byte(cursor);
	for (char letter; (letter = (char)byte(cursor)) && used < sizeof(letters) - 1;)
		letters[used++] = letter;
	if (version == 4)
		skip(cursor, 2);
	common->code_unit = uleb(cursor);
	common->data_unit = sleb(cursor);
	return_register = version == 1 ? byte(cursor) : uleb(cursor);
	if (cursor->bad || (version != 1 && version != 3 && version != 4) ||
	    return_register != RETURN_ADDRESS)
		return false;
	return read_augmentation(common, cursor, letters);
}

/* ---- running the entry's program ------------------------------------------------------------ */

enum where { UNCHANGED, SAVED, ELSEWHERE, UNDEFINED };

struct state {
	uint64_t base; /* the CFA is this register ... */
	int64_t offset;
	bool computed; /* ... or needs an expression */
	enum where frame_pointer, return_address;
	int64_t frame_at, return_at; /* where they are saved, as offsets from the CFA */
};

struct machine {
	struct common *common;
	struct state now, first, remembered[MAX_REMEMBERED];
	unsigned depth;
	uint64_t location, pc;
	bool bad;
};

static void saved_at(struct state *state, uint64_t which, enum where where, int64_t at)
{
	if (which == FRAME_POINTER) {
		state->frame_pointer = where;
		state->frame_at = at;
	} else if (which == RETURN_ADDRESS) {
		state->return_address = where;
		state->return_at = at;
	}
}

static void restore(struct machine *machine, uint64_t which)
{
	const struct state *first = &machine->first;

	if (which == FRAME_POINTER)
		saved_at(&machine->now, which, first->frame_pointer, first->frame_at);
	else if (which == RETURN_ADDRESS)
		saved_at(&machine->now, which, first->return_address, first->return_at);
}

static void run_saving(struct machine *machine, struct cursor *cursor, unsigned code)
{
	int64_t unit = machine->common->data_unit;
	struct state *now = &machine->now;
	uint64_t which;

	switch (code) {
	case 0x05: /* offset_extended */
		which = uleb(cursor);
		saved_at(now, which, SAVED, (int64_t)uleb(cursor) * unit);
		break;
	case 0x11: /* offset_extended_sf */
		which = uleb(cursor);
		saved_at(now, which, SAVED, sleb(cursor) * unit);
		break;
	case 0x06: /* restore_extended */
		restore(machine, uleb(cursor));
		break;
	case 0x07: /* undefined */
		saved_at(now, uleb(cursor), UNDEFINED, 0);
		break;
	case 0x08: /* same_value */
		saved_at(now, uleb(cursor), UNCHANGED, 0);
		break;
	case 0x09: /* register */
	case 0x14: /* val_offset */
		which = uleb(cursor);
		uleb(cursor);
		saved_at(now, which, ELSEWHERE, 0);
		break;
	case 0x15: /* val_offset_sf */
		which = uleb(cursor);
		sleb(cursor);
		saved_at(now, which, ELSEWHERE, 0);
		break;
	case 0x10: /* expression */
	case 0x16: /* val_expression */
		which = uleb(cursor);
		skip(cursor, uleb(cursor));
		saved_at(now, which, ELSEWHERE, 0);
		break;
	default:
		machine->bad = true;
	}
}

static void run_extended(struct machine *machine, struct cursor *cursor, unsigned code)
{
	uint64_t unit = machine->common->code_unit;
	struct state *now = &machine->now;

	switch (code) {
	case 0x00: /* nop */
#if defined(__aarch64__)
	case 0x2d: /* negate_ra_state: the return address has a signature, which is cut off */
#endif
		break;
	case 0x02: /* advance_loc1, 2, 4 */
	case 0x03:
	case 0x04:
		machine->location += number(cursor, 1u << (code - 2)) * unit;
		break;
	case 0x0a: /* remember_state */
		if (machine->depth == MAX_REMEMBERED)
			machine->bad = true;
		else
			machine->remembered[machine->depth++] = *now;
		break;
	case 0x0b: /* restore_state */
		if (!machine->depth)
			machine->bad = true;
		else
			*now = machine->remembered[--machine->depth];
		break;
	case 0x0c: /* def_cfa */
		now->base = uleb(cursor);
		now->offset = (int64_t)uleb(cursor);
		now->computed = false;
		break;
	case 0x12: /* def_cfa_sf */
		now->base = uleb(cursor);
		now->offset = sleb(cursor) * machine->common->data_unit;
		now->computed = false;
		break;
	case 0x0d: /* def_cfa_register */
		now->base = uleb(cursor);
		break;
	case 0x0e: /* def_cfa_offset */
		now->offset = (int64_t)uleb(cursor);
		break;
	case 0x13: /* def_cfa_offset_sf */
		now->offset = sleb(cursor) * machine->common->data_unit;
		break;
	case 0x0f: /* def_cfa_expression */
		skip(cursor, uleb(cursor));
		now->computed = true;
		break;
	case 0x2e: /* GNU_args_size */
		uleb(cursor);
		break;
	default:
		run_saving(machine, cursor, code);
	}
}

/* Runs the instructions that apply to addresses up to the pc. */
static __attribute__((noinline)) void run(struct machine *machine, struct cursor *cursor)
{
	for (unsigned i = 0; cursor->at < cursor->end && !cursor->bad && !machine->bad; i++) {
		uint8_t code = byte(cursor);
		unsigned low = code & 0x3f;

		if (code >> 6 == 1)
			machine->location += low * machine->common->code_unit;
		else if (code >> 6 == 2)
			saved_at(&machine->now, low, SAVED,
				 (int64_t)uleb(cursor) * machine->common->data_unit);
		else if (code >> 6 == 3)
			restore(machine, low);
		else
			run_extended(machine, cursor, low);
		if (machine->location > machine->pc)
			return; /* the instruction was an advance, and has changed no rule */
		if (i == MAX_INSTRUCTIONS)
			machine->bad = true;
	}
	machine->bad = machine->bad || cursor->bad;
}

static bool fits(int64_t offset)
{
	return offset >= INT32_MIN && offset <= INT32_MAX;
}

/* A place in the frame: below the CFA, in whole words, and not too far. */
static bool is_in_frame(int64_t at)
{
	return at < 0 && at % 8 == 0 && at >= -(1 << 20);
}

static bool returns_from_frame(const struct state *state)
{
#if defined(__aarch64__)
	return is_in_frame(state->return_at);
#else
	return state->return_at == -8;
#endif
}

static struct pdn_rule rule_of(const struct machine *machine)
{
	const struct pdn_rule unknown = {.step = PDN_STEP_POINTER};
	const struct state *state = &machine->now;
	struct pdn_rule rule = {.step = PDN_STEP_STACK, .cfa = (int32_t)state->offset};

	if (machine->bad)
		return unknown;
	if (state->return_address == UNDEFINED)
		return (struct pdn_rule){.step = PDN_STEP_END};
	if (state->computed || state->return_address != SAVED || !returns_from_frame(state) ||
	    !fits(state->offset))
		return unknown;
	if (state->base == FRAME_POINTER)
		rule.step = PDN_STEP_FRAME;
	else if (state->base != STACK_POINTER)
		return unknown;
	if (state->frame_pointer == SAVED) {
		if (!is_in_frame(state->frame_at))
			return unknown;
		rule.saved = (int32_t)(state->frame_at / 8);
	}
#if defined(__aarch64__)
	rule.returns = (int32_t)(state->return_at / 8);
#endif
	return rule;
}

struct pdn_rule pdn_unwind_rule(uint64_t index, uint64_t index_bytes, uint64_t pc)
{
	const struct pdn_rule unknown = {.step = PDN_STEP_POINTER};
	uint64_t at = find_entry(index, index_bytes, pc), begin, length, offset;
	struct machine machine = {.pc = pc};
	struct cursor function;
	struct common common;

	if (!at || !open_entry(&function, at))
		return unknown;
	offset = number(&function, 4);
	if (!offset || !read_common(&common, at + 4 - offset))
		return unknown;
	begin = address(&function, common.encoding);
	length = address(&function, common.encoding & 0x0f);
	if (common.has_length)
		skip(&function, uleb(&function));
	if (function.bad || pc < begin || pc - begin >= length)
		return unknown;
	machine.common = &common;
	machine.location = begin;
	run(&machine, &common.program);
	machine.first = machine.now;
	machine.location = begin;
	run(&machine, &function);
	return rule_of(&machine);
}

#else

/* Compilers for these processors keep frame pointers by default. */
struct pdn_rule pdn_unwind_rule(uint64_t index, uint64_t index_bytes, uint64_t pc)
{
	(void)index, (void)index_bytes, (void)pc;
	return (struct pdn_rule){.step = PDN_STEP_POINTER};
}

#endif
