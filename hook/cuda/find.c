/* SPDX-License-Identifier: MIT */
/* Finds rows of the table by name, and the real functions and wrappers of a row. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "cache/base/environment/config.h"
#include "hook/hook.h"
#include "cache/base/environment/log.h"
#include "hook/loader/loaded/scope.h"
#include "hook/verbs/verbs.h"

/*
 * All names in one text, and where each begins there. That takes two bytes a name; a pointer takes
 * 32 with its relocation, which each process would make at its start.
 */
const char pdn_call_symbols[] =
#define X(symbol, ...) #symbol "\0"
#include "hook/cuda/entrypoints.def"
#include "hook/verbs/verbs.def"
#undef X
	;

struct names {
#define X(symbol, ...) char symbol[sizeof(#symbol)];
#include "hook/cuda/entrypoints.def"
#include "hook/verbs/verbs.def"
#undef X
};
_Static_assert(sizeof(pdn_call_symbols) == sizeof(struct names) + 1, "it ends with an empty name");

static const uint16_t symbol_begins[] = {
#define X(symbol, ...) offsetof(struct names, symbol),
#include "hook/cuda/entrypoints.def"
#include "hook/verbs/verbs.def"
#undef X
};

/* A symbol begins with its base, so the length of the base is enough. */
static const struct {
	uint16_t version;
	uint8_t flavour, base_length;
} asked_as[PDN_CALLS] = {
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

void *pdn_linked_real[PDN_CALLS];
void *pdn_looked_up_real[PDN_CALLS];

/* ---- names ------------------------------------------------------------------------------- */

const char *pdn_call_symbol(unsigned number)
{
	return pdn_call_symbols + symbol_begins[number];
}

/* As strncmp(), with the row's base for the first string. */
static int compare_base(int row, const char *name, size_t length)
{
	size_t own = asked_as[row].base_length;
	int order = memcmp(pdn_call_symbol((unsigned)row), name, own < length ? own : length);

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
	return row < PDN_CALLS && asked_as[row].base_length == length &&
	       !compare_base(row, name, length);
}

/* All rows of a base are in one part, side by side. */
static int first_of_base(const char *name, size_t length)
{
	int row = lower_bound(0, ACTING, name, length);

	if (!is_base(row, name, length))
		row = lower_bound(ACTING, PDN_CALLS, name, length);
	return is_base(row, name, length) ? row : -1;
}

/* A symbol is its base with a version or a flavour behind an underscore, or without. */
int pdn_call_by_symbol(const char *name)
{
	size_t length = strcspn(name, "_");
	int row = first_of_base(name, length);

	for (; row >= 0 && is_base(row, name, length); row++)
		if (!strcmp(pdn_call_symbol((unsigned)row), name))
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

/*
 * Two roads lead to a watched function, and each has a wrapper and a real function behind that:
 *
 *	linked		the exported wrapper; behind it the next definition after us, so that an
 *			interposer behind us keeps its place
 *	looked up	the wrapper that look-ups are answered with; behind it the function that the
 *			look-up found
 *
 * Where both real functions are the same, the exported wrapper serves both roads.
 *
 * A slot of a real function changes only when its library is unloaded, or when another definition
 * appears; for a call under way either value is right. So all loads are relaxed, also in the
 * wrappers, which read the slots themselves.
 */

/* The real function of a linked program, found at its first use; NULL: there is none. */
static void *linked_real(enum pdn_call call)
{
	void *real = __atomic_load_n(&pdn_linked_real[call], __ATOMIC_RELAXED);

	if (real)
		return real;
	real = pdn_next_function(pdn_call_symbol(call));
	if (real)
		__atomic_store_n(&pdn_linked_real[call], real, __ATOMIC_RELAXED);
	return real;
}

/*
 * The wrapper to hand out for the function that a look-up found; `found` itself if it is a wrapper.
 * NULL: another function than `found` is behind each wrapper.
 */
static void *wrapper_for(enum pdn_call call, void *found)
{
	void *known = NULL, *looked_up = pdn_looked_up_wrapper(call);

	if (found == pdn_linked_wrapper(call) || found == looked_up)
		return found;
	if (found == linked_real(call))
		return pdn_linked_wrapper(call);
	/*
	 * Release pairs with no acquire: the wrapper loads the slot relaxed, and its caller got the
	 * wrapper's address from here, after this store.
	 */
	if (__atomic_compare_exchange_n(&pdn_looked_up_real[call], &known, found, false,
					__ATOMIC_RELEASE, __ATOMIC_RELAXED) ||
	    known == found)
		return looked_up;
	return NULL;
}

/* Not inlined, since it would make the wrappers longer. */
__attribute__((noinline)) void *pdn_find_linked(enum pdn_call call, const void *caller)
{
	void *real = linked_real(call), *behind;

	/* A plug-in may have functions of these names, which open the driver themselves. */
	if (!real && !pdn_answer_known(caller, call, &real)) {
		real = pdn_definition_for(caller, pdn_call_symbol(call), "", &behind);
		if (real)
			pdn_answer_keep(caller, call, real);
	}
	return real ? real : (void *)no_driver;
}

/* All calls by this name came to one function so far, which a look-up has found: pdn_hand_out(). */
void pdn_is_being_bound(const char *name)
{
	int call = pdn_call_by_symbol(name);

	if (call >= 0 && __atomic_load_n(&pdn_linked_real[call], __ATOMIC_RELAXED) &&
	    !pdn_next_definition(name) && !pdn_only_definition(name))
		__atomic_store_n(&pdn_linked_real[call], NULL, __ATOMIC_RELAXED);
}

void pdn_forget_real_functions(void)
{
	for (int call = 0; call < PDN_CALLS; call++) {
		__atomic_store_n(&pdn_linked_real[call], NULL, __ATOMIC_RELAXED);
		__atomic_store_n(&pdn_looked_up_real[call], NULL, __ATOMIC_RELAXED);
	}
}

/* The program tries another libcuda than the one before, which has not worked, and is kept. */
static bool is_of_another_try(const void *known, const void *found, bool works)
{
	return known && !(works && pdn_in_libcuda(known)) && pdn_is_a_libcuda(known) &&
	       pdn_is_a_libcuda(found);
}

/* A third definition. A row has two wrappers, and each one stands before one definition. */
static void distrust_stranger(enum pdn_call call, const void *found)
{
	pdn_trace_error("a second definition of a watched call was looked up, and is not watched",
			(uintptr_t)found, 0, (int)call);
	pdn_distrust("%s was found in two libraries, and calls of the second go unseen",
		     pdn_call_symbol(call));
}

/* Its calls go to it, by the second wrapper, and the cache asks the first one about all memory. */
static void tell_of_another_driver(const void *found)
{
	static bool told;

	if (__atomic_load_n(&told, __ATOMIC_RELAXED) || pdn_in_libcuda(found) ||
	    !pdn_hold_libcuda() || pdn_in_libcuda(found) || !pdn_is_a_libcuda(found))
		return;
	pdn_log_once(&told, PDN_LOG_WARN,
		     "the program uses a second libcuda, beside one that works: its calls go to "
		     "it, and its memory is not registered by pindown");
}

void *pdn_hand_out(enum pdn_call call, void *found)
{
	void *wrapper, *known = __atomic_load_n(&pdn_looked_up_real[call], __ATOMIC_RELAXED);
	bool works;

	/* All calls come to it, so the exported wrapper serves both roads. */
	if (!known && !linked_real(call) && found == pdn_only_definition(pdn_call_symbol(call)))
		__atomic_store_n(&pdn_linked_real[call], found, __ATOMIC_RELAXED);
	wrapper = wrapper_for(call, found);
	if (wrapper) {
		tell_of_another_driver(found);
		return wrapper;
	}
	works = pdn_hold_libcuda();
	known = __atomic_load_n(&pdn_looked_up_real[call], __ATOMIC_RELAXED);
	/* Both are the driver's own: the wrapper calls the one that was found first. */
	if (pdn_in_libcuda(found) && pdn_in_libcuda(known))
		return pdn_looked_up_wrapper(call);
	if (is_of_another_try(known, found, works)) {
		__atomic_store_n(&pdn_looked_up_real[call], found, __ATOMIC_RELAXED);
		return pdn_looked_up_wrapper(call);
	}
	distrust_stranger(call, found);
	return found;
}

/* ---- cuGetProcAddress --------------------------------------------------------------------- */

static bool suits(int row, uint64_t flags)
{
	enum pdn_flavour wanted =
		flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PDN_PER_THREAD : PDN_LEGACY;

	return asked_as[row].flavour == PDN_ANY || asked_as[row].flavour == wanted;
}

/* The driver's function for this name may be one that the table has under another name. */
static int row_by_address(const void *found)
{
	for (int call = 0; call < PDN_CALLS; call++)
		if (pdn_libcuda_symbol(pdn_call_symbol((unsigned)call)) == found)
			return call;
	return -1;
}

/*
 * Arrays have no address that could be registered, and their calls are only traced. A granularity
 * is only asked for; and without these other two, less is cured or more counted.
 */
static bool is_about_addresses(int row)
{
	switch (row) {
	case PDN_CALL_cuMemGetAllocationGranularity:
	case PDN_CALL_cuMemPoolSetAttribute:
	case PDN_CALL_cuStreamDestroy:
	case PDN_CALL_cuStreamDestroy_v2:
		return false;
	default:
		return !strstr(pdn_call_symbol((unsigned)row), "Array");
	}
}

/* The function belongs to a watched call, but no row has it. */
static void *pass_on_newer(const struct pdn_asked *asked, int row, int version, void *found)
{
	if (is_about_addresses(row))
		pdn_distrust(
			"cuGetProcAddress answers \"%s\" for CUDA %d.%d with a function that is "
			"newer than this pindown, and calls of it go unseen",
			asked->name, version / 1000, version % 1000 / 10);
	return found;
}

void pdn_newer_symbol(const char *name)
{
	size_t length = strcspn(name, "_");
	int row = first_of_base(name, length);

	if (row >= 0 && is_about_addresses(row) && pdn_config()->enabled &&
	    pdn_libcuda_symbol(name))
		pdn_distrust(
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
void *pdn_substitute(const struct pdn_asked *asked, int version, void *found)
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
			return pdn_hand_out((enum pdn_call)row, found);
		}
	}
	row = row_by_address(found);
	errno = error;
	return row >= 0 ? pdn_hand_out((enum pdn_call)row, found)
			: pass_on_newer(asked, first, version, found);
}
