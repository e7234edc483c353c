/* SPDX-License-Identifier: MIT */
/*
 * Memory that ends with something else than a call that names it: mapped buffers of external
 * memory, mapped graphics resources, the globals of modules and libraries. What of it the program
 * has asked for is remembered; what it learnt in another way is found by buffer id afterwards.
 */
#include "hook.h"
#include "records.h"

uint32_t pd_owner_external;
uint32_t pd_owner_graphics;

static enum pd_kind kind_of(enum pd_owner owner)
{
	return (enum pd_kind)(PD_KIND_OWNED_BY_EXTERNAL + owner);
}

static uint64_t key_of(const void *handle)
{
	return (uintptr_t)handle;
}

/*
 * A library's module ends with the library. Which one that is can't be told of a module that the
 * program has come to by a function in it, so that its memory is volatile.
 */
static bool may_be_a_librarys(enum pd_owner owner, const void *handle)
{
	struct pd_record found;

	return owner == PD_OWNER_MODULE &&
	       pd_record_get(PD_KIND_MODULE_FOUND, key_of(handle), 0, &found, 1);
}

/*
 * A new mapping is an allocation too; a global, or one mapped before, may well be registered already.
 * A program that does not ask for the length (0) may still have the memory registered.
 *
 * The counts, here and below, are relaxed: who ends an owner has it from who made it, and the records
 * have a lock.
 */
void pd_owner_owns(enum pd_owner owner, const void *handle, uint64_t addr, uint64_t length)
{
	if (!addr)
		return;
	if (may_be_a_librarys(owner, handle))
		pd_volatile(addr, length);
	if (!pd_record_add(kind_of(owner), key_of(handle), addr, length))
		return;
	if (owner == PD_OWNER_EXTERNAL)
		__atomic_fetch_add(&pd_owner_external, 1, __ATOMIC_RELAXED);
	else if (owner == PD_OWNER_GRAPHICS)
		__atomic_store_n(&pd_owner_graphics, 1, __ATOMIC_RELAXED);
	else
		return;
	if (length)
		pd_allocated(addr, length);
}

static void end_owned(struct pd_caught *caught, enum pd_kind kind, uint64_t key)
{
	struct pd_record owned[16];
	unsigned done = 0, count;

	do {
		count = pd_record_get(kind, key, done, owned, 16);
		for (unsigned i = 0; i < count; i++)
			pd_caught_range(caught, owned[i].a, owned[i].b);
		done += count;
	} while (count == 16);
}

void pd_owner_end(struct pd_caught *caught, enum pd_owner owner, const void *handle)
{
	struct pd_record module[16];
	unsigned done = 0, count = 0;

	end_owned(caught, kind_of(owner), key_of(handle));
	while (owner == PD_OWNER_LIBRARY && (!done || count == 16)) {
		count = pd_record_get(PD_KIND_MODULE, key_of(handle), done, module, 16);
		for (unsigned i = 0; i < count; i++)
			end_owned(caught, PD_KIND_OWNED_BY_MODULE, module[i].a);
		done += count;
		if (!count)
			break;
	}
}

void pd_owner_ended(enum pd_owner owner, const void *handle)
{
	unsigned count = pd_record_remove(kind_of(owner), key_of(handle));
	struct pd_record module;

	if (owner == PD_OWNER_EXTERNAL)
		__atomic_fetch_sub(&pd_owner_external, count, __ATOMIC_RELAXED);
	else if (owner == PD_OWNER_MODULE)
		pd_record_remove(PD_KIND_MODULE_FOUND, key_of(handle));
	if (owner != PD_OWNER_LIBRARY)
		return;
	while (pd_record_get(PD_KIND_MODULE, key_of(handle), 0, &module, 1)) {
		pd_record_remove(PD_KIND_OWNED_BY_MODULE, module.a);
		pd_record_remove(PD_KIND_MODULE_FOUND, module.a);
		pd_record_remove_value(PD_KIND_MODULE, module.a);
	}
}

void pd_owner_module_of(const void *module, const void *library)
{
	pd_record_add(PD_KIND_MODULE, key_of(library), key_of(module), 0);
}

void pd_owner_module_of_a_function(const void *module)
{
	pd_record_add(PD_KIND_MODULE_FOUND, key_of(module), 0, 0);
}

/* A mapped buffer was freed on its own, before its external memory. */
void pd_owner_freed(uint64_t addr)
{
	unsigned count = pd_record_remove_value(PD_KIND_OWNED_BY_EXTERNAL, addr);

	__atomic_fetch_sub(&pd_owner_external, count, __ATOMIC_RELAXED);
}
