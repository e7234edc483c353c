/* SPDX-License-Identifier: MIT */
/* Shortens a long failing sequence; and prints and reads sequences as text. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* ---- leaving out ---- */

static struct op *trial;
static uint64_t cause; /* a shortened sequence must fail for the same reason */

static bool fails(bool checks, const struct op *ops, uint64_t count)
{
	return !play_sequence(checks, ops, count) && this_log->cause == cause;
}

static bool fails_without(bool checks, const struct op *ops, uint64_t count, uint64_t from,
			  uint64_t n)
{
	memcpy(trial, ops, from * sizeof(*ops));
	memcpy(trial + from, ops + from + n, (count - from - n) * sizeof(*ops));
	return fails(checks, trial, count - n);
}

/*
 * Removes chunks of this size, from the end, as most late operations don't matter for later ones.
 */
static uint64_t leave_out(bool checks, struct op *ops, uint64_t count, uint64_t chunk)
{
	for (uint64_t end = count; end > 0;) {
		uint64_t n = end < chunk ? end : chunk, from = end - n;

		if (fails_without(checks, ops, count, from, n)) {
			memmove(ops + from, ops + from + n, (count - from - n) * sizeof(*ops));
			count -= n;
		}
		end = from;
	}
	return count;
}

/* ---- simplifying ---- */

static bool still_fails_with(bool checks, struct op *ops, uint64_t count, uint32_t *number,
			     uint32_t value)
{
	uint32_t before = *number;

	*number = value;
	if (fails(checks, ops, count))
		return true;
	*number = before;
	return false;
}

/* By halves: a smaller number is not always possible, but this takes few steps. */
static void reduce(bool checks, struct op *ops, uint64_t count, uint32_t *number)
{
	uint32_t too_small = 0;

	if (*number == 0 || still_fails_with(checks, ops, count, number, 0))
		return;
	while (*number - too_small > 1) {
		uint32_t middle = too_small + (*number - too_small) / 2;

		if (!still_fails_with(checks, ops, count, number, middle))
			too_small = middle;
	}
}

static void simplify(bool checks, struct op *ops, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		for (unsigned k = 0; k < MAX_NUMBERS && op_kinds[ops[i].code].numbers[k]; k++)
			reduce(checks, ops, count, &ops[i].n[k]);
}

uint64_t shrink(bool checks, struct op *ops, uint64_t count)
{
	uint64_t before;

	trial = malloc(count * sizeof(*trial));
	if (!trial)
		return count;
	cause = this_log->cause;
	for (uint64_t chunk = count / 2; chunk > 1; chunk /= 2)
		count = leave_out(checks, ops, count, chunk);
	do {
		before = count;
		count = leave_out(checks, ops, count, 1);
	} while (count < before);
	simplify(checks, ops, count);
	count = leave_out(checks, ops, count, 1);
	play_sequence(checks, ops, count); /* for its message */
	free(trial);
	return count;
}

/* ---- as text ---- */

static void print_op(FILE *file, const struct op *op)
{
	const struct op_kind *kind = &op_kinds[op->code];

	fputs(kind->name, file);
	for (unsigned k = 0; k < MAX_NUMBERS && kind->numbers[k]; k++)
		fprintf(file, " %s=%" PRIu32, kind->numbers[k], op->n[k]);
	fputc('\n', file);
}

void print_sequence(void *file, bool checks, const struct op *ops, uint64_t count)
{
	fprintf(file, "%s\n", checks ? "frees-are-not-watched" : "frees-are-watched");
	for (uint64_t i = 0; i < count; i++)
		print_op(file, &ops[i]);
}

static bool parse_op(char *line, struct op *op)
{
	char *save = NULL, *word = strtok_r(line, " \t\n", &save);
	unsigned k = 0;

	*op = (struct op){.code = 0};
	while (op->code < OP_CODES && strcmp(op_kinds[op->code].name, word) != 0)
		op->code++;
	if (op->code == OP_CODES)
		return false;
	while ((word = strtok_r(NULL, " \t\n", &save)) != NULL) {
		const char *equals = strchr(word, '=');

		if (k == MAX_NUMBERS || !op_kinds[op->code].numbers[k] || !equals)
			return false;
		op->n[k++] = (uint32_t)strtoul(equals + 1, NULL, 0);
	}
	/* The first of several numbers is a place. */
	return strcmp(op_kinds[op->code].numbers[0] ?: "", "place") != 0 || op->n[0] < PLACES;
}

uint64_t read_sequence(const char *name, bool *checks, struct op *ops, uint64_t max)
{
	FILE *file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
	char line[256];
	uint64_t count = 0;
	unsigned number = 0;

	if (!file) {
		fprintf(stderr, "model: %s: %s\n", name, strerror(errno));
		exit(2);
	}
	*checks = false;
	while (fgets(line, sizeof(line), file)) {
		number++;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (strncmp(line, "frees-are-", 10) == 0) {
			*checks = strncmp(line + 10, "not", 3) == 0;
			continue;
		}
		if (count == max || !parse_op(line, &ops[count++])) {
			fprintf(stderr, "model: %s: line %u is no operation\n", name, number);
			exit(2);
		}
	}
	if (file != stdin)
		fclose(file);
	return count;
}
