// SPDX-License-Identifier: MIT
/* pindown doctor --try: child processes that make attempts, and may hang or crash in them. */
#define _GNU_SOURCE
#include "tools/doctor/try_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool child_start(struct child *child)
{
	const struct rlimit none = {0, 0};
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0) {
		child->pid = -1;
		return false;
	}
	child->pid = fork();
	child->gone = ends[0];
	if (child->pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		close(ends[0]);
		return true; /* the write end closes when the process ends */
	}
	close(ends[1]);
	return false;
}

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/*
 * A number that grows while attempts go on. Relaxed: the child stores plainly as it makes them, and
 * the sum is only compared with an older one.
 */
static unsigned progress(const struct attempt *attempts, unsigned count)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < count; i++)
		sum += __atomic_load_n(&attempts[i].stage, __ATOMIC_RELAXED) +
		       __atomic_load_n(&attempts[i].ended, __ATOMIC_RELAXED);
	return sum;
}

/* Whether the child ends, where each stage of its attempts has that long. */
static bool is_gone_within(const struct child *child, unsigned seconds,
			   const struct attempt *attempts, unsigned count)
{
	struct pollfd end = {.fd = child->gone, .events = POLLIN};
	int64_t until = now_ms() + (int64_t)seconds * 1000;
	unsigned before = progress(attempts, count);

	while (poll(&end, 1, 50) <= 0) {
		if (progress(attempts, count) != before) {
			before = progress(attempts, count);
			until = now_ms() + (int64_t)seconds * 1000;
		}
		if (now_ms() >= until)
			return false;
	}
	return true;
}

int child_wait(struct child *child, unsigned patience, const struct attempt *attempts,
	       unsigned count)
{
	bool in_time;
	int status = 0;

	if (child->pid < 0)
		return 0;
	in_time = is_gone_within(child, patience, attempts, count);
	if (!in_time)
		kill(child->pid, SIGKILL);
	if (in_time || is_gone_within(child, 5, NULL, 0))
		while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
			;
	close(child->gone);
	return !in_time ? 0 : WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static void make_from(const struct series *series, unsigned from, struct attempt *attempts)
{
	series->begin();
	for (; from < series->count; from++)
		series->make(series->what, from, &attempts[from]);
}

void child_make(const struct series *series, unsigned patience, struct attempt *attempts)
{
	unsigned from = 0;

	memset(attempts, 0, series->count * sizeof(*attempts));
	while (from < series->count) {
		struct child child;
		int number;

		if (child_start(&child)) {
			make_from(series, from, attempts);
			_exit(0);
		}
		number = child_wait(&child, patience, attempts, series->count);
		while (from < series->count && attempts[from].ended)
			from++;
		if (from < series->count)
			attempts[from++].signal = number;
	}
}

void *child_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}
