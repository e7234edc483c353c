/* SPDX-License-Identifier: MIT */
/*
 * What hook/cuda/memory/owners.c tells the cache when the owner of memory ends: a frame or its
 * connection, a module or its library, external memory or one buffer of it, an OpenGL buffer that
 * may be another context's. The source is included, to look into its tables, and the cache is this
 * file.
 */
#define pdn_allocated fake_allocated
#define pdn_volatile  fake_volatile
#define pdn_recheck   fake_recheck
#define pdn_end_range fake_end_range
#define pdn_ended     fake_ended
#include "hook/cuda/memory/owners.c"

#include <string.h>

#include "tests/unit/hook/checked.h"

#define AT(n)	  (UINT64_C(0x7f4400000000) + ((uint64_t)(n) << 21))
#define LENGTH	  UINT64_C(0x200000)
#define HANDLE(n) ((const void *)(uintptr_t)(n))

/* ---- the cache: it counts what it is told ---- */

#define PLACES 64

static unsigned allocated[PLACES], volatiles[PLACES], ends[PLACES], rechecks, ended;

static unsigned place_of(uint64_t addr)
{
	return (unsigned)((addr - AT(0)) / LENGTH) % PLACES;
}

void fake_allocated(uint64_t addr, uint64_t length)
{
	check(length == LENGTH, "the length of an allocation is told");
	allocated[place_of(addr)]++;
}

void fake_volatile(uint64_t addr, uint64_t length)
{
	(void)length;
	volatiles[place_of(addr)]++;
}

void fake_recheck(void *pool)
{
	check(!pool, "all memory is rechecked, not a pool's");
	rechecks++;
}

pdn_guard fake_end_range(uint64_t addr, uint64_t length)
{
	(void)length;
	ends[place_of(addr)]++;
	return (pdn_guard){0};
}

void fake_ended(pdn_guard guard)
{
	(void)guard;
	ended++;
}

static void forget_what_was_told(void)
{
	memset(allocated, 0, sizeof(allocated));
	memset(volatiles, 0, sizeof(volatiles));
	memset(ends, 0, sizeof(ends));
	rechecks = ended = 0;
}

static unsigned sum(const unsigned *counts)
{
	unsigned all = 0;

	for (unsigned i = 0; i < PLACES; i++)
		all += counts[i];
	return all;
}

/* The driver ends an owner: what ends with it is told before, and forgotten afterwards. */
static void end(enum pdn_owner owner, unsigned handle)
{
	struct call call = {0};

	forget_what_was_told();
	pdn_owner_end(&call, owner, HANDLE(handle));
	check(call.guards + ended == sum(ends), "each range that ends has a guard");
	pdn_owner_ended(owner, HANDLE(handle));
}

static unsigned owned(enum pdn_owner owner, unsigned handle)
{
	struct owned found[32];

	return pdn_record_get(&owned_by[owner], key_of(HANDLE(handle)), 0, found, 32);
}

static unsigned parts(enum pdn_owner owner, unsigned handle)
{
	struct part found[32];

	return pdn_record_get(&parts_of[owner], key_of(HANDLE(handle)), 0, found, 32);
}

static unsigned connections_of(unsigned frame)
{
	struct frame found[4];

	return pdn_record_get(&connections, key_of(HANDLE(frame)), 0, found, 4);
}

/* ---- frames ---- */

static void frames(void)
{
	pdn_owner_frame_of(HANDLE(1), HANDLE(100));
	pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(1), AT(0), LENGTH);
	pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(1), AT(1), LENGTH);
	pdn_owner_frame_of(HANDLE(2), HANDLE(100));
	pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(2), AT(2), LENGTH);
	check(allocated[0] == 1 && allocated[1] == 1 && allocated[2] == 1, "planes are new memory");
	check(pdn_owner_graphics == 1, "resources are mapped from now on");
	pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(1), AT(0), LENGTH);
	check(allocated[0] == 1, "a plane that is asked for again is not");
	pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(1), 0, LENGTH);
	check(owned(PDN_OWNER_GRAPHICS, 1) == 2, "no plane is at address 0");

	/* Released: the frame's planes end, and nothing of it is left. */
	end(PDN_OWNER_GRAPHICS, 1);
	check(ends[0] == 1 && ends[1] == 1 && sum(ends) == 2, "a frame ends with its planes");
	check(!owned(PDN_OWNER_GRAPHICS, 1), "its planes are forgotten");
	check(!connections_of(1), "its connection is forgotten");
	check(parts(PDN_OWNER_EGL, 100) == 1, "its connection has one frame less");

	/* The handle is used again, for a resource that is no frame: it stays when others end. */
	pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(1), AT(3), LENGTH);
	end(PDN_OWNER_EGL, 100);
	check(ends[2] == 1 && sum(ends) == 1, "a connection ends with the frames that it has");
	check(owned(PDN_OWNER_GRAPHICS, 1) == 1, "another resource of that handle stays");
	check(!owned(PDN_OWNER_GRAPHICS, 2) && !connections_of(2), "its frame is forgotten");
	check(!parts(PDN_OWNER_EGL, 100), "and it has none any more");
	end(PDN_OWNER_GRAPHICS, 1);
	check(ends[3] == 1, "that resource ends by itself");
}

static void many_planes(void)
{
	for (unsigned i = 0; i < 40; i++)
		pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(3), AT(i), LENGTH);
	end(PDN_OWNER_GRAPHICS, 3);
	for (unsigned i = 0; i < 40; i++)
		check(ends[i] == 1, "all that a resource has ends once");
	check(sum(ends) == 40 && !owned(PDN_OWNER_GRAPHICS, 3), "and nothing else");
	for (unsigned i = 0; i < 16; i++)
		pdn_owner_owns(PDN_OWNER_GRAPHICS, HANDLE(3), AT(i), LENGTH);
	end(PDN_OWNER_GRAPHICS, 3);
	check(sum(ends) == 16, "so it is with sixteen");
}

/* ---- external memory ---- */

static void external_memory(void)
{
	pdn_owner_owns(PDN_OWNER_EXTERNAL, HANDLE(4), AT(0), LENGTH);
	pdn_owner_owns(PDN_OWNER_EXTERNAL, HANDLE(4), AT(1), LENGTH);
	pdn_owner_owns(PDN_OWNER_EXTERNAL, HANDLE(5), AT(2), LENGTH);
	check(pdn_owner_external == 3, "mapped buffers are counted");
	pdn_owner_freed(AT(1));
	check(pdn_owner_external == 2, "one that is freed by itself is not counted any more");
	pdn_owner_freed(AT(9));
	check(pdn_owner_external == 2, "other memory that is freed makes no difference");
	end(PDN_OWNER_EXTERNAL, 4);
	check(ends[0] == 1 && sum(ends) == 1, "the other one ends with its memory");
	check(pdn_owner_external == 1, "and is not counted any more");
	check(owned(PDN_OWNER_EXTERNAL, 5) == 1, "that of other memory stays");
	end(PDN_OWNER_EXTERNAL, 5);
	check(pdn_owner_external == 0, "the last one ends");
	pdn_owner_freed(AT(2));
	check(pdn_owner_external == 0, "and is forgotten by its address, too");
}

/* ---- modules ---- */

static void modules(void)
{
	forget_what_was_told();
	pdn_owner_module_of(HANDLE(6), HANDLE(200));
	pdn_owner_owns(PDN_OWNER_MODULE, HANDLE(6), AT(0), LENGTH);
	pdn_owner_owns(PDN_OWNER_LIBRARY, HANDLE(200), AT(1), LENGTH);
	check(!sum(allocated), "globals are no new memory");
	check(!sum(volatiles), "it is known when a library's module ends");
	end(PDN_OWNER_LIBRARY, 200);
	check(ends[0] == 1 && ends[1] == 1 && sum(ends) == 2, "a library ends with its modules");
	check(!owned(PDN_OWNER_MODULE, 6) && !parts(PDN_OWNER_LIBRARY, 200), "nothing is left");

	/* Which library it is in is not known. */
	pdn_owner_module_of_a_function(HANDLE(7));
	forget_what_was_told();
	pdn_owner_owns(PDN_OWNER_MODULE, HANDLE(7), AT(2), LENGTH);
	check(volatiles[2] == 1 && sum(volatiles) == 1, "its memory may end unseen");
	end(PDN_OWNER_MODULE, 7);
	check(ends[2] == 1, "it ends with the module as well");
	pdn_owner_owns(PDN_OWNER_MODULE, HANDLE(7), AT(3), LENGTH);
	check(!sum(volatiles), "a later module of this handle is another one");
	end(PDN_OWNER_MODULE, 7);
}

/* ---- buffers of OpenGL, by number ---- */

static void buffers(void)
{
	pdn_owner_owns(PDN_OWNER_GL_BUFFER, HANDLE(8), AT(0), LENGTH);
	end(PDN_OWNER_GL_BUFFER, 8);
	check(ends[0] == 1 && !rechecks, "one context's buffer ends by its number");
	end(PDN_OWNER_GL_BUFFER, 8);
	check(!sum(ends) && !rechecks, "one that nobody has mapped does not matter");

	forget_what_was_told();
	pdn_owner_owns(PDN_OWNER_GL_BUFFER, HANDLE(8), AT(1), LENGTH);
	check(!sum(volatiles), "one buffer of a number is not volatile");
	pdn_owner_owns(PDN_OWNER_GL_BUFFER, HANDLE(8), AT(2), LENGTH);
	check(volatiles[1] == 1 && volatiles[2] == 1, "two of a number are");
	end(PDN_OWNER_GL_BUFFER, 8);
	check(!sum(ends), "which of them ends is not known");
	check(rechecks == 1, "so all memory is rechecked afterwards");
	end(PDN_OWNER_GL_BUFFER, 8);
	check(!sum(ends) && rechecks == 1, "and when the other one ends");
	pdn_owner_owns(PDN_OWNER_GL_BUFFER, HANDLE(8), AT(3), LENGTH);
	end(PDN_OWNER_GL_BUFFER, 8);
	check(ends[3] == 1 && !rechecks, "a later one is the only one of its number");
}

int main(void)
{
	frames();
	many_planes();
	external_memory();
	modules();
	buffers();
	return checked_end();
}
