// SPDX-License-Identifier: MIT
/* Finds the processes that run under libpindown.so and copies their pages. */
#define _GNU_SOURCE
#include "tools/system/processes.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/memory/safe_read.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/trace/counters.h"
#include "tools/system/tree.h"

/* ---- processes ----------------------------------------------------------------------------- */

/* A number in /proc/PID/stat, counted from 1; 0 if there is none that we may see. */
static uint64_t stat_of(uint32_t pid, unsigned wanted)
{
	char *text = tree_read("proc/%u/stat", pid), *at = text ? strrchr(text, ')') : NULL;
	uint64_t value = 0;

	for (unsigned field = 2; at && field < wanted; field++)
		at = strchr(at + 1, ' ');
	if (at)
		value = strtoull(at + 1, NULL, 10);
	release(text);
	return value;
}

/* The start time of a process, as in the name of its file; 0 if there is none that we may see. */
static uint64_t start_of(uint32_t pid)
{
	return stat_of(pid, 22);
}

uint32_t process_parent(uint32_t pid)
{
	return (uint32_t)stat_of(pid, 4);
}

bool processes_parse(char **texts, uint32_t *pids, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned long long pid;
		char *end;

		errno = 0;
		pid = strtoull(texts[i], &end, 10);
		if (texts[i][0] < '0' || texts[i][0] > '9' || *end || errno || !pid ||
		    pid > INT32_MAX) {
			complain("%s: must be a process id", texts[i]);
			return false;
		}
		pids[i] = (uint32_t)pid;
	}
	return true;
}

bool processes_have(const struct processes *all, uint32_t pid)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->list[i].pid == pid)
			return true;
	complain("process %u is not found: it has ended, belongs to another user, does not run "
		 "under libpindown.so, has registered no memory yet, or has PINDOWN_TOP=0",
		 pid);
	return false;
}

static uint64_t our_namespace(const char *link)
{
	struct stat status;

	return stat(link, &status) == 0 ? status.st_ino : 0;
}

/* Whether the process has executed another program since; false when that is unknown. */
static bool is_another_program(const struct pdn_top_page *live)
{
	char path[64];
	struct stat status;

	snprintf(path, sizeof(path), "/proc/%u/exe", live->pid);
	return live->exe_inode && stat(path, &status) == 0 &&
	       (status.st_ino != live->exe_inode || status.st_dev != live->exe_device);
}

static void read_command(struct process *process)
{
	char *text = tree_read("proc/%u/comm", process->pid);

	snprintf(process->command, sizeof(process->command), "%s", text && *text ? text : "?");
	text_make_printable(process->command, strlen(process->command));
	release(text);
}

char *process_command_line(const struct process *process)
{
	char words[16384];
	size_t length = tree_bytes(words, sizeof(words) - 1, "proc/%u/cmdline", process->pid);

	while (length && !words[length - 1])
		length--;
	words[length] = '\0';
	for (size_t i = 0; i < length; i++)
		if (!words[i])
			words[i] = ' ';
	text_make_printable(words, length);
	return text_of("%s", length ? words : process->command);
}

/* ---- pages --------------------------------------------------------------------------------- */

union page {
	struct pdn_top_page live;
	char bytes[PDN_TOP_BYTES];
};

/* Neither the file nor the page can be trusted: any user can create them. */
static bool is_sane(const struct pdn_top_page *live, uint32_t pid, uint64_t start)
{
	return memcmp(live->magic, PDN_TOP_MAGIC, sizeof(live->magic)) == 0 && live->pid == pid &&
	       live->start == start && live->slots <= PDN_TOP_SLOTS &&
	       live->stats_size <= sizeof(live->room) &&
	       memchr(live->trace, '\0', sizeof(live->trace));
}

/*
 * Copies the page. The statistics are consistent when the sequence number is even and does not
 * change during the copy. The fences: pair with the releases in the process (cache/show/page.c).
 *
 * The segment is its owner's: one of huge pages that were never reserved raises SIGBUS where none
 * is free. So it is read by a system call only.
 */
static bool copy_whole(union page *page, uint64_t at)
{
	const uint64_t sequence_at = at + offsetof(struct pdn_top_page, sequence);

	for (unsigned tries = 0; tries < 1000; tries++) {
		uint32_t before, after;

		if (!pdn_safe_read(&before, sequence_at, sizeof(before)))
			return false;
		pdn_full_fence();
		if (!pdn_safe_read(page, at, sizeof(*page)))
			return false;
		pdn_full_fence();
		if (!pdn_safe_read(&after, sequence_at, sizeof(after)))
			return false;
		if (!(before & 1) && after == before)
			return true;
	}
	return false;
}

/* Copies the page that a file names, if the owner of the file, `user`, owns it too. */
static bool read_segment(const struct pdn_top_page *head, uid_t user, union page *page)
{
	struct shmid_ds about;
	void *at;
	bool whole;

	if (shmctl(head->segment, IPC_STAT, &about) != 0 || about.shm_segsz != sizeof(*page) ||
	    about.shm_perm.uid != user)
		return false;
	at = shmat(head->segment, NULL, SHM_RDONLY);
	if (at == (void *)-1)
		return false;
	whole = copy_whole(page, (uint64_t)(uintptr_t)at);
	shmdt(at);
	return whole && is_sane(&page->live, head->pid, head->start);
}

static void add_slots(struct process *process, const union page *page)
{
	const struct pdn_top_slot *slots =
		(const struct pdn_top_slot *)(const void *)(page->bytes + PDN_TOP_SLOTS_AT);

	for (unsigned i = 0; i < page->live.slots; i++) {
		process->stats.hits += slots[i].hits;
		process->stats.misses += slots[i].misses;
		process->stats.tag_checks += slots[i].tag_checks;
	}
}

/* A traced process keeps these counters in its trace. */
static void take_from_trace(struct process *process, const char *trace)
{
	struct counters counters;

	process->traced = *trace != '\0';
	if (!process->traced || !trace_counters(trace, &counters))
		return;
	process->stats.hits = counters.hits;
	process->stats.misses = counters.misses;
	process->stats.tag_checks = counters.tag_checks;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void take(struct process *process, const union page *page)
{
	size_t size = sizeof(process->stats);

	process->before = process->stats;
	process->seen_before = process->seen_at;
	process->seen_at = now();
	memset(&process->stats, 0, size);
	memcpy(&process->stats, &page->live.stats,
	       page->live.stats_size < size ? page->live.stats_size : size);
	process->stats.backend[sizeof(process->stats.backend) - 1] = '\0';
	process->began = page->live.began;
	process->rank = page->live.rank;
	process->segment = page->live.segment;
	for (unsigned i = 0; i < PDN_TOP_DEVICES; i++)
		process->device_bytes[i] = page->live.devices[i].bytes;
	add_slots(process, page);
	take_from_trace(process, page->live.trace);
}

/* ---- the folders --------------------------------------------------------------------------- */

static struct process *find(struct processes *all, uint32_t pid, uint64_t start)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->list[i].pid == pid && all->list[i].start == start)
			return &all->list[i];
	return NULL;
}

static struct process *add(struct processes *all, uint32_t pid, uint64_t start, uid_t user)
{
	struct process *process;

	all->list = grow(all->list, &all->capacity, all->count, sizeof(*all->list));
	process = &all->list[all->count++];
	memset(process, 0, sizeof(*process));
	process->pid = pid;
	process->start = start;
	process->user = user;
	return process;
}

enum what { LEFTOVER, STRANGE, ALIVE, OTHER_RELEASE };

/* A page counts only if its file belongs to the user of the process. */
static bool is_owners(uid_t user, uint32_t pid)
{
	char path[40];
	struct stat status;

	snprintf(path, sizeof(path), "/proc/%u", pid);
	return stat(path, &status) == 0 && status.st_uid == user;
}

/*
 * Where /proc tells nothing of a living process, as its reader is confined, the kernel knows it. In
 * another time namespace than the process's own, /proc shows another start time.
 */
static bool has_ended(const struct pdn_top_page *head)
{
	uint64_t now = 0;

	if (head->time_namespace == our_namespace("/proc/self/ns/time"))
		now = start_of(head->pid);
	return now ? now != head->start : kill((pid_t)head->pid, 0) != 0 && errno == ESRCH;
}

/* Whether a file is that of a living process under another release, with a page of other form. */
static bool is_of_another_release(int fd, uint32_t pid, uint64_t start)
{
	static const char family[] = PDN_TOP_FAMILY;
	char magic[sizeof(PDN_TOP_MAGIC)];
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
	       pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
	       memcmp(magic, family, strlen(family)) == 0 &&
	       memcmp(magic, PDN_TOP_MAGIC, sizeof(magic)) != 0 && start_of(pid) == start &&
	       is_owners(status.st_uid, pid);
}

static enum what read_page(int fd, uint32_t pid, uint64_t start, union page *page)
{
	struct pdn_top_page head;
	struct stat status;

	if (is_of_another_release(fd, pid, start))
		return OTHER_RELEASE;
	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
	    pread(fd, &head, sizeof(head), 0) != sizeof(head) || !is_sane(&head, pid, start))
		return STRANGE;
	/* A pid has no meaning outside its namespace. */
	if (head.pid_namespace != our_namespace("/proc/self/ns/pid"))
		return STRANGE;
	if (has_ended(&head))
		return LEFTOVER;
	if (!is_owners(status.st_uid, pid) || is_another_program(&head) ||
	    !read_segment(&head, status.st_uid, page))
		return STRANGE;
	memcpy(page->live.trace, head.trace, sizeof(head.trace));
	page->live.segment = head.segment;
	return ALIVE;
}

static void look_at(struct processes *all, const char *folder, const char *name)
{
	unsigned long long start;
	union page page;
	char path[PATH_MAX];
	struct stat status;
	uint32_t pid;
	int length = 0, fd;

	if (sscanf(name, PDN_TOP_PREFIX "%u.%llu%n", &pid, &start, &length) != 2 || name[length])
		return;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	switch (read_page(fd, pid, start, &page)) {
	case ALIVE:
		if (fstat(fd, &status) == 0) {
			struct process *process = find(all, pid, start);

			if (!process)
				process = add(all, pid, start, status.st_uid);
			take(process, &page);
			read_command(process);
		}
		break;
	case LEFTOVER:
		unlink(path);
		break;
	case OTHER_RELEASE:
		all->others++;
		break;
	case STRANGE:
		break;
	}
	close(fd);
}

static void look_into(struct processes *all, const char *folder)
{
	const struct dirent *entry;
	DIR *opened = folder && folder[0] == '/' ? opendir(folder) : NULL;

	while (opened && (entry = readdir(opened)))
		look_at(all, folder, entry->d_name);
	if (opened)
		closedir(opened);
}

static int by_number(const void *a, const void *b)
{
	const struct process *of_a = a, *of_b = b;

	return of_a->pid < of_b->pid ? -1 : of_a->pid > of_b->pid;
}

void processes_read(struct processes *all)
{
	uint64_t begin = now();
	unsigned kept = 0;

	all->others = 0;
	look_into(all, "/dev/shm");
	look_into(all, getenv("XDG_RUNTIME_DIR"));
	for (unsigned i = 0; i < all->count; i++)
		if (all->list[i].seen_at >= begin)
			all->list[kept++] = all->list[i];
	all->count = kept;
	sort(all->list, all->count, sizeof(*all->list), by_number);
}

void processes_free(struct processes *all)
{
	release(all->list);
	*all = (struct processes){0};
}
