/* SPDX-License-Identifier: MIT */
/*
 * Memory that ends with something else than a call that names it: mapped buffers of external
 * memory, mapped graphics resources and buffers, frames, the globals of modules and libraries. What
 * of it the program has asked for is remembered; what it learnt in another way is found by buffer id
 * afterwards.
 */
#include "hook/hook.h"
#include "hook/cuda/records.h"

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
 * Two contexts of OpenGL may each have a buffer of this number mapped. Which one is unmapped can't be
 * told then: they are volatile, and looked at afterwards.
 */
static bool is_ambiguous(enum pd_owner owner, const void *handle)
{
	struct pd_record mapped[2];

	return owner == PD_OWNER_GL_BUFFER &&
	       pd_record_get(kind_of(owner), key_of(handle), 0, mapped, 2) == 2;
}

static bool ever_ambiguous; /* relaxed, as the counts below */

static void make_volatile(enum pd_owner owner, const void *handle)
{
	struct pd_record owned;

	__atomic_store_n(&ever_ambiguous, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; pd_record_get(kind_of(owner), key_of(handle), i, &owned, 1); i++)
		pd_volatile(owned.a, owned.b);
}

/* Is what it owns mapped by the call that we are told of? Globals are there already. */
static bool is_mapped_now(enum pd_owner owner)
{
	return owner != PD_OWNER_MODULE && owner != PD_OWNER_LIBRARY;
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
	if (length && is_mapped_now(owner))
		pd_allocated(addr, length);
	if (is_ambiguous(owner, handle))
		make_volatile(owner, handle);
}

/* ---- their end ---------------------------------------------------------------------------- */

static void end_owned(struct call *call, enum pd_owner owner, uint64_t key)
{
	struct pd_record owned[16];
	unsigned done = 0, count;

	do {
		count = pd_record_get(kind_of(owner), key, done, owned, 16);
		for (unsigned i = 0; i < count; i++)
			pd_caught_range(call, owned[i].a, owned[i].b);
		done += count;
	} while (count == 16);
}

/* What else ends with it: a library's modules, the frames of a connection. */
static bool has_parts(enum pd_owner owner, enum pd_kind *parts, enum pd_owner *part)
{
	*parts = owner == PD_OWNER_LIBRARY ? PD_KIND_MODULE : PD_KIND_FRAME;
	*part = owner == PD_OWNER_LIBRARY ? PD_OWNER_MODULE : PD_OWNER_GRAPHICS;
	return owner == PD_OWNER_LIBRARY || owner == PD_OWNER_EGL;
}

void pd_owner_end(struct call *call, enum pd_owner owner, const void *handle)
{
	struct pd_record found;
	enum pd_kind parts;
	enum pd_owner part;

	if (is_ambiguous(owner, handle))
		return;
	end_owned(call, owner, key_of(handle));
	if (has_parts(owner, &parts, &part))
		for (unsigned i = 0; pd_record_get(parts, key_of(handle), i, &found, 1); i++)
			end_owned(call, part, found.a);
}

static void forget_owned(enum pd_owner owner, uint64_t key)
{
	unsigned count = pd_record_remove(kind_of(owner), key);

	if (owner == PD_OWNER_EXTERNAL)
		__atomic_fetch_sub(&pd_owner_external, count, __ATOMIC_RELAXED);
	else if (owner == PD_OWNER_MODULE)
		pd_record_remove(PD_KIND_MODULE_FOUND, key);
	else if (owner == PD_OWNER_GRAPHICS && count)
		pd_record_remove_value(PD_KIND_FRAME, key);
	else if (owner == PD_OWNER_GL_BUFFER && count != 1 &&
		 __atomic_load_n(&ever_ambiguous, __ATOMIC_RELAXED))
		pd_recheck(NULL);
}

void pd_owner_ended(enum pd_owner owner, const void *handle)
{
	struct pd_record found;
	enum pd_kind parts;
	enum pd_owner part;

	forget_owned(owner, key_of(handle));
	while (has_parts(owner, &parts, &part) &&
	       pd_record_get(parts, key_of(handle), 0, &found, 1)) {
		forget_owned(part, found.a);
		pd_record_remove_one(parts, key_of(handle), found.a);
	}
}

/* ---- what belongs to what ----------------------------------------------------------------- */

void pd_owner_module_of(const void *module, const void *library)
{
	pd_record_add(PD_KIND_MODULE, key_of(library), key_of(module), 0);
}

void pd_owner_module_of_a_function(const void *module)
{
	pd_record_add(PD_KIND_MODULE_FOUND, key_of(module), 0, 0);
}

void pd_owner_frame_of(const void *resource, const void *connection)
{
	pd_record_add(PD_KIND_FRAME, key_of(connection), key_of(resource), 0);
}

/* A mapped buffer was freed on its own, before its external memory. */
void pd_owner_freed(uint64_t addr)
{
	unsigned count = pd_record_remove_value(PD_KIND_OWNED_BY_EXTERNAL, addr);

	__atomic_fetch_sub(&pd_owner_external, count, __ATOMIC_RELAXED);
}
