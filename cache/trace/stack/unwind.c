// SPDX-License-Identifier: MIT
/* Interpreting .eh_frame, without trusting it: the step from a stack frame to its caller's. */
#include "cache/trace/stack/unwind.h"

#include <stdbool.h>
#include <string.h>

#include "cache/base/memory/safe_read.h"

/* Registers by their numbers in DWARF. ON_TOP: the return address is just below the CFA, always. */
#if defined(__x86_64__)
enum { FRAME_POINTER = 6, STACK_POINTER = 7, RETURN_ADDRESS = 16, ON_TOP = 1 };
#else
enum { FRAME_POINTER = 29, STACK_POINTER = 31, RETURN_ADDRESS = 30, ON_TOP = 0 };
#endif
enum { MAX_ENTRY = 1 << 16, MAX_REMEMBERED = 8 }; /* bytes; states */

/* ---- reading through a buffer --------------------------------------------------------------- */

struct cursor {
	uint64_t at, end; /* in the process */
	uint64_t begin;	  /* address of the buffer's content */
	unsigned held;
	bool bad; /* beyond the end, or not readable: every further byte is 0 */
	unsigned char buffer[256];
};

static uint8_t byte(struct cursor *cursor)
{
	uint64_t left = cursor->end - cursor->at;

	if (cursor->at >= cursor->end) {
		cursor->bad = true;
	} else if (!cursor->bad && cursor->at - cursor->begin >= cursor->held) {
		cursor->begin = cursor->at;
		cursor->held =
			left < sizeof(cursor->buffer) ? (unsigned)left : sizeof(cursor->buffer);
		cursor->bad = !pdn_safe_read(cursor->buffer, cursor->at, cursor->held);
	}
	return cursor->bad ? 0 : cursor->buffer[cursor->at++ - cursor->begin];
}

static uint64_t number(struct cursor *cursor, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)byte(cursor) << (8 * i);
	return value;
}

/* A number in LEB128. */
static uint64_t leb(struct cursor *cursor, bool is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t next;

	do {
		next = byte(cursor); /* 0, which is the end, if the cursor is bad */
		if (shift < 64)
			value |= (uint64_t)(next & 0x7f) << shift;
		shift += 7;
	} while (next & 0x80);
	if (is_signed && shift < 64 && next & 0x40)
		value |= ~0ull << shift;
	return value;
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
	uint64_t base = encoding & 0x70 ? cursor->at : 0;
	unsigned form = encoding & 0x0f;

	if (encoding & 0x60)
		cursor->bad = true;
	if (form == 0x00 || form == 0x04 || form == 0x0c) /* absptr, udata8, sdata8 */
		return base + number(cursor, 8);
	if (form == 0x03) /* udata4 */
		return base + number(cursor, 4);
	if (form == 0x0b) /* sdata4 */
		return base + (uint64_t)(int64_t)(int32_t)number(cursor, 4);
	cursor->bad = true;
	return 0;
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
	uint64_t entry = 0;

	if (bytes < sizeof(head) || !pdn_safe_read(&head, index, sizeof(head)))
		return 0;
	/* The only form that linkers write: 4 bytes each, relative to the index itself. */
	if (head.version != 1 || (head.frame_encoding & 0x0f) != 0x0b ||
	    head.count_encoding != 0x03 || head.table_encoding != 0x3b)
		return 0;
	high = head.count;
	if (high > (bytes - sizeof(head)) / sizeof(pair))
		return 0;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (!pdn_safe_read(pair, index + sizeof(head) + middle * sizeof(pair),
				   sizeof(pair)))
			return 0;
		if (index + (uint64_t)(int64_t)pair[0] <= pc) {
			entry = index + (uint64_t)(int64_t)pair[1];
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return entry;
}

/* An entry of .eh_frame begins with its length. False: it is none that can be read. */
static bool open_entry(struct cursor *cursor, uint64_t at)
{
	uint32_t length;

	*cursor = (struct cursor){.at = at, .end = at + 4};
	length = (uint32_t)number(cursor, 4);
	cursor->end = cursor->at + length;
	return !cursor->bad && length && length < MAX_ENTRY;
}

/* A CIE: what the entries of several functions have in common. */
struct common {
	uint64_t code_unit;
	uint64_t data_unit; /* negative: it is multiplied modulo 2^64 */
	unsigned encoding;  /* of addresses */
	bool has_length;    /* of the augmentation */
	struct cursor program;
};

static bool read_augmentation(struct common *common, struct cursor *cursor, const char *letters)
{
	uint64_t length, end;

	if (letters[0] != 'z')
		return !letters[0];
	common->has_length = true;
	length = leb(cursor, false);
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
		else if (*letters != 'B' && *letters != 'G') /* arm64: signatures; tagged memory */
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
	common->code_unit = leb(cursor, false);
	common->data_unit = leb(cursor, true);
	return_register = version == 1 ? byte(cursor) : leb(cursor, false);
	if (cursor->bad || (version != 1 && version != 3 && version != 4) ||
	    return_register != RETURN_ADDRESS)
		return false;
	return read_augmentation(common, cursor, letters);
}

/* ---- running the entry's program ------------------------------------------------------------ */

enum { POINTER, RETURN, OTHERS, REGISTERS };

struct state {
	uint64_t base; /* the CFA is this register ... */
	int64_t offset;
	bool computed; /* ... or needs an expression */
	struct {
		char how;   /* as in the table below; 0: unchanged */
		int64_t at; /* where it is saved, as an offset from the CFA */
	} of[REGISTERS];
};

struct machine {
	struct common *common;
	struct state now, first, remembered[MAX_REMEMBERED];
	unsigned depth;
	uint64_t location, pc;
	bool bad;
};

/*
 * The instructions, by their codes; the last ones have an operand in their lower 6 bits. First what
 * each does. +: the location advances. s, =, x, e, r: the register is saved at an offset, is
 * unchanged, has no value, is elsewhere, is as it was at first. d, b, o, c: the CFA gets a register
 * and an offset, only the one or the other, is computed. [, ]: the state is remembered, restored.
 * n: nothing that matters here.
 *
 * Then the operands:
 *	l, L	the lower 6 bits of the instruction; these times the code unit
 *	u	an unsigned LEB128
 *	U, S	an unsigned LEB128, a signed one, times the data unit
 *	1, 2, 4	a number of so many bytes, times the code unit
 *	B	a length, and a block of so many bytes, which is skipped
 */
static const char instructions[64 + 4][4] = {
	[0x00] = "n",	 [0x02] = "+1",	 [0x03] = "+2",	 [0x04] = "+4",	  [0x05] = "suU",
	[0x06] = "ru",	 [0x07] = "xu",	 [0x08] = "=u",	 [0x09] = "euu",  [0x0a] = "[",
	[0x0b] = "]",	 [0x0c] = "duu", [0x0d] = "bu",	 [0x0e] = "ou",	  [0x0f] = "cB",
	[0x10] = "euB",	 [0x11] = "suS", [0x12] = "duS", [0x13] = "oS",	  [0x14] = "euU",
	[0x15] = "euS",	 [0x16] = "euB", [0x2e] = "nu",	 [64 + 1] = "+L", [64 + 2] = "slU",
	[64 + 3] = "rl",
#if defined(__aarch64__)
	[0x2d] = "n", /* the return address has a signature, which is cut off */
#endif
};

static uint64_t operand(const struct common *common, struct cursor *cursor, char form, unsigned low)
{
	switch (form) {
	case 'l':
		return low;
	case 'L':
		return low * common->code_unit;
	case 'u':
		return leb(cursor, false);
	case 'U':
		return leb(cursor, false) * common->data_unit;
	case 'S':
		return leb(cursor, true) * common->data_unit;
	case 'B':
		skip(cursor, leb(cursor, false));
		return 0;
	default:
		return number(cursor, (unsigned)(form - '0')) * common->code_unit;
	}
}

static void execute(struct machine *machine, char what, uint64_t a, uint64_t b)
{
	unsigned which = a == FRAME_POINTER ? POINTER : a == RETURN_ADDRESS ? RETURN : OTHERS;
	struct state *now = &machine->now;

	switch (what) {
	case '+':
		machine->location += a;
		break;
	case '[':
		machine->bad = machine->depth == MAX_REMEMBERED;
		if (!machine->bad)
			machine->remembered[machine->depth++] = *now;
		break;
	case ']':
		machine->bad = machine->depth == 0;
		if (!machine->bad)
			*now = machine->remembered[--machine->depth];
		break;
	case 'd':
		now->offset = (int64_t)b;
		now->computed = false;
		now->base = a;
		break;
	case 'b':
		now->base = a;
		break;
	case 'o':
		now->offset = (int64_t)a;
		break;
	case 'c':
		now->computed = true;
		break;
	case 'r':
		now->of[which] = machine->first.of[which];
		break;
	case 'n':
	case '\0':
		break;
	default:
		now->of[which].how = what;
		now->of[which].at = (int64_t)b;
	}
}

/* Runs the instructions that apply to addresses up to the pc. */
static __attribute__((noinline)) void run(struct machine *machine, struct cursor *cursor)
{
	while (cursor->at < cursor->end && !cursor->bad && !machine->bad) {
		unsigned code = byte(cursor), low = code & 0x3f;
		const char *what = instructions[code >> 6 ? 64 + (code >> 6) : code];
		uint64_t value[2] = {0, 0};

		machine->bad = !what[0];
		for (unsigned i = 0; what[0] && what[i + 1]; i++)
			value[i] = operand(machine->common, cursor, what[i + 1], low);
		execute(machine, what[0], value[0], value[1]);
		if (machine->location > machine->pc)
			return; /* the instruction was an advance, and has changed no rule */
	}
	machine->bad = machine->bad || cursor->bad;
}

/* A place in the frame: below the CFA, in whole words, and not too far. */
static bool is_in_frame(int64_t at)
{
	return at < 0 && at % 8 == 0 && at >= -PDN_MAX_FRAME;
}

static struct pdn_rule rule_of(const struct machine *machine)
{
	const struct pdn_rule unknown = {.step = PDN_STEP_POINTER};
	const struct state *state = &machine->now;
	int64_t cfa = state->offset, pointer = state->of[POINTER].at,
		returns = state->of[RETURN].at;
	struct pdn_rule rule = {.step = PDN_STEP_STACK};

	if (machine->bad)
		return unknown;
	if (state->of[RETURN].how == 'x')
		return (struct pdn_rule){.step = PDN_STEP_END};
	if (state->computed || state->of[RETURN].how != 's' || !is_in_frame(returns) ||
	    (ON_TOP && returns != -8) || cfa < -PDN_MAX_FRAME || cfa > PDN_MAX_FRAME)
		return unknown;
	if (state->base == FRAME_POINTER)
		rule.step = PDN_STEP_FRAME;
	else if (state->base != STACK_POINTER)
		return unknown;
	if (state->of[POINTER].how == 's' && !is_in_frame(pointer))
		return unknown;
	rule.saved = state->of[POINTER].how == 's' ? pointer / 8 : 0;
	rule.returns = returns / 8;
	rule.cfa = cfa;
	return rule;
}

struct pdn_rule pdn_unwind_rule(uint64_t index, uint64_t index_bytes, uint64_t pc)
{
	const struct pdn_rule unknown = {.step = PDN_STEP_POINTER};
	uint64_t at = find_entry(index, index_bytes, pc), begin, length, offset;
	struct machine machine = {.pc = pc};
	struct cursor function;
	struct common common;

	if (!at || !open_entry(&function, at) || !(offset = number(&function, 4)) ||
	    !read_common(&common, at + 4 - offset))
		return unknown;
	begin = address(&function, common.encoding);
	length = address(&function, common.encoding & 0x0f);
	if (common.has_length)
		skip(&function, leb(&function, false));
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
