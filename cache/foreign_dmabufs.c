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

#define MOST 4096u

struct export
{
	struct pd_memory memory; /* the allocation that was exported */
	uint64_t identity;	 /* the file behind the descriptor */
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
	return pd_descriptor_identity(export->fd) == export->identity;
}

/* See base/lock.h: with this, frees come to pd_exports_end(). */
static void say_whether_any(void)
{
	uint32_t others = __atomic_load_n(&pd_unsettled, __ATOMIC_RELAXED) & ~PD_UNSETTLED_EXPORTS;

	/* Release: pairs with the loads in hook_events.c. */
	__atomic_store_n(&pd_unsettled, others | (export_count ? PD_UNSETTLED_EXPORTS : 0),
			 __ATOMIC_RELEASE);
}

/* Relaxed: the caller then takes the lock, or frees memory that nobody exports meanwhile. */
static bool any(void)
{
	return __atomic_load_n(&pd_unsettled, __ATOMIC_RELAXED) & PD_UNSETTLED_EXPORTS;
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
	const size_t bytes = MOST * (sizeof(*exports) + sizeof(*imports));

	if (!exports) {
		char *memory = pd_reserve(bytes);

		if (!memory || !pd_make_usable(memory, bytes))
			return false;
		exports = (struct export *)(void *)memory;
		imports = (struct import *)(void *)(memory + MOST * sizeof(*exports));
	}
	if (export_count == MOST)
		forget_closed();
	return export_count < MOST;
}

/*
 * The range may have been rounded out to pages that other memory shares; its middle is inside the
 * allocation that was meant.
 */
static struct export describe(uint64_t addr, uint64_t size, int fd)
{
	struct export export = {
		.memory = {.base = addr, .end = addr + size, .device = -1},
		.fd = fd,
		.identity = pd_descriptor_identity(fd),
	};
	struct pd_allocation allocation;
	int error = 0;

	if (pd_driver_describe(addr + size / 2, 1, &allocation, &error) == PINDOWN_OK) {
		export.memory = allocation.memory;
		export.buffer_id = allocation.buffer_id;
	}
	return export;
}

static void trace_export(const struct export *export, uint64_t addr, uint64_t size,
			 const void *caller)
{
	struct pd_trace_note note = {
		.addr = addr,
		.size = size,
		.extra = (uint64_t) export->fd,
		.number = export->number,
		.buffer_id = export->buffer_id,
		.device = export->memory.device,
		.stack = pd_trace_caller(caller),
	};
	uint64_t now = pd_ticks();

	pd_trace_note(PD_EV_EXPORT, &note, now, now);
}

void pd_exported(uint64_t addr, uint64_t size, int fd, const void *caller)
{
	PD_UNCANCELLED;
	int saved = errno;
	struct export export;
	bool remembered;

	if (!pd_tracing(PD_EV_EXPORT) && !pd_tracing(PD_EV_OUTLIVED))
		return;
	export = describe(addr, size, fd);
	pd_lock();
	export.number = ++last_number;
	remembered = export.identity && has_room();
	if (remembered)
		exports[export_count++] = export;
	say_whether_any();
	pd_unlock();
	trace_export(&export, addr, size, caller);
	if (!remembered)
		pd_trace_error("a dma-buf of the program's is not watched: there are too many",
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

void pd_export_imported(int fd, const void *by)
{
	PD_UNCANCELLED;
	int saved = errno;
	uint64_t identity;
	struct export *export;

	if (!any())
		return;
	identity = pd_descriptor_identity(fd);
	pd_lock();
	export = identity ? of_file(identity) : NULL;
	if (export && import_count < MOST) {
		export->imports++;
		imports[import_count++] = (struct import){by, export->number};
	}
	pd_unlock();
	errno = saved;
}

void pd_export_let_go(const void *by)
{
	PD_UNCANCELLED;

	/* Relaxed: a caller that lets go has imported before, and sees at least that. */
	if (!__atomic_load_n(&import_count, __ATOMIC_RELAXED))
		return;
	pd_lock();
	for (uint32_t i = import_count; i-- > 0;) {
		if (imports[i].by != by)
			continue;
		for (uint32_t e = 0; e < export_count; e++)
			if (exports[e].number == imports[i].export)
				exports[e].imports--;
		imports[i] = imports[import_count - 1];
		__atomic_store_n(&import_count, import_count - 1, __ATOMIC_RELAXED);
	}
	pd_unlock();
}

/* ---- the memory ends ---------------------------------------------------------------------- */

static void trace_outlived(const struct export *export, enum pindown_reason reason)
{
	struct pd_trace_note note = {
		.addr = export->memory.base,
		.size = export->memory.end - export->memory.base,
		.extra = (uint64_t) export->fd,
		.number = export->number,
		.buffer_id = export->buffer_id,
		.device = export->memory.device,
		.reason = (uint16_t)reason,
		.flags = (uint16_t)((is_open(export) ? PD_TRACE_IN_USE : 0) |
				    (export->imports ? PD_TRACE_IMPORTED : 0)),
	};
	uint64_t now = pd_ticks();

	if (note.flags)
		pd_trace_note(PD_EV_OUTLIVED, &note, now, now);
}

/* Lock held. Those that the scope covers, as many as there is room for; they are forgotten. */
static unsigned take(const struct pd_scope *scope, struct export *taken, unsigned most)
{
	unsigned count = 0;

	for (uint32_t i = export_count; i-- > 0 && count < most;)
		if (pd_scope_covers(scope, &exports[i].memory)) {
			taken[count++] = exports[i];
			forget(&exports[i]);
		}
	say_whether_any();
	return count;
}

void pd_exports_end(const struct pd_scope *scope, enum pindown_reason reason)
{
	struct export taken[16];
	unsigned count;
	int saved;

	if (!any())
		return;
	saved = errno;
	do {
		pd_lock();
		count = take(scope, taken, 16);
		pd_unlock();
		for (unsigned i = 0; i < count; i++)
			trace_outlived(&taken[i], reason);
	} while (count == 16);
	errno = saved;
}

/* The child has the descriptors, but the memory and its end are the parent's. */
void pd_exports_fork_child(void)
{
	export_count = import_count = 0;
}
