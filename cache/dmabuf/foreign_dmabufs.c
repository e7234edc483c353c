/* SPDX-License-Identifier: MIT */
/* Dma-bufs of the program's own: which memory they stand for, and those that outlive it. */
#define _GNU_SOURCE
#include "cache/dmabuf/foreign_dmabufs.h"

#include <errno.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/process/descriptor.h"
#include "cache/base/process/fork_gate.h"
#include "cache/base/memory/hashed.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/driver/driver.h"
#include "cache/end/work.h"
#include "cache/dmabuf/foreign_closed.h"
#include "cache/dmabuf/foreign_table.h"
#include "cache/trust/past.h"
#include "cache/pindown.h"
#include "cache/trust/recheck.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/stack/stack.h"
#include "cache/trust/volatile.h"

/* Found by `by`. */
struct import {
	struct pdn_hashed_link link; /* must be first */
	const void *by, *caller;
	uint32_t record, export; /* export: the first number of the record */
};

/* Under the lock. */
static struct pdn_hashed imports = PDN_HASHED(struct import);
static uint32_t last_number;

/* ---- exports ------------------------------------------------------------------------------ */

/*
 * The range lies in one allocation, or in adjacent mappings. If it does not, it may have been
 * rounded out to pages that other memory shares; then its middle is inside the allocation that was
 * meant, or that one is smaller than half a page and lies at an end. If it is another one, no part
 * of it is registered by this export: see part_of().
 */
static bool ask(uint64_t addr, uint64_t size, struct pdn_allocation *allocation)
{
	const uint64_t at[] = {addr, addr + size / 2, addr, addr + size - 1};
	int error = 0;

	for (unsigned i = 0; i < sizeof(at) / sizeof(*at); i++)
		if (pdn_driver_describe(at[i], i ? 1 : size, allocation, &error) == PINDOWN_OK)
			return true;
	return false;
}

/* Another thread may free the memory (guard.h): that is waited for. false: for too long. */
static bool begin_question(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	while (pdn_flight_begin(flight, begin, end) & PDN_GUARDED) {
		pdn_flight_end_unlocked(flight);
		if (!pdn_flight_wait(flight))
			return false;
	}
	return true;
}

static bool describe(uint64_t addr, uint64_t size, struct pdn_allocation *allocation)
{
	struct pdn_flight flight;
	bool found;

	if (!begin_question(&flight, addr, addr + size))
		return false;
	found = ask(addr, size, allocation);
	pdn_flight_end_unlocked(&flight);
	return found;
}

/* One number for an allocation: no other memory has the same ids, but at another time (past.h). */
static uint64_t identity_of(const struct pdn_allocation *allocation)
{
	uint64_t past = __atomic_load_n(&pdn_past_count, __ATOMIC_SEQ_CST);

	return pdn_hash(allocation->buffer_id + allocation->memory.base * 0x9e3779b97f4a7c15u +
			pdn_hash(allocation->mappings_hash + allocation->memory.end +
				 (past << 32))) |
	       1;
}

static bool is_wanted(void)
{
	return pdn_config()->enabled || pdn_tracing(PDN_EV_EXPORT) || pdn_tracing(PDN_EV_OUTLIVED);
}

uint64_t pdn_export_begins(uint64_t addr, uint64_t size)
{
	PDN_UNCANCELLED;
	int saved = errno;
	struct pdn_allocation allocation;
	uint64_t memory = 0;

	if (is_wanted())
		pdn_past_is_possible();
	if (is_wanted() && addr + size > addr && describe(addr, size, &allocation))
		memory = identity_of(&allocation);
	errno = saved;
	return memory;
}

static struct pdn_export make_export(uint64_t addr, uint64_t size, uint64_t flags, int fd,
				     uint64_t before)
{
	struct pdn_export export = {
		.memory = {.base = addr, .end = addr + size, .device = -1},
		.begin = addr,
		.length = size,
		.flags = flags,
		.fd = fd,
	};
	struct pdn_allocation allocation;

	/* If it is not the same as before, the dma-buf may be of memory that is gone by now. */
	if (before && describe(addr, size, &allocation) && identity_of(&allocation) == before) {
		export.memory = allocation.memory;
		export.buffer_id = allocation.buffer_id;
		export.mappings_hash = allocation.mappings_hash;
	}
	return export;
}

static struct pdn_trace_note note_of(const struct pdn_export *export, enum pindown_reason reason)
{
	return (struct pdn_trace_note){
		.addr = export->begin,
		.size = export->length,
		.extra = (uint64_t) export->fd,
		.number = export->number,
		.buffer_id = export->buffer_id,
		.device = export->memory.device,
		.reason = (uint16_t)reason,
	};
}

static inline __attribute__((always_inline)) void trace_now(enum pdn_event event,
							    const struct pdn_trace_note *note)
{
	uint64_t now = pdn_ticks();

	pdn_trace_note(event, note, now, now);
}

static void trace_export(const struct pdn_export *export, const void *caller)
{
	struct pdn_trace_note note;

	if (!pdn_tracing(PDN_EV_EXPORT))
		return;
	note = note_of(export, PINDOWN_REASON_FREED);
	note.stack = pdn_trace_caller(caller);
	trace_now(PDN_EV_EXPORT, &note);
}

static bool is_same_memory(const struct pdn_export *a, const struct pdn_export *b)
{
	return a->begin == b->begin && a->length == b->length && a->flags == b->flags &&
	       a->memory.base == b->memory.base && a->memory.end == b->memory.end &&
	       a->buffer_id == b->buffer_id && a->mappings_hash == b->mappings_hash;
}

static bool is_open(const struct pdn_export *export)
{
	struct pdn_file file;

	return pdn_file_of(export->fd, &file) && pdn_file_is(&file, &export->file);
}

/*
 * A driver may give the same file for each export of the same range, as the simulated one does. The
 * record of an earlier one whose descriptor is closed serves again: else there would be one more
 * for each export, for as long as any descriptor of the file is open. Lock held. 0: there is none.
 */
static uint32_t record_of_same(const struct pdn_export *export)
{
	uint32_t record = pdn_foreign_of_file(&export->file);

	return record && is_same_memory(pdn_foreign_at(record), export) ? record : 0;
}

/* Lock not held, as this asks the system. The number of that export; 0: there is none. */
static uint32_t closed_one_of_same(const struct pdn_export *export)
{
	struct pdn_export earlier = {.number = 0};
	uint32_t record;

	pdn_lock();
	record = record_of_same(export);
	if (record)
		earlier = *pdn_foreign_at(record);
	pdn_unlock();
	return record && (earlier.fd == export->fd || !is_open(&earlier)) ? earlier.number : 0;
}

static bool add_or_reuse(struct pdn_export *export, uint32_t closed)
{
	uint32_t record;
	bool ok = true;

	pdn_lock();
	record = closed ? record_of_same(export) : 0;
	export->seen = pdn_exports_search();
	if (record && pdn_foreign_at(record)->number == closed)
		pdn_foreign_exported_again(record, export);
	else
		ok = pdn_foreign_add(export);
	pdn_unlock();
	return ok;
}

static bool remember(struct pdn_export *export)
{
	uint32_t closed;

	if (!pdn_file_of(export->fd, &export->file))
		return false;
	closed = closed_one_of_same(export);
	if (add_or_reuse(export, closed))
		return true;
	pdn_exports_forget_closed(true);
	return add_or_reuse(export, closed);
}

static uint32_t next_number(void)
{
	uint32_t number;

	pdn_lock();
	number = ++last_number;
	pdn_unlock();
	return number;
}

/*
 * A stream frees its memory later, and nobody reports when: as if it had been made before the free.
 */
static void end_if_leaving(const struct pdn_export *export)
{
	const struct pdn_scope scope = {
		.kind = PDN_GUARD_RANGE, .begin = export->memory.base, .end = export->memory.end};
	bool leaving;

	pdn_lock();
	leaving = pdn_is_leaving(scope.begin, scope.end);
	pdn_unlock();
	if (leaving)
		pdn_exports_end(&scope, PINDOWN_REASON_ORDERED);
}

void pdn_exported(uint64_t addr, uint64_t size, uint64_t flags, int fd, uint64_t before,
		  const void *caller)
{
	PDN_UNCANCELLED;
	const struct pdn_scope all = {.kind = PDN_GUARD_ALL};
	uint32_t past = __atomic_load_n(&pdn_past_count, __ATOMIC_SEQ_CST);
	int saved = errno;
	struct pdn_export export;
	bool remembered;

	if (!is_wanted() || addr + size <= addr)
		return;
	export = make_export(addr, size, flags, fd, before);
	export.number = export.first = next_number();
	pdn_exports_forget_closed(false);
	remembered = remember(&export);
	trace_export(&export, caller);
	if (!remembered)
		pdn_trace_error("a dma-buf of the program is not watched: there are too many", addr,
				size, 0);
	end_if_leaving(&export);
	/* A checkpoint since this call began: its end of exports may not have seen this one. */
	if (past != __atomic_load_n(&pdn_past_count, __ATOMIC_SEQ_CST))
		pdn_exports_end(&all, PINDOWN_REASON_CONTEXT);
	errno = saved;
}

/* ---- which memory is it? ------------------------------------------------------------------ */

/*
 * Lock held. The export that a file stands for; 0: none is known, or it can't be told which it is.
 * Several exports of the same range are as good as one.
 */
static uint32_t only_one_of(const struct pdn_file *file)
{
	uint32_t first = pdn_foreign_of_file(file);

	for (uint32_t n = first; n && (n = pdn_foreign_next_of_file(n));)
		if (!is_same_memory(pdn_foreign_at(first), pdn_foreign_at(n)))
			return 0;
	return first;
}

/* Mostly without the lock. */
static bool look_up(const struct pdn_file *file, struct pdn_export *export)
{
	enum pdn_truth found = pdn_foreign_peek(file, export);
	uint32_t record;

	if (found != PDN_UNKNOWN)
		return found == PDN_TRUE;
	pdn_lock();
	record = only_one_of(file);
	if (record)
		*export = *pdn_foreign_at(record);
	pdn_unlock();
	return record;
}

static bool part_of(const struct pdn_export *export, uint64_t offset, uint64_t length,
		    uint32_t past, struct pdn_exported *part)
{
	if (!length || offset > export->length || length > export->length - offset)
		return false;
	*part = (struct pdn_exported){
		.addr = export->begin + offset,
		.memory = export->memory,
		.buffer_id = export->buffer_id,
		.mappings_hash = export->mappings_hash,
		.flags = export->flags,
		.past = past,
	};
	return part->addr < part->memory.end && part->memory.base < part->addr + length;
}

bool pdn_export_is_still_there(const struct pdn_exported *part)
{
	/* Without an id it is not known which memory it was. */
	return part->buffer_id &&
	       pdn_compare_memory(part->memory.base, part->memory.end, part->buffer_id,
				  part->mappings_hash) == PDN_TRUE &&
	       part->past == __atomic_load_n(&pdn_past_count, __ATOMIC_SEQ_CST);
}

bool pdn_buffer_is_still_there(uint64_t addr, uint64_t buffer_id)
{
	PDN_UNCANCELLED;

	return pdn_compare_memory(addr, addr + 1, buffer_id, 0) == PDN_TRUE;
}

bool pdn_region_is_still_there(const struct pindown_region *region)
{
	const struct pdn_memory memory = pdn_memory_of(region);

	return pdn_compare_memory(memory.base, memory.end, region->buffer_id, 0) == PDN_TRUE;
}

bool pdn_export_find(int fd, uint64_t offset, uint64_t length, struct pdn_exported *part)
{
	PDN_UNCANCELLED;
	int saved = errno;
	struct pdn_export export;
	struct pdn_file file;
	uint32_t past;
	bool found;

	if (!pdn_exports_any())
		return false;
	pdn_past_look();
	past = __atomic_load_n(&pdn_past_ended, __ATOMIC_SEQ_CST);
	found = pdn_file_of(fd, &file);
	errno = saved;
	return found && look_up(&file, &export) && part_of(&export, offset, length, past, part) &&
	       pdn_export_is_still_there(part);
}

static bool is_same_part(const struct pdn_exported *a, const struct pdn_exported *b)
{
	return a->addr == b->addr && a->buffer_id == b->buffer_id &&
	       a->mappings_hash == b->mappings_hash && a->flags == b->flags;
}

/* Forks wait until it is closed. It is noted at once, for the child of one that waits no longer. */
int pdn_export_open(int fd, uint64_t offset, uint64_t length, const struct pdn_exported *part)
{
	PDN_UNCANCELLED;
	struct pdn_exported now;
	int own;

	pdn_descriptor_begin();
	do
		own = pdn_descriptor_duplicate(fd);
	while (own == -EMFILE && pdn_dmabuf_close_kept());
	if (own >= 0)
		pdn_descriptor_note(own, pdn_descriptor_identity(own));
	if (own < 0) {
		pdn_descriptor_end();
	} else if (!pdn_export_find(own, offset, length, &now) || !is_same_part(part, &now)) {
		pdn_export_close(own);
		own = -1;
	}
	return own;
}

void pdn_export_close(int fd)
{
	pdn_descriptor_close(fd);
	pdn_descriptor_end();
}

/* ---- imports ------------------------------------------------------------------------------ */

static uint64_t hash_of(const void *by)
{
	return pdn_hash((uintptr_t)by);
}

/* Lock held. 0: it has none. */
static uint32_t import_of(const void *by)
{
	uint32_t n = pdn_hashed_first(&imports, hash_of(by));

	while (n && ((struct import *)pdn_hashed_at(&imports, n))->by != by)
		n = pdn_hashed_next(&imports, n);
	return n;
}

/* Lock held. */
static void add_import(uint32_t record, const void *by, const void *caller)
{
	uint32_t n = record ? pdn_hashed_add(&imports, hash_of(by)) : 0;
	struct import *import;

	if (!n)
		return;
	import = pdn_hashed_at(&imports, n);
	import->by = by;
	import->caller = caller;
	import->record = record;
	import->export = pdn_foreign_at(record)->first;
	pdn_foreign_at(record)->imports++;
}

void pdn_export_imported(int fd, const void *by, const void *caller)
{
	PDN_UNCANCELLED;
	int saved = errno;
	struct pdn_file file;

	if (pdn_exports_any() && pdn_file_of(fd, &file)) {
		pdn_lock();
		add_import(pdn_foreign_of_file(&file), by, caller);
		pdn_unlock();
	}
	errno = saved;
}

/* Lock held. The export may have ended before, and another one have its record. */
static void let_go(uint32_t n)
{
	const struct import *import = pdn_hashed_at(&imports, n);
	struct pdn_export *export = pdn_foreign_at(import->record);

	if (export->link.taken && export->first == import->export)
		export->imports--;
	pdn_hashed_remove(&imports, n);
}

static void let_go_all(const void *by)
{
	PDN_UNCANCELLED;
	uint32_t n;

	pdn_lock();
	while ((n = import_of(by)) != 0)
		let_go(n);
	pdn_unlock();
}

/* Relaxed: a caller that lets go has imported before, and sees at least that. */
void pdn_export_let_go(const void *by)
{
	if (__atomic_load_n(&imports.count, __ATOMIC_RELAXED))
		let_go_all(by);
}

/* ---- the memory ends ---------------------------------------------------------------------- */

/* An export that has ended, and the record that its imports name. */
struct taken {
	struct pdn_export export;
	uint32_t record;
};

/* Lock not held. The import of it after this number, and its caller; 0: there is no more. */
static uint32_t next_import(const struct taken *taken, uint32_t n, const void **caller)
{
	const struct import *import;

	pdn_lock();
	while (++n <= imports.table.used) {
		import = pdn_hashed_at(&imports, n);
		if (!pdn_hashed_is_taken(&imports, n) || import->record != taken->record ||
		    import->export != taken->export.first)
			continue;
		*caller = import->caller;
		pdn_unlock();
		return n;
	}
	pdn_unlock();
	return 0;
}

/* These registrations can't be revoked here; as those of the cache, each is named. */
static void trace_importers(const struct taken *taken, enum pindown_reason reason)
{
	struct pdn_trace_note note;
	const void *caller = NULL;

	if (!pdn_tracing(PDN_EV_HOLDER) || !taken->export.imports)
		return;
	note = note_of(&taken->export, reason);
	note.flags = PDN_TRACE_IMPORTED;
	note.name = "uncached";
	note.stack = pdn_trace_stack(true);
	for (uint32_t n = 0; (n = next_import(taken, n, &caller)) != 0;) {
		note.origin = caller ? pdn_trace_origin((uintptr_t)caller) : 0;
		trace_now(PDN_EV_HOLDER, &note);
	}
}

static void trace_outlived(const struct pdn_export *export, enum pindown_reason reason)
{
	struct pdn_trace_note note;

	if (!pdn_tracing(PDN_EV_OUTLIVED))
		return;
	note = note_of(export, reason);
	note.addr = export->memory.base;
	note.size = export->memory.end - export->memory.base;
	note.flags = (uint16_t)((is_open(export) ? PDN_TRACE_IN_USE : 0) |
				(export->imports ? PDN_TRACE_IMPORTED : 0));
	if (note.flags)
		trace_now(PDN_EV_OUTLIVED, &note);
}

/* The line of PINDOWN_HELD=warn, and the first one of retire. */
static void say_outlived(const struct pdn_export *export)
{
	bool once = pdn_config()->held == PDN_HELD_RETIRE, open;
	static bool said;

	if (once ? __atomic_load_n(&said, __ATOMIC_RELAXED) : pdn_config()->held != PDN_HELD_WARN)
		return;
	open = is_open(export); /* a system call */
	if ((!open && !export->imports) ||
	    (once && __atomic_exchange_n(&said, true, __ATOMIC_RELAXED)))
		return;
	pdn_log(PDN_LOG_WARN,
		"%llu bytes of GPU memory at 0x%llx were freed while the program has %s: that "
		"keeps them, and shows the old memory%s",
		(unsigned long long)export->length, (unsigned long long)export->begin,
		open ? "its own dma-buf of them open" : "a registration of its own dma-buf",
		once ? " (said once: pindown report names all)" : "");
}

bool pdn_exports_may_be_in(const struct pdn_scope *scope)
{
	return pdn_exports_any() && (scope->kind != PDN_GUARD_RANGE ||
				     pdn_foreign_may_overlap(scope->begin, scope->end));
}

/* Lock held. One whose memory the scope covers, from this record on; 0: none. */
static uint32_t next_covered(const struct pdn_scope *scope, uint32_t record)
{
	if (scope->kind == PDN_GUARD_RANGE)
		return pdn_foreign_overlapping(scope->begin, scope->end);
	while ((record = pdn_foreign_after(record)) != 0)
		if (pdn_scope_covers(scope, &pdn_foreign_at(record)->memory))
			return record;
	return 0;
}

#define AT_ONCE 16u

/* Lock held. Those that the scope covers, as many as there is room for; they are forgotten. */
static unsigned remove_covered(const struct pdn_scope *scope, uint32_t *record, struct taken *taken)
{
	unsigned count = 0;

	while (count < AT_ONCE && (*record = next_covered(scope, *record)) != 0) {
		taken[count].export = *pdn_foreign_at(*record);
		taken[count++].record = *record;
		pdn_foreign_remove(*record);
	}
	return count;
}

static void end_exports(const struct pdn_scope *scope, enum pindown_reason reason)
{
	PDN_UNCANCELLED;
	struct taken taken[AT_ONCE];
	uint32_t record = 0;
	unsigned count;
	int saved = errno;

	do {
		pdn_lock();
		count = remove_covered(scope, &record, taken);
		pdn_unlock();
		for (unsigned i = 0; i < count; i++) {
			trace_importers(&taken[i], reason);
			trace_outlived(&taken[i].export, reason);
			say_outlived(&taken[i].export);
		}
	} while (count == AT_ONCE);
	errno = saved;
}

void pdn_exports_end(const struct pdn_scope *scope, enum pindown_reason reason)
{
	if (pdn_exports_may_be_in(scope))
		end_exports(scope, reason);
}
