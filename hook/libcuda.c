/* SPDX-License-Identifier: MIT */
/*
 * The driver's object: libcuda.so.1, once something in the process has loaded it. We never load it.
 *
 * A wrapper's first call must find its real function without the loader's lock (symtab.h): a program's call
 * of the driver takes none either. So the object is found by going through what is loaded. It is held,
 * which needs the lock, when the program itself calls the loader: at the latest in its first dlclose,
 * before which it can't go away.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include "symtab.h"
#include "hook.h"

static struct {
	struct pd_elf elf;
	uintptr_t begin, size; /* where it lies */
} driver;
static uint32_t known; /* NOT_YET, BEING_FILLED_IN, or KNOWN: driver is valid */
enum { NOT_YET, BEING_FILLED_IN, KNOWN };

static bool held;
static unsigned at_start; /* how many objects there were before main */

/* Everything goes straight through until pd_hook_begin() has been called and says otherwise. */
struct pd_straight pd_straight = {0, UINTPTR_MAX};

/* ---- going through the loaded objects ---------------------------------------------------------- */

extern const char __ehdr_start; /* of this library; the linker's */

struct search {
	const char *name; /* a function that is wanted, or NULL: the driver's object is */
	unsigned index;	  /* of the object */
	bool behind_us;
	void *found;
	struct pd_elf elf;
	uintptr_t begin, end;
};

static bool read_object(const struct dl_phdr_info *info, struct pd_elf *elf)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return pd_elf_read(
				elf, info->dlpi_addr,
				(const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
	return false;
}

static void measure(const struct dl_phdr_info *info, uintptr_t *begin, uintptr_t *end)
{
	*begin = UINTPTR_MAX;
	*end = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		if (at < *begin)
			*begin = at;
		if (at + segment->p_memsz > *end)
			*end = at + segment->p_memsz;
	}
}

static int look_for_driver(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	(void)size;
	if (!read_object(info, &search->elf) || !pd_elf_same(search->elf.soname, "libcuda.so.1"))
		return 0;
	measure(info, &search->begin, &search->end);
	return 1;
}

/* The objects that the program started with are in the order in which its names are looked up. */
static int look_behind_us(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	(void)size;
	if (at_start && search->index++ >= at_start)
		return 1;
	if (info->dlpi_addr == (uintptr_t)&__ehdr_start)
		search->behind_us = true;
	else if (search->behind_us && read_object(info, &search->elf))
		search->found = pd_elf_find(&search->elf, search->name);
	return search->found != NULL;
}

static int count(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)info;
	(void)size;
	++*(unsigned *)arg;
	return 0;
}

void pd_objects_at_start(void)
{
	unsigned objects = 0;

	dl_iterate_phdr(count, &objects);
	at_start = objects;
}

/* ---- the driver ---------------------------------------------------------------------------------- */

bool pd_libcuda(void)
{
	struct search search = {.name = NULL};
	uint32_t expected = NOT_YET;

	if (__builtin_expect(__atomic_load_n(&known, __ATOMIC_ACQUIRE) == KNOWN, 1))
		return true;
	if (!dl_iterate_phdr(look_for_driver, &search))
		return false;
	if (__atomic_compare_exchange_n(&known, &expected, BEING_FILLED_IN, false, __ATOMIC_ACQUIRE,
					__ATOMIC_ACQUIRE)) {
		driver.elf = search.elf;
		driver.begin = search.begin;
		driver.size = search.end - search.begin;
		__atomic_store_n(&known, KNOWN, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&known, __ATOMIC_ACQUIRE) != KNOWN)
		; /* another thread, for a few instructions */
	pd_hook_begin();
	return true;
}

void pd_hold_libcuda(void)
{
	int error = errno;

	if (__atomic_load_n(&held, __ATOMIC_RELAXED) || !pd_libcuda())
		return;
	if (pd_loader()->dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD))
		__atomic_store_n(&held, true, __ATOMIC_RELAXED);
	errno = error;
}

bool pd_in_libcuda(const void *address)
{
	return __atomic_load_n(&known, __ATOMIC_ACQUIRE) == KNOWN &&
	       (uintptr_t)address - driver.begin < driver.size;
}

void *pd_driver_function(void **slot, const char *name)
{
	void *function = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (__builtin_expect(function != NULL, 1) || !pd_libcuda())
		return function;
	function = pd_elf_find(&driver.elf, name);
	__atomic_store_n(slot, function, __ATOMIC_RELAXED);
	return function;
}

void *pd_next_function(const char *name)
{
	struct search search = {.name = name};

	if (!pd_libcuda())
		return NULL;
	dl_iterate_phdr(look_behind_us, &search);
	/* A driver that was loaded later, perhaps for some library alone (RTLD_LOCAL). */
	return search.found ? search.found : pd_elf_find(&driver.elf, name);
}

/*
 * The rare side of pd_caught_from(). A wrapper has looked its real function up before, so the driver's
 * place is known if the driver is loaded. begin is stored first: until size follows, all come here.
 */
bool pd_goes_straight(const void *caller)
{
	static bool off;

	if (__atomic_load_n(&off, __ATOMIC_RELAXED))
		return true;
	if (!pd_hook_begin()) {
		__atomic_store_n(&off, true, __ATOMIC_RELAXED);
		return true;
	}
	if (__atomic_load_n(&known, __ATOMIC_ACQUIRE) == KNOWN) {
		__atomic_store_n(&pd_straight.begin, driver.begin, __ATOMIC_RELAXED);
		__atomic_store_n(&pd_straight.size, driver.size, __ATOMIC_RELEASE);
	}
	return pd_in_libcuda(caller);
}
