/* SPDX-License-Identifier: MIT */
/*
 * Remembers memory that ends with its owner, and not by a call that names it: mapped buffers of
 * external memory, mapped graphics resources and buffers, frames, the globals of modules and
 * libraries. That is memory whose address the program has asked for; if it learnt an address in
 * another way, a recheck by buffer id finds the end of that memory afterwards.
 */
#include "hook/hook.h"
#include "hook/cuda/memory/records.h"

uint32_t pdn_owner_external;
uint32_t pdn_owner_graphics;

/* Memory that ends with its owner; a table for each kind of owner. */
struct owned {
	const void *owner;
	uint64_t addr, length;
};
static PDN_TABLE(struct owned) owned_by[PDN_OWNERS];

/* An owner that ends with another: a library's modules, the frames of a connection. */
struct part {
	const void *whole, *part;
};
static PDN_TABLE(struct part) parts_of[PDN_OWNERS];

/* The other way round, for what can end before its whole. */
struct frame {
	const void *frame, *connection;
};
static PDN_TABLE(struct frame) connections;
struct external {
	uint64_t addr;
	const void *owner;
};
static PDN_TABLE(struct external) externals;

/* Modules that the program has come to by a function in them. The counts don't matter. */
static struct pdn_key_counts found_by_function;

static uint64_t key_of(const void *handle)
{
	return (uintptr_t)handle;
}

/*
 * A module of a library ends with the library. For a module that the program has come to by a
 * function in it the library is not known, so the module's memory is volatile.
 */
static bool may_belong_to_library(enum pdn_owner owner, const void *handle)
{
	return owner == PDN_OWNER_MODULE &&
	       pdn_count_change(&found_by_function, key_of(handle), 0) != PDN_NOT_COUNTED;
}

/*
 * Two contexts of OpenGL may each have a buffer of this number mapped. Then an unmap does not tell
 * which of them it ends: both are volatile, and rechecked afterwards.
 */
static bool is_ambiguous(enum pdn_owner owner, const void *handle)
{
	struct owned mapped[2];

	return owner == PDN_OWNER_GL_BUFFER &&
	       pdn_record_get(&owned_by[owner], key_of(handle), 0, mapped, 2) == 2;
}

static bool ever_ambiguous; /* relaxed, as the counts below */

static void make_volatile(enum pdn_owner owner, const void *handle)
{
	struct owned owned;

	__atomic_store_n(&ever_ambiguous, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; pdn_record_get(&owned_by[owner], key_of(handle), i, &owned, 1); i++)
		pdn_volatile(owned.addr, owned.length);
}

/* Does the call that names the memory also map it? Globals are there already. */
static bool is_mapped_now(enum pdn_owner owner)
{
	return owner != PDN_OWNER_MODULE && owner != PDN_OWNER_LIBRARY;
}

/*
 * A new mapping is an allocation too. A global, or memory mapped before, may be registered already;
 * so may memory whose length the program does not ask for (0).
 *
 * The counts, here and below, are relaxed: a thread that ends an owner has it from the thread that
 * made it, and the records have a lock.
 */
void pdn_owner_owns(enum pdn_owner owner, const void *handle, uint64_t addr, uint64_t length)
{
	struct owned owned = {.owner = handle, .addr = addr, .length = length};

	if (!addr)
		return;
	if (may_belong_to_library(owner, handle))
		pdn_volatile(addr, length);
	if (!pdn_record_add(&owned_by[owner], &owned))
		return;
	if (owner == PDN_OWNER_EXTERNAL) {
		pdn_record_add(&externals, (&(struct external){.addr = addr, .owner = handle}));
		__atomic_fetch_add(&pdn_owner_external, 1, __ATOMIC_RELAXED);
	} else if (owner == PDN_OWNER_GRAPHICS) {
		__atomic_store_n(&pdn_owner_graphics, 1, __ATOMIC_RELAXED);
	}
	if (length && is_mapped_now(owner))
		pdn_allocated(addr, length);
	if (is_ambiguous(owner, handle))
		make_volatile(owner, handle);
}

/* ---- their end ---------------------------------------------------------------------------- */

static void end_owned(struct call *call, enum pdn_owner owner, const void *handle)
{
	struct owned owned[16];
	unsigned done = 0, count;

	do {
		count = pdn_record_get(&owned_by[owner], key_of(handle), done, owned, 16);
		for (unsigned i = 0; i < count; i++)
			pdn_caught_range(call, owned[i].addr, owned[i].length);
		done += count;
	} while (count == 16);
}

static bool has_parts(enum pdn_owner owner)
{
	return owner == PDN_OWNER_LIBRARY || owner == PDN_OWNER_EGL;
}

static enum pdn_owner kind_of_parts(enum pdn_owner owner)
{
	return owner == PDN_OWNER_LIBRARY ? PDN_OWNER_MODULE : PDN_OWNER_GRAPHICS;
}

void pdn_owner_end(struct call *call, enum pdn_owner owner, const void *handle)
{
	struct part found;

	if (is_ambiguous(owner, handle))
		return;
	end_owned(call, owner, handle);
	if (!has_parts(owner))
		return;
	for (unsigned i = 0; pdn_record_get(&parts_of[owner], key_of(handle), i, &found, 1); i++)
		end_owned(call, kind_of_parts(owner), found.part);
}

static void forget_external(const void *memory)
{
	struct owned owned;
	unsigned count = 0;

	while (pdn_record_get(&owned_by[PDN_OWNER_EXTERNAL], key_of(memory), 0, &owned, 1)) {
		pdn_record_remove_one(&externals, owned.addr, key_of(memory));
		count += pdn_record_remove_one(&owned_by[PDN_OWNER_EXTERNAL], key_of(memory),
					       owned.addr);
	}
	__atomic_fetch_sub(&pdn_owner_external, count, __ATOMIC_RELAXED);
}

static void forget_frame(const void *resource)
{
	struct frame found;

	while (pdn_record_get(&connections, key_of(resource), 0, &found, 1)) {
		pdn_record_remove_one(&parts_of[PDN_OWNER_EGL], key_of(found.connection),
				      key_of(resource));
		pdn_record_remove_one(&connections, key_of(resource), key_of(found.connection));
	}
}

static void forget_owned(enum pdn_owner owner, const void *handle)
{
	unsigned count;

	if (owner == PDN_OWNER_EXTERNAL) {
		forget_external(handle);
		return;
	}
	count = pdn_record_remove(&owned_by[owner], key_of(handle));
	if (owner == PDN_OWNER_MODULE)
		pdn_count_remove(&found_by_function, key_of(handle));
	else if (owner == PDN_OWNER_GRAPHICS)
		forget_frame(handle);
	else if (owner == PDN_OWNER_GL_BUFFER && count != 1 &&
		 __atomic_load_n(&ever_ambiguous, __ATOMIC_RELAXED))
		pdn_recheck(NULL);
}

void pdn_owner_ended(enum pdn_owner owner, const void *handle)
{
	struct part found;

	forget_owned(owner, handle);
	while (has_parts(owner) && pdn_record_get(&parts_of[owner], key_of(handle), 0, &found, 1)) {
		forget_owned(kind_of_parts(owner), found.part);
		pdn_record_remove_one(&parts_of[owner], key_of(handle), key_of(found.part));
	}
}

/* ---- parts and their wholes --------------------------------------------------------------- */

void pdn_owner_module_of(const void *module, const void *library)
{
	pdn_record_add(&parts_of[PDN_OWNER_LIBRARY],
		       (&(struct part){.whole = library, .part = module}));
}

void pdn_owner_module_of_a_function(const void *module)
{
	pdn_count_begin(&found_by_function, key_of(module));
}

void pdn_owner_frame_of(const void *resource, const void *connection)
{
	pdn_record_add(&connections,
		       (&(struct frame){.frame = resource, .connection = connection}));
	pdn_record_add(&parts_of[PDN_OWNER_EGL],
		       (&(struct part){.whole = connection, .part = resource}));
}

bool pdn_owner_is_external(uint64_t addr)
{
	struct external found;

	return __atomic_load_n(&pdn_owner_external, __ATOMIC_RELAXED) &&
	       pdn_record_get(&externals, addr, 0, &found, 1);
}

/* A mapped buffer was freed by itself, before its external memory. */
void pdn_owner_freed(uint64_t addr)
{
	struct external found;
	unsigned count = 0;

	while (pdn_record_get(&externals, addr, 0, &found, 1)) {
		count += pdn_record_remove_one(&owned_by[PDN_OWNER_EXTERNAL], key_of(found.owner),
					       addr);
		pdn_record_remove_one(&externals, addr, key_of(found.owner));
	}
	__atomic_fetch_sub(&pdn_owner_external, count, __ATOMIC_RELAXED);
}
