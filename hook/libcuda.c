/* SPDX-License-Identifier: MIT */
/*
 * The driver's object: libcuda.so.1, once something in the process has loaded it. We never load it.
 * A reference is held from the first time it is seen, so that no dlclose leaves our pointers
 * dangling.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>

#include "config.h"
#include "hook.h"

static void *handle;
static uintptr_t begin, size;

/* Everything goes straight through until pd_hook_begin() has been called and says otherwise. */
struct pd_straight pd_straight = {0, UINTPTR_MAX};

struct object {
	ElfW(Addr) base;
	const char *name;
	uintptr_t begin, end;
};

static int measure(struct dl_phdr_info *info, size_t info_size, void *arg)
{
	struct object *object = arg;

	(void)info_size;
	if (info->dlpi_addr != object->base || info->dlpi_name != object->name)
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		if (at < object->begin)
			object->begin = at;
		if (at + segment->p_memsz > object->end)
			object->end = at + segment->p_memsz;
	}
	return 1;
}

/* Only one thread's result is kept; all of them found the same object. */
static void keep(void *found)
{
	struct object object = {.begin = UINTPTR_MAX};
	const struct link_map *map;
	void *none = NULL;

	if (dlinfo(found, RTLD_DI_LINKMAP, &map))
		return;
	object.base = map->l_addr;
	object.name = map->l_name;
	dl_iterate_phdr(measure, &object);
	if (object.end > object.begin) {
		__atomic_store_n(&begin, object.begin, __ATOMIC_RELAXED);
		__atomic_store_n(&size, object.end - object.begin, __ATOMIC_RELEASE);
	}
	__atomic_compare_exchange_n(&handle, &none, found, false, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
}

void *pd_libcuda(void)
{
	void *found = __atomic_load_n(&handle, __ATOMIC_ACQUIRE);
	int error = errno;

	if (__builtin_expect(found != NULL, 1))
		return found;
	found = pd_loader()->dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (found) {
		keep(found);
		pd_hook_begin();
	}
	errno = error;
	return found;
}

bool pd_in_libcuda(const void *address)
{
	uintptr_t length = __atomic_load_n(&size, __ATOMIC_ACQUIRE);

	return (uintptr_t)address - __atomic_load_n(&begin, __ATOMIC_RELAXED) < length;
}

void *pd_driver_function(void **slot, const char *name)
{
	void *function = __atomic_load_n(slot, __ATOMIC_RELAXED);
	int error = errno;

	if (__builtin_expect(function != NULL, 1))
		return function;
	if (pd_libcuda()) {
		function = pd_loader()->dlsym(pd_libcuda(), name);
		if (!function)
			dlerror(); /* the program has not asked for it and must not see its message
				    */
		__atomic_store_n(slot, function, __ATOMIC_RELAXED);
	}
	errno = error;
	return function;
}

/*
 * The rare side of pd_caught_from(). A wrapper has looked its real function up before, so the
 * driver's place is known if the driver is loaded. begin is stored first: until size follows, all
 * come here.
 */
bool pd_goes_straight(const void *caller)
{
	static bool off;
	uintptr_t length;

	if (__atomic_load_n(&off, __ATOMIC_RELAXED))
		return true;
	if (!pd_hook_begin()) {
		__atomic_store_n(&off, true, __ATOMIC_RELAXED);
		return true;
	}
	length = __atomic_load_n(&size, __ATOMIC_ACQUIRE);
	if (length) {
		__atomic_store_n(&pd_straight.begin, __atomic_load_n(&begin, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&pd_straight.size, length, __ATOMIC_RELEASE);
	}
	return pd_in_libcuda(caller);
}
