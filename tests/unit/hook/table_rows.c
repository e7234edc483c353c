/* SPDX-License-Identifier: MIT */
/*
 * Prints the table of watched calls, or checks it by itself. "check": a line for each fault.
 * "rows": symbol, base, version and the flavour's suffix of each row. "harmless": the names that
 * need not be watched.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum flavour { PDN_ANY, PDN_LEGACY, PDN_PER_THREAD };

static const struct row {
	const char *symbol, *base;
	int version;
	enum flavour flavour;
	bool traced; /* a row of traced.def */
	const char *before, *after;
} rows[] = {
#define X(symbol, base, version, flavour, params, args, group, before, after, ...) \
	{#symbol, #base, version, flavour, false, #before, #after},
#define TRACED(symbol, base, version, flavour, ...) \
	{#symbol, #base, version, flavour, true, "NONE", "NONE"},
#include "hook/cuda/entrypoints.def"
#undef TRACED
#undef X
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct {
	const char *reason, *names; /* "one, two, three" */
} harmless[] = {
#define HARMLESS(reason, ...) {reason, #__VA_ARGS__},
#include "hook/cuda/harmless.def"
};
#define HARMLESS_ROWS (sizeof(harmless) / sizeof(harmless[0]))

static int compare(const struct row *a, const struct row *b)
{
	int by_base = strcmp(a->base, b->base);

	if (by_base)
		return by_base;
	return a->version != b->version ? a->version - b->version
					: (int)a->flavour - (int)b->flavour;
}

/*
 * Is `ending` what may follow the base: nothing or _v2 and up, then nothing or the flavour of the
 * stream?
 */
static bool is_suffix(const char *ending, enum flavour flavour)
{
	if (ending[0] == '_' && ending[1] == 'v') {
		if (ending[2] < '2' || ending[2] > '9')
			return false;
		ending += 3;
	}
	return flavour == PDN_PER_THREAD ? !strcmp(ending, "_ptsz") || !strcmp(ending, "_ptds")
					 : !*ending;
}

/* _ptsz: the call has a stream among its parameters. _ptds: it has none, and uses stream 0. */
static const char *flavour_suffix(const struct row *row)
{
	return row->flavour == PDN_PER_THREAD ? row->symbol + strlen(row->symbol) - 5 : "";
}

/* Does the row have its other flavour: the same symbol with such a suffix, or without? */
static bool has_pair(const struct row *row)
{
	size_t length = strlen(row->symbol) - strlen(flavour_suffix(row));

	for (const struct row *other = rows; other < rows + ROWS; other++)
		if (other->flavour != PDN_ANY && other->flavour != row->flavour &&
		    strlen(other->symbol) - strlen(flavour_suffix(other)) == length &&
		    !strncmp(other->symbol, row->symbol, length))
			return true;
	return false;
}

static void check_row(const struct row *row)
{
	size_t length = strlen(row->base);

	if (strncmp(row->symbol, row->base, length) ||
	    !is_suffix(row->symbol + length, row->flavour))
		printf("%s is not %s with a suffix that fits its flavour\n", row->symbol,
		       row->base);
	if (row->flavour != PDN_ANY && !has_pair(row))
		printf("%s has no row for the other meaning of stream 0\n", row->symbol);
	if (row->version < 2000 || row->version % 10 || row->version / 1000 > 20)
		printf("%s: %d is no CUDA version\n", row->symbol, row->version);
	if (strchr(row->base, '_'))
		printf("%s: a base with an underscore could not be told from a suffix\n",
		       row->base);
	for (const struct row *other = rows; other < row; other++) {
		if (!strcmp(other->symbol, row->symbol))
			printf("%s is there twice\n", row->symbol);
		if (!strcmp(other->base, row->base) && other->traced != row->traced)
			printf("%s: the other rows of its base are in the other table\n",
			       row->symbol);
	}
	if (!row->traced && !strcmp(row->before, "NONE") && !strcmp(row->after, "NONE"))
		printf("%s has no action: its row belongs into hook/cuda/traced.def\n",
		       row->symbol);
	if (row > rows && row[-1].traced == row->traced && compare(row - 1, row) >= 0)
		printf("%s is not in its place: rows are sorted by base, version, stream\n",
		       row->symbol);
}

/* Copies the next name of a list, and moves on behind it; false at the list's end. */
static bool next_name(const char **names, char name[128])
{
	size_t length;

	*names += strspn(*names, ", ");
	length = strcspn(*names, ", ");
	snprintf(name, 128, "%.*s", (int)length, *names);
	*names += length;
	return length != 0;
}

static unsigned times_harmless(const char *wanted)
{
	unsigned times = 0;
	char name[128];

	for (size_t i = 0; i < HARMLESS_ROWS; i++)
		for (const char *names = harmless[i].names; next_name(&names, name);)
			times += !strcmp(name, wanted);
	return times;
}

static void check_harmless(size_t i)
{
	char name[128], before[128] = "";

	for (const char *names = harmless[i].names; next_name(&names, name);) {
		if (!*harmless[i].reason)
			printf("%s is called harmless without a reason\n", name);
		if (strcmp(before, name) >= 0)
			printf("%s is not in its place in hook/cuda/harmless.def\n", name);
		if (times_harmless(name) != 1)
			printf("%s is twice in hook/cuda/harmless.def\n", name);
		for (size_t j = 0; j < ROWS; j++)
			if (!strcmp(rows[j].base, name))
				printf("%s is watched and called harmless\n", name);
		memcpy(before, name, sizeof(name));
	}
}

static void print_harmless(size_t i)
{
	char name[128];

	for (const char *names = harmless[i].names; next_name(&names, name);)
		printf("%s\n", name);
}

int main(int argc, char **argv)
{
	const char *wanted = argc > 1 ? argv[1] : "check";

	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(wanted, "check"))
			check_row(&rows[i]);
		else if (!strcmp(wanted, "rows"))
			printf("%s %s %d %s\n", rows[i].symbol, rows[i].base, rows[i].version,
			       flavour_suffix(&rows[i]));
	for (size_t i = 0; i < HARMLESS_ROWS; i++)
		if (!strcmp(wanted, "check"))
			check_harmless(i);
		else if (!strcmp(wanted, "harmless"))
			print_harmless(i);
	return 0;
}
