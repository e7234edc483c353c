/* SPDX-License-Identifier: MIT */
/* The scripted driver's exports: pipes, whose other ends tell which processes still have them. */
#define _GNU_SOURCE
#include "tests/unit/support/fake_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_EXPORTS 16384
#define PAGE_2M	    ((uint64_t)2 << 20)
#define IDS	    16

struct dmabuf {
	uint64_t ids[IDS]; /* of the memory that the export keeps; 0: unused */
	uint64_t bytes;
	int reader;
	bool open;
};

static struct dmabuf exports[MAX_EXPORTS];
static unsigned exports_used, exports_made;

static bool still_open(struct dmabuf *e)
{
	struct pollfd p = {.fd = e->reader};

	if (e->open && poll(&p, 1, 0) == 1 && (p.revents & POLLHUP)) {
		close(e->reader);
		e->open = false;
	}
	return e->open;
}

static bool id_alive(uint64_t id)
{
	for (unsigned i = 0; i < fake_memories; i++)
		if (fake_memory[i].alive && fake_memory[i].id == id)
			return true;
	return false;
}

static unsigned open_exports(bool (*counts_in)(struct dmabuf *, uint64_t), uint64_t id)
{
	unsigned n = 0;

	pthread_mutex_lock(&fake_lock);
	for (unsigned i = 0; i < exports_used; i++)
		if (still_open(&exports[i]) && counts_in(&exports[i], id))
			n++;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

static bool any(struct dmabuf *e, uint64_t id)
{
	(void)e, (void)id;
	return true;
}

static bool of_dead(struct dmabuf *e, uint64_t id)
{
	(void)id;
	for (unsigned i = 0; i < IDS; i++)
		if (e->ids[i] && !id_alive(e->ids[i]))
			return true;
	return false;
}

static bool of_id(struct dmabuf *e, uint64_t id)
{
	for (unsigned i = 0; i < IDS; i++)
		if (e->ids[i] == id)
			return true;
	return false;
}

unsigned fake_open_exports(void)
{
	return open_exports(any, 0);
}

unsigned fake_open_exports_of_dead(void)
{
	return open_exports(of_dead, 0);
}

unsigned fake_open_exports_of(uint64_t id)
{
	return open_exports(of_id, id);
}

unsigned fake_exports_made(void)
{
	pthread_mutex_lock(&fake_lock);
	unsigned n = exports_made;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

static void lock_for_fork(void)
{
	pthread_mutex_lock(&fake_lock);
}

static void unlock_after_fork(void)
{
	pthread_mutex_unlock(&fake_lock);
}

void fake_handle_forks(void)
{
	pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);
}

static bool is_of_an_export(const struct stat *st)
{
	struct stat reader;

	for (unsigned i = 0; i < exports_used; i++)
		if (exports[i].open && fstat(exports[i].reader, &reader) == 0 &&
		    reader.st_dev == st->st_dev && reader.st_ino == st->st_ino)
			return true;
	return false;
}

/*
 * Looks at all descriptors: the cache moves an export to a number halfway up the process's limit.
 */
unsigned fake_descriptors_here(void)
{
	union {
		struct dirent64 entry;
		char bytes[4096];
	} some;
	int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned n = 0;
	long got;

	pthread_mutex_lock(&fake_lock);
	while ((got = syscall(SYS_getdents64, list, some.bytes, sizeof(some))) > 0)
		for (long at = 0; at < got;) {
			const struct dirent64 *entry = (void *)(some.bytes + at);
			int fd = atoi(entry->d_name), how = fcntl(fd, F_GETFL);
			struct stat st;

			if (how != -1 && (how & O_ACCMODE) == O_WRONLY && fstat(fd, &st) == 0 &&
			    S_ISFIFO(st.st_mode) && is_of_an_export(&st))
				n++;
			at += entry->d_reclen;
		}
	pthread_mutex_unlock(&fake_lock);
	close(list);
	return n;
}

static bool backed(uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < fake_memories; i++) {
		struct memory *m = &fake_memory[i];
		if (m->alive && m->kind <= FAKE_VMM && m->base < end && m->base + m->size > begin)
			return true;
	}
	return false;
}

/* Do all 2 MiB blocks of [base, end) hold memory that is alive and can be exported? */
static bool exportable(uint64_t base, uint64_t end)
{
	if (((base | end) & 4095) || base >= end)
		return false;
	for (uint64_t block = base & -PAGE_2M; block < end; block += PAGE_2M)
		if (!backed(block, block + PAGE_2M))
			return false;
	return true;
}

/*
 * What an export of [base, end) keeps alive: the allocation asked about, or all mappings of a VMM
 * range.
 */
static void kept_by_export(struct dmabuf *e, uint64_t base, uint64_t end)
{
	struct memory *asked = fake_find(fake_asked_last);
	unsigned n = 0;

	if (asked && asked->kind != FAKE_VMM) {
		e->ids[0] = asked->id;
		return;
	}
	for (unsigned i = 0; i < fake_memories && n < IDS; i++) {
		struct memory *m = &fake_memory[i];
		if (m->alive && m->kind == FAKE_VMM && m->base < end && m->base + m->size > base)
			e->ids[n++] = m->id;
	}
}

static uint64_t open_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < exports_used; i++)
		if (still_open(&exports[i]))
			bytes += exports[i].bytes;
	return bytes;
}

static struct dmabuf *unused_export(void)
{
	for (unsigned i = 0; i < exports_used; i++)
		if (!exports[i].open)
			return &exports[i];
	if (exports_used == MAX_EXPORTS) {
		fprintf(stderr, "fake driver: more than %d exports\n", MAX_EXPORTS);
		abort();
	}
	return &exports[exports_used++];
}

int fake_make_export(int *handle, uint64_t base, uint64_t size)
{
	struct memory *m = fake_find(fake_asked_last);
	int ends[2];

	if (fake_dmabuf_missing)
		return FAKE_NOT_SUPPORTED;
	if (!exportable(base, base + size))
		return FAKE_INVALID_VALUE;
	if (open_bytes() + size > fake_space)
		return FAKE_OUT_OF_MEMORY;
	if (pipe2(ends, 0))
		return FAKE_OPERATING_SYSTEM;
	int reader = fcntl(ends[0], F_DUPFD_CLOEXEC, 300);
	close(ends[0]);
	if (reader < 0) {
		close(ends[1]);
		return FAKE_OPERATING_SYSTEM;
	}
	struct dmabuf *made = unused_export();
	*made = (struct dmabuf){.bytes = size, .reader = reader, .open = true};
	kept_by_export(made, base, base + size);
	exports_made++;
	*handle = ends[1];
	if (fake_swaps && m) {
		fake_swaps--;
		m->id = ++fake_last_id;
	}
	return FAKE_SUCCESS;
}
