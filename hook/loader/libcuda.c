/* SPDX-License-Identifier: MIT */
/* The driver's library, libcuda.so.1, and which calls go straight to it. */
#include "cache/base/process/process.h"
#include "cache/base/thread/barrier.h"
#include "cache/trust/past.h"
#include "hook/hook.h"
#include "hook/loader/loaded/scope.h"
#include "hook/loader/library.h"
#include "hook/loader/patches.h"

/*
 * A mock, or a proxy for a driver elsewhere, may have another SONAME. Where there is no library of
 * the usual one, what a program calls or looks up is a libcuda if its library defines MARK.
 */
#define MARK "cuGetExportTable"
static struct pdn_library first = {.soname = "libcuda.so.1"};

/* The one that works, where it is not that: written once, before `driver` leads to it. */
static struct pdn_library working;
static struct pdn_library *driver = &first;

static inline struct pdn_library *the_driver(void)
{
	return __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
}

/* Everything goes straight through until pdn_hook_begin() has been called and says otherwise. */
struct pdn_straight pdn_straight = {0, UINTPTR_MAX};

/* ---- several of them ------------------------------------------------------------------------- */

/*
 * Programs try one libcuda after another: the stub for linking, a compatibility library, that of
 * the distribution. The one that works is the driver; until one does, nothing is asked of any, and
 * none is kept from being unloaded.
 */
static bool works; /* relaxed: once set it stays */

void pdn_libcuda_unloaded(void)
{
	if (!pdn_library_has_gone(the_driver()))
		return;
	pdn_forget_real_functions();
	pdn_library_forget(the_driver());
	pdn_straight_ask_again();
}

#define PDN_NAME(function) #function

/* Has the program begun to use it? It answers so without an effect. */
static bool is_begun(const struct pdn_library *library)
{
	typeof(cuCtxGetCurrent) *ask =
		(typeof(cuCtxGetCurrent) *)pdn_elf_find(&library->elf, PDN_NAME(cuCtxGetCurrent));
	CUcontext context;

	return ask && ask(&context) == CUDA_SUCCESS;
}

/* false: another thread has just found it. */
static bool becomes_the_driver(const struct pdn_library *library)
{
	static bool taken;

	if (__atomic_exchange_n(&taken, true, __ATOMIC_RELAXED))
		return false;
	working = *library;
	__atomic_store_n(&driver, &working, __ATOMIC_RELEASE);
	pdn_straight_ask_again();
	return true;
}

static bool __attribute__((cold)) find_the_one_that_works(void)
{
	struct pdn_library other = {0};
	bool found = is_begun(the_driver());

	for (unsigned n = 0; !found && pdn_library_of_soname(first.soname, n, &other); n++)
		found = other.begin != PDN_OF_LIBRARY(&first, begin) &&
			pdn_library_is_ready(&other) && is_begun(&other) &&
			becomes_the_driver(&other);
	if (found)
		__atomic_store_n(&works, true, __ATOMIC_RELAXED);
	return found;
}

static bool the_driver_works(void)
{
	return __atomic_load_n(&works, __ATOMIC_RELAXED) || find_the_one_that_works();
}

/* ---- the driver ------------------------------------------------------------------------------ */

static bool begin(bool (*find)(struct pdn_library *))
{
	if (__builtin_expect(pdn_library_known(the_driver()), 1))
		return true;
	if (!find(the_driver()))
		return false;
	pdn_hook_begin();
	return true;
}

bool pdn_libcuda_begin(void)
{
	return begin(pdn_library_find_ready);
}

bool pdn_libcuda_is(const void *function)
{
	if (pdn_library_known(the_driver()) || !pdn_library_is(the_driver(), MARK, function))
		return pdn_in_libcuda(function);
	pdn_hook_begin();
	return true;
}

bool pdn_hold_libcuda(void)
{
	bool is_there = pdn_libcuda_begin() && the_driver_works();

	if (is_there)
		pdn_library_hold(the_driver());
	return is_there;
}

bool pdn_is_a_libcuda(const void *address)
{
	struct pdn_library library;

	for (unsigned n = 0; pdn_library_of_soname(first.soname, n, &library); n++)
		if (pdn_library_has(&library, address))
			return true;
	return false;
}

bool pdn_in_libcuda(const void *address)
{
	return pdn_library_has(the_driver(), address);
}

void *pdn_driver_function(void **slot, const char *name)
{
	/* Relaxed: the address of code that was there before; all threads find the same one. */
	void *function = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (__builtin_expect(function != NULL, 1) || !pdn_libcuda_begin() || !the_driver_works())
		return function;
	function = pdn_elf_find(&the_driver()->elf, name);
	__atomic_store_n(slot, function, __ATOMIC_RELAXED);
	return function;
}

void *pdn_libcuda_symbol(const char *name)
{
	return pdn_libcuda_begin() ? pdn_elf_find(&the_driver()->elf, name) : NULL;
}

void *pdn_next_function(const char *name)
{
	void *found = pdn_next_definition(name);

	if (!begin(pdn_library_find) && found)
		pdn_libcuda_is(found);
	return found;
}

const struct pdn_library *pdn_libcuda_library(void)
{
	return the_driver();
}

/*
 * A driver that is linked with -Bsymbolic binds its calls of its own exports to itself, and never
 * calls a wrapper. A return address inside such a driver therefore belongs to a callback of the
 * program that ends in a tail call, which must be caught.
 */
static bool calls_itself_through_us(void)
{
	return pdn_library_known(the_driver()) && !PDN_OF_LIBRARY(the_driver(), elf.symbolic);
}

/* The begin is stored first: until the size follows, every call comes to pdn_straight_decide(). */
static void decide_straight(void)
{
	uintptr_t size = calls_itself_through_us() ? PDN_OF_LIBRARY(the_driver(), size) : 0;

	__atomic_store_n(&pdn_straight.begin, PDN_OF_LIBRARY(the_driver(), begin),
			 __ATOMIC_RELAXED);
	/* Release pairs with the acquire in pdn_catch(). */
	__atomic_store_n(&pdn_straight.size, size, __ATOMIC_RELEASE);
}

void pdn_straight_ask_again(void)
{
	/* Relaxed: this thread's own calls see it, and other threads' may see it at any time. */
	__atomic_store_n(&pdn_straight.size, UINTPTR_MAX, __ATOMIC_RELAXED);
}

/*
 * The rare side of pdn_catch(). A wrapper has looked its real function up before, so the
 * driver's place in memory is known if the driver is loaded.
 */
bool pdn_straight_decide(const void *caller)
{
	static bool off; /* relaxed: pdn_hook_begin() would return the same again */

	if (__atomic_load_n(&off, __ATOMIC_RELAXED) || pdn_process_is_off())
		return true;
	if (!pdn_hook_begin()) {
		__atomic_store_n(&off, true, __ATOMIC_RELAXED);
		return true;
	}
	pdn_patches_look_at_call();
	/* Not in a call of the driver's own: it may have locks, and be the thread that restores. */
	if (!pdn_in_libcuda(caller))
		pdn_past_look();
	if (pdn_library_known(the_driver()) && !pdn_patches_expected())
		decide_straight();
	/*
	 * More of the past, since: its pdn_straight_ask_again() may just have been undone. The
	 * fence: who raises the count does that first, so one of the two sees the other's store.
	 */
	pdn_full_fence();
	if (pdn_past_any())
		pdn_straight_ask_again();
	return calls_itself_through_us() && pdn_in_libcuda(caller);
}
