/* SPDX-License-Identifier: MIT */
/*
 * The table's own order. "check": what is wrong with it by itself, a line each. "rows": symbol,
 * base, version and flavour of each row. "harmless": the names that need not be watched.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum flavour { PD_ANY, PD_LEGACY, PD_PER_THREAD };

static const struct row {
	const char *symbol, *base;
	int version;
	enum flavour flavour;
	const char *group;
} rows[] = {
#define X(symbol, base, version, flavour, params, args, group, ...) \
	{#symbol, #base, version, flavour, #group},
#include "entrypoints.def"
#undef X
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct {
	const char *name, *reason;
} harmless[] = {
#define HARMLESS(name, reason) {#name, reason},
#include "harmless.def"
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

/* Is `ending` what follows the base: nothing, _v2 and up, then nothing or the stream's flavour? */
static bool is_suffix(const char *ending, enum flavour flavour)
{
	if (ending[0] == '_' && ending[1] == 'v') {
		if (ending[2] < '2' || ending[2] > '9')
			return false;
		ending += 3;
	}
	return !strcmp(ending, flavour == PD_PER_THREAD ? "_ptsz" : "");
}

/* The other flavour of a row: the same symbol with _ptsz. */
static bool has_pair(const struct row *row)
{
	char wanted[128];
	size_t length = strlen(row->symbol);

	if (row->flavour == PD_LEGACY)
		snprintf(wanted, sizeof(wanted), "%s_ptsz", row->symbol);
	else
		snprintf(wanted, sizeof(wanted), "%.*s", (int)length - 5, row->symbol);
	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(rows[i].symbol, wanted))
			return rows[i].flavour != PD_ANY && rows[i].flavour != row->flavour;
	return false;
}

static void check_row(const struct row *row)
{
	size_t length = strlen(row->base);

	if (strncmp(row->symbol, row->base, length) ||
	    !is_suffix(row->symbol + length, row->flavour))
		printf("%s is not %s with a suffix that fits its flavour\n", row->symbol,
		       row->base);
	if (row->flavour != PD_ANY && !has_pair(row))
		printf("%s has no row for the other meaning of stream 0\n", row->symbol);
	if (row->version < 2000 || row->version % 10 || row->version / 1000 > 20)
		printf("%s: %d is no CUDA version\n", row->symbol, row->version);
	if (strchr(row->base, '_'))
		printf("%s: a base with an underscore could not be told from a suffix\n",
		       row->base);
	for (const struct row *other = rows; other < row; other++)
		if (!strcmp(other->symbol, row->symbol))
			printf("%s is there twice\n", row->symbol);
	if (row > rows && compare(row - 1, row) >= 0)
		printf("%s is not in its place: rows are sorted by base, version, stream\n",
		       row->symbol);
}

static void check_harmless(size_t i)
{
	if (!*harmless[i].reason)
		printf("%s is called harmless without a reason\n", harmless[i].name);
	if (i && strcmp(harmless[i - 1].name, harmless[i].name) >= 0)
		printf("%s is not in its place in harmless.def\n", harmless[i].name);
	for (size_t j = 0; j < ROWS; j++)
		if (!strcmp(rows[j].base, harmless[i].name))
			printf("%s is watched and called harmless\n", harmless[i].name);
}

int main(int argc, char **argv)
{
	const char *wanted = argc > 1 ? argv[1] : "check";

	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(wanted, "check"))
			check_row(&rows[i]);
		else if (!strcmp(wanted, "rows"))
			printf("%s %s %d %s\n", rows[i].symbol, rows[i].base, rows[i].version,
			       rows[i].flavour == PD_PER_THREAD ? "_ptsz" : "");
	for (size_t i = 0; i < HARMLESS_ROWS; i++)
		if (!strcmp(wanted, "check"))
			check_harmless(i);
		else if (!strcmp(wanted, "harmless"))
			printf("%s\n", harmless[i].name);
	return 0;
}
