/* SPDX-License-Identifier: MIT */
/* The driver's library, libcuda.so.1, and which calls go straight to it. */
#include "cache/base/barrier.h"
#include "cache/past.h"
#include "hook/hook.h"
#include "hook/loader/library.h"
#include "hook/loader/patches.h"

static struct pdn_library driver = {.soname = "libcuda.so.1"};

/* Everything goes straight through until pdn_hook_begin() has been called and says otherwise. */
struct pdn_straight pdn_straight = {0, UINTPTR_MAX};

static bool begin(bool (*find)(struct pdn_library *))
{
	if (__builtin_expect(pdn_library_known(&driver), 1))
		return true;
	if (!find(&driver))
		return false;
	pdn_hook_begin();
	return true;
}

bool pdn_libcuda_begin(void)
{
	return begin(pdn_library_find_ready);
}

void pdn_hold_libcuda(void)
{
	if (pdn_libcuda_begin())
		pdn_library_hold(&driver);
}

bool pdn_in_libcuda(const void *address)
{
	return pdn_library_has(&driver, address);
}

void *pdn_driver_function(void **slot, const char *name)
{
	/* Relaxed: the address of code that was there before; all threads find the same one. */
	void *function = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (__builtin_expect(function != NULL, 1) || !pdn_libcuda_begin())
		return function;
	function = pdn_elf_find(&driver.elf, name);
	__atomic_store_n(slot, function, __ATOMIC_RELAXED);
	return function;
}

void *pdn_next_function(const char *name)
{
	return begin(pdn_library_find) ? pdn_library_next(&driver, name) : NULL;
}

const struct pdn_library *pdn_libcuda_library(void)
{
	return &driver;
}

/*
 * A driver that is linked with -Bsymbolic binds its calls of its own exports to itself, and never
 * calls a wrapper. A return address inside such a driver therefore belongs to a callback of the
 * program that ends in a tail call, which must be caught.
 */
static bool calls_itself_through_us(void)
{
	return pdn_library_known(&driver) && !driver.elf.symbolic;
}

/* The begin is stored first: until the size follows, every call comes to pdn_straight_decide(). */
static void decide_straight(void)
{
	uintptr_t size = calls_itself_through_us() ? driver.size : 0;

	__atomic_store_n(&pdn_straight.begin, driver.begin, __ATOMIC_RELAXED);
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

	if (__atomic_load_n(&off, __ATOMIC_RELAXED))
		return true;
	if (!pdn_hook_begin()) {
		__atomic_store_n(&off, true, __ATOMIC_RELAXED);
		return true;
	}
	pdn_patches_look_at_call();
	/* Not in a call of the driver's own: it may have locks, and be the thread that restores. */
	if (!pdn_in_libcuda(caller))
		pdn_past_look();
	if (pdn_library_known(&driver) && !pdn_patches_expected())
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
