/* SPDX-License-Identifier: MIT */
/* Finds rows of the table by name, and the real functions and wrappers of a row. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "cache/base/config.h"
#include "hook/hook.h"
#include "cache/base/log.h"
#include "hook/loader/watched.h"
#include "hook/verbs/verbs.h"

const char *const pd_call_symbol[PD_CALLS + PD_VERBS] = {
#define X(symbol, ...) #symbol,
#include "hook/cuda/entrypoints.def"
#include "hook/verbs/verbs.def"
#undef X
};

/* A symbol begins with its base, so the length of the base is enough. */
static const struct {
	uint16_t version;
	uint8_t flavour, base_length;
} asked_as[PD_CALLS] = {
#define X(symbol, base, version, flavour, ...) {version, flavour, sizeof(#base) - 1},
#include "hook/cuda/entrypoints.def"
#undef X
};

/* The rows that are not only traced; the others follow. Both parts are sorted by base. */
enum {
	ACTING = 0
#define X(...) +1
#define TRACED(...)
#include "hook/cuda/entrypoints.def"
#undef TRACED
#undef X
};

void *pd_linked_real[PD_CALLS];
void *pd_looked_up_real[PD_CALLS];

/* ---- names ------------------------------------------------------------------------------- */

/* As strncmp(), with the row's base for the first string. */
static int compare_base(int row, const char *name, size_t length)
{
	size_t own = asked_as[row].base_length;
	int order = memcmp(pd_call_symbol[row], name, own < length ? own : length);

	return order || own >= length ? order : -1;
}

/* The first row in [low, high) whose base is not less than the name's first `length` bytes. */
static int lower_bound(int low, int high, const char *name, size_t length)
{
	while (low < high) {
		int middle = (low + high) / 2;

		if (compare_base(middle, name, length) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_base(int row, const char *name, size_t length)
{
	return row < PD_CALLS && asked_as[row].base_length == length &&
	       !compare_base(row, name, length);
}

/* All rows of a base are in one part, side by side. */
static int first_of_base(const char *name, size_t length)
{
	int row = lower_bound(0, ACTING, name, length);

	if (!is_base(row, name, length))
		row = lower_bound(ACTING, PD_CALLS, name, length);
	return is_base(row, name, length) ? row : -1;
}

/* A symbol is its base with a version or a flavour behind an underscore, or without. */
int pd_call_by_symbol(const char *name)
{
	size_t length = strcspn(name, "_");
	int row = first_of_base(name, length);

	for (; row >= 0 && is_base(row, name, length); row++)
		if (!strcmp(pd_call_symbol[row], name))
			return row;
	return -1;
}

/* ---- real functions ----------------------------------------------------------------------- */

/*
 * A wrapper calls this in a process without a driver. A program can only have reached an exported
 * wrapper there, and libcuda's stub for linking, which exports the same name, returns the same.
 */
static CUresult no_driver(void)
{
	return CUDA_ERROR_STUB_LIBRARY;
}

static struct pd_watched watched(enum pd_call call)
{
	return (struct pd_watched){
		.symbol = pd_call_symbol[call],
		.next = pd_next_function,
		.linked = pd_linked_wrapper(call),
		.looked_up = pd_looked_up_wrapper(call),
		.linked_real = &pd_linked_real[call],
		.looked_up_real = &pd_looked_up_real[call],
	};
}

/*
 * Its slot is loaded relaxed, here and in the wrappers: hook/loader/watched.h. Not inlined, since
 * it would make the wrappers longer.
 */
__attribute__((noinline)) void *pd_find_linked(enum pd_call call)
{
	const struct pd_watched this = watched(call);
	void *real = pd_watched_real(&this);

	return real ? real : (void *)no_driver;
}

/* A third definition. A row has two wrappers, and each one stands before one definition. */
static void distrust_stranger(enum pd_call call, const void *found)
{
	pd_trace_error("a second definition of a watched call was looked up, and is not watched",
		       (uintptr_t)found, 0, (int)call);
	pd_distrust("%s was found in two libraries, and calls of the second go unseen",
		    pd_call_symbol[call]);
}

void *pd_hand_out(enum pd_call call, void *found)
{
	const struct pd_watched this = watched(call);
	void *wrapper = pd_watched_wrapper(&this, found);

	if (wrapper)
		return wrapper;
	/* Both are the driver's own: the wrapper calls the one that was found first. */
	if (pd_in_libcuda(found) &&
	    pd_in_libcuda(__atomic_load_n(&pd_looked_up_real[call], __ATOMIC_RELAXED)))
		return this.looked_up;
	distrust_stranger(call, found);
	return found;
}

/* ---- cuGetProcAddress --------------------------------------------------------------------- */

static bool suits(int row, uint64_t flags)
{
	enum pd_flavour wanted =
		flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PD_PER_THREAD : PD_LEGACY;

	return asked_as[row].flavour == PD_ANY || asked_as[row].flavour == wanted;
}

/* The driver's function for this name may be one that the table has under another name. */
static int row_by_address(const void *found)
{
	for (int call = 0; call < PD_CALLS; call++) {
		void *none = NULL;

		if (pd_driver_function(&none, pd_call_symbol[call]) == found)
			return call;
	}
	return -1;
}

/* Arrays have no address that could be registered, and their calls are only traced. */
static bool is_about_addresses(int row)
{
	return !strstr(pd_call_symbol[row], "Array");
}

/* The function belongs to a watched call, but no row has it. */
static void *pass_on_newer(const struct pd_asked *asked, int row, int version, void *found)
{
	if (is_about_addresses(row))
		pd_distrust(
			"cuGetProcAddress answers \"%s\" for CUDA %d.%d with a function that is "
			"newer than this pindown, and calls of it go unseen",
			asked->name, version / 1000, version % 1000 / 10);
	return found;
}

void pd_newer_symbol(const char *name)
{
	size_t length = strcspn(name, "_");
	int row = first_of_base(name, length);
	void *none = NULL;

	if (row >= 0 && is_about_addresses(row) && pd_config()->enabled &&
	    pd_driver_function(&none, name))
		pd_distrust(
			"%s was looked up, which is newer than this pindown, and calls of it go "
			"unseen",
			name);
}

/*
 * Finds the row of the function with which the driver has answered: the row for whose version the
 * driver gives the same answer, the oldest one if there are several (they are then one function).
 * This recognizes a driver that is older than the row asked for, and a function that is newer than
 * all rows.
 *
 * A name with a version in it ("cuMemFree_v2") is not the base of any row. If a driver knows it all
 * the same, the row is found by the function's address.
 */
void *pd_substitute(const struct pd_asked *asked, int version, void *found)
{
	size_t length = strcspn(asked->name, "_");
	int first = first_of_base(asked->name, length), row = first;
	int error = errno;

	if (row < 0)
		return found;
	for (; !asked->name[length] && is_base(row, asked->name, length); row++) {
		if (!suits(row, asked->flags) || asked_as[row].version > version)
			continue;
		if (asked_as[row].version == version ||
		    asked->ask(asked, asked_as[row].version) == found) {
			errno = error;
			return pd_hand_out((enum pd_call)row, found);
		}
	}
	row = row_by_address(found);
	errno = error;
	return row >= 0 ? pd_hand_out((enum pd_call)row, found)
			: pass_on_newer(asked, first, version, found);
}
