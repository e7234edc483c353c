/* SPDX-License-Identifier: MIT */
/* Dma-bufs of the program's own that outlive their memory, for the trace. */
#define _GNU_SOURCE
#include "cache/foreign_dmabufs.h"

#include <errno.h>

#include "cache/base/address_space.h"
#include "cache/base/cancel.h"
#include "cache/base/descriptor.h"
#include "cache/base/lock.h"
#include "cache/driver/driver.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/trace/writer.h"

#define MAX_EXPORTS 4096u

struct export
{
	struct pdn_memory memory; /* the allocation that was exported */
	uint64_t identity;	  /* the file behind the descriptor */
	uint64_t buffer_id;
	uint32_t number; /* counted from 1, in the trace */
	uint32_t imports;
	int fd;
};

struct import {
	const void *by;
	uint32_t export;
};

/* All under the lock. Unsorted: there are few, and only frees in a traced program look. */
static struct export *exports;
static struct import *imports;
static uint32_t export_count, import_count, last_number;

static bool is_open(const struct export *export)
{
	return pdn_descriptor_identity(export->fd) == export->identity;
}

/* See base/lock.h: with this, frees come to pdn_exports_end(). */
static void say_whether_any(void)
{
	uint32_t others = __atomic_load_n(&pdn_pending, __ATOMIC_RELAXED) & ~PDN_PENDING_EXPORTS;

	/* Release: pairs with the loads in hook_events.c. */
	__atomic_store_n(&pdn_pending, others | (export_count ? PDN_PENDING_EXPORTS : 0),
			 __ATOMIC_RELEASE);
}

/* Relaxed: the caller then takes the lock, or frees memory that nobody exports meanwhile. */
static bool any(void)
{
	return __atomic_load_n(&pdn_pending, __ATOMIC_RELAXED) & PDN_PENDING_EXPORTS;
}

static void forget(struct export *export)
{
	*export = exports[--export_count];
}

/* It is closed, and not known to be imported: forget it. */
static void forget_closed(void)
{
	for (uint32_t i = export_count; i-- > 0;)
		if (!exports[i].imports && !is_open(&exports[i]))
			forget(&exports[i]);
}

static bool has_room(void)
{
	const size_t bytes = MAX_EXPORTS * (sizeof(*exports) + sizeof(*imports));

	if (!exports) {
		char *memory = pdn_reserve(bytes);

		if (!memory || !pdn_make_usable(memory, bytes))
			return false;
		exports = (struct export *)(void *)memory;
		imports = (struct import *)(void *)(memory + MAX_EXPORTS * sizeof(*exports));
	}
	if (export_count == MAX_EXPORTS)
		forget_closed();
	return export_count < MAX_EXPORTS;
}

/*
 * The range may have been rounded out to pages that other memory shares; its middle is inside the
 * allocation that was meant.
 */
static struct export make_export(uint64_t addr, uint64_t size, int fd)
{
	struct export export = {
		.memory = {.base = addr, .end = addr + size, .device = -1},
		.fd = fd,
		.identity = pdn_descriptor_identity(fd),
	};
	struct pdn_allocation allocation;
	int error = 0;

	if (pdn_driver_describe(addr + size / 2, 1, &allocation, &error) == PINDOWN_OK) {
		export.memory = allocation.memory;
		export.buffer_id = allocation.buffer_id;
	}
	return export;
}

static void trace_export(const struct export *export, uint64_t addr, uint64_t size,
			 const void *caller)
{
	struct pdn_trace_note note = {
		.addr = addr,
		.size = size,
		.extra = (uint64_t) export->fd,
		.number = export->number,
		.buffer_id = export->buffer_id,
		.device = export->memory.device,
		.stack = pdn_trace_caller(caller),
	};
	uint64_t now = pdn_ticks();

	pdn_trace_note(PDN_EV_EXPORT, &note, now, now);
}

void pdn_exported(uint64_t addr, uint64_t size, int fd, const void *caller)
{
	PDN_UNCANCELLED;
	int saved = errno;
	struct export export;
	bool remembered;

	if (!pdn_tracing(PDN_EV_EXPORT) && !pdn_tracing(PDN_EV_OUTLIVED))
		return;
	export = make_export(addr, size, fd);
	pdn_lock();
	export.number = ++last_number;
	remembered = export.identity && has_room();
	if (remembered)
		exports[export_count++] = export;
	say_whether_any();
	pdn_unlock();
	trace_export(&export, addr, size, caller);
	if (!remembered)
		pdn_trace_error("a dma-buf of the program's is not watched: there are too many",
				addr, size, 0);
	errno = saved;
}

/* ---- imports ------------------------------------------------------------------------------ */

/* Lock held. */
static struct export *of_file(uint64_t identity)
{
	for (uint32_t i = 0; i < export_count; i++)
		if (exports[i].identity == identity)
			return &exports[i];
	return NULL;
}

void pdn_export_imported(int fd, const void *by)
{
	PDN_UNCANCELLED;
	int saved = errno;
	uint64_t identity;
	struct export *export;

	if (!any())
		return;
	identity = pdn_descriptor_identity(fd);
	pdn_lock();
	export = identity ? of_file(identity) : NULL;
	if (export && import_count < MAX_EXPORTS) {
		export->imports++;
		imports[import_count++] = (struct import){by, export->number};
	}
	pdn_unlock();
	errno = saved;
}

void pdn_export_let_go(const void *by)
{
	PDN_UNCANCELLED;

	/* Relaxed: a caller that lets go has imported before, and sees at least that. */
	if (!__atomic_load_n(&import_count, __ATOMIC_RELAXED))
		return;
	pdn_lock();
	for (uint32_t i = import_count; i-- > 0;) {
		if (imports[i].by != by)
			continue;
		for (uint32_t e = 0; e < export_count; e++)
			if (exports[e].number == imports[i].export)
				exports[e].imports--;
		imports[i] = imports[import_count - 1];
		__atomic_store_n(&import_count, import_count - 1, __ATOMIC_RELAXED);
	}
	pdn_unlock();
}

/* ---- the memory ends ---------------------------------------------------------------------- */

static void trace_outlived(const struct export *export, enum pindown_reason reason)
{
	struct pdn_trace_note note = {
		.addr = export->memory.base,
		.size = export->memory.end - export->memory.base,
		.extra = (uint64_t) export->fd,
		.number = export->number,
		.buffer_id = export->buffer_id,
		.device = export->memory.device,
		.reason = (uint16_t)reason,
		.flags = (uint16_t)((is_open(export) ? PDN_TRACE_IN_USE : 0) |
				    (export->imports ? PDN_TRACE_IMPORTED : 0)),
	};
	uint64_t now = pdn_ticks();

	if (note.flags)
		pdn_trace_note(PDN_EV_OUTLIVED, &note, now, now);
}

/* Lock held. Those that the scope covers, as many as there is room for; they are forgotten. */
static unsigned remove_covered(const struct pdn_scope *scope, struct export *taken, unsigned max)
{
	unsigned count = 0;

	for (uint32_t i = export_count; i-- > 0 && count < max;)
		if (pdn_scope_covers(scope, &exports[i].memory)) {
			taken[count++] = exports[i];
			forget(&exports[i]);
		}
	say_whether_any();
	return count;
}

void pdn_exports_end(const struct pdn_scope *scope, enum pindown_reason reason)
{
	struct export taken[16];
	unsigned count;
	int saved;

	if (!any())
		return;
	saved = errno;
	do {
		pdn_lock();
		count = remove_covered(scope, taken, 16);
		pdn_unlock();
		for (unsigned i = 0; i < count; i++)
			trace_outlived(&taken[i], reason);
	} while (count == 16);
	errno = saved;
}

/* The child has the descriptors, but the memory and its end are the parent's. */
void pdn_exports_fork_child(void)
{
	export_count = import_count = 0;
}
