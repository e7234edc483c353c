// SPDX-License-Identifier: MIT
/* pindown doctor --try: starts the attempts, waits for each, and prints what works. */
#define _GNU_SOURCE
#include "tools/doctor/try.h"

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

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/ui/json.h"

/* ---- children ------------------------------------------------------------------------------- */

/* A child that holds the write end of a pipe, so that the other end tells when it is gone. */
struct child {
	pid_t pid;
	int gone;
};

/* In the child it returns true. */
static bool start(struct child *child)
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
 * A number that grows while attempts go on. Relaxed: the child stores plainly in try_road(), and
 * the sum is only compared with an older one.
 */
static unsigned progress(const struct attempt *attempts)
{
	unsigned sum = 0;

	for (unsigned i = 0; attempts && i < ROADS; i++)
		sum += __atomic_load_n(&attempts[i].stage, __ATOMIC_RELAXED) +
		       __atomic_load_n(&attempts[i].ended, __ATOMIC_RELAXED);
	return sum;
}

/* Whether the child ends, where each stage of its attempts (NULL: it makes none) has that long. */
static bool is_gone_within(const struct child *child, unsigned seconds,
			   const struct attempt *attempts)
{
	struct pollfd end = {.fd = child->gone, .events = POLLIN};
	int64_t until = now_ms() + (int64_t)seconds * 1000;
	unsigned before = progress(attempts);

	while (poll(&end, 1, 50) <= 0) {
		if (progress(attempts) != before) {
			before = progress(attempts);
			until = now_ms() + (int64_t)seconds * 1000;
		}
		if (now_ms() >= until)
			return false;
	}
	return true;
}

/*
 * Returns the signal that ended the child, -1 if it exited, 0 if it had to be killed. A child that
 * hangs in the kernel can't be killed: it is left behind.
 */
static int wait_for(struct child *child, unsigned patience, const struct attempt *attempts)
{
	bool in_time;
	int status = 0;

	if (child->pid < 0)
		return 0;
	in_time = is_gone_within(child, patience, attempts);
	if (!in_time)
		kill(child->pid, SIGKILL);
	if (in_time || is_gone_within(child, 5, NULL))
		while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
			;
	close(child->gone);
	return !in_time ? 0 : WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

/* Memory that children write to and that starts as zeroes. */
static void *shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* ---- what there is -------------------------------------------------------------------------- */

static void fill_list(struct trials_list *list)
{
	list->has_verbs = try_verbs_begin();
	if (list->has_verbs)
		list->cards = try_verbs_list(list->card, MOST_CARDS);
	list->cuda_error = try_cuda_begin();
	if (list->cuda_error)
		return;
	list->gpus = try_cuda_count();
	list->gpus = list->gpus < MOST_GPUS ? list->gpus : MOST_GPUS;
	for (int i = 0; i < list->gpus; i++)
		try_cuda_address(i, list->gpu[i], sizeof(list->gpu[i]));
}

static void make_list(struct trials *trials)
{
	struct trials_list *list = shared(sizeof(*list));
	struct child child;

	if (!list)
		return;
	if (start(&child)) {
		fill_list(list);
		_exit(0);
	}
	wait_for(&child, trials->patience, NULL);
	trials->list = *list;
	munmap(list, sizeof(*list));
}

/* ---- the attempts --------------------------------------------------------------------------- */

static struct attempt *attempts_of(const struct trials *trials, int gpu, int card)
{
	return &trials->attempts[((size_t)gpu * (size_t)trials->list.cards + (size_t)card) * ROADS];
}

/* One child makes all attempts with a pair. If it stops in one, another child makes the rest. */
static void try_pair(struct trials *trials, int gpu, int card, struct attempt *attempts)
{
	unsigned from = 0;

	memset(attempts, 0, ROADS * sizeof(*attempts));
	while (from < ROADS) {
		struct child child;
		int number;

		if (start(&child)) {
			try_verbs_begin();
			try_cuda_begin();
			for (; from < ROADS; from++)
				try_road(gpu, trials->list.card[card], (enum road)from,
					 &attempts[from]);
			_exit(0);
		}
		number = wait_for(&child, trials->patience, attempts);
		while (from < ROADS && attempts[from].ended)
			from++;
		if (from < ROADS)
			attempts[from++].signal = number;
	}
	memcpy(attempts_of(trials, gpu, card), attempts, ROADS * sizeof(*attempts));
}

void trials_make(struct trials *trials)
{
	struct attempt *attempts = shared(ROADS * sizeof(*attempts));
	unsigned pairs;

	make_list(trials);
	pairs = trials_pairs(trials);
	trials->attempts = allocate((pairs * ROADS + 1) * sizeof(*trials->attempts));
	for (unsigned i = 0; attempts && i < pairs; i++)
		try_pair(trials, (int)i / trials->list.cards, (int)i % trials->list.cards,
			 attempts);
	if (attempts)
		munmap(attempts, ROADS * sizeof(*attempts));
}

void trials_free(struct trials *trials)
{
	release(trials->attempts);
}

unsigned trials_pairs(const struct trials *trials)
{
	return (unsigned)trials->list.gpus * (unsigned)trials->list.cards;
}

unsigned trials_working(const struct trials *trials)
{
	unsigned working = 0;

	for (unsigned i = 0; i < trials_pairs(trials); i++) {
		bool works = false;

		for (unsigned road = 0; road < ROADS; road++)
			works |= trials->attempts[i * ROADS + road].stage == STAGE_DONE;
		working += works;
	}
	return working;
}

/* ---- output --------------------------------------------------------------------------------- */

enum { ROAD = 4, TEXT = ROAD + 16 };

static void print_attempt(const struct trials *trials, enum road road,
			  const struct attempt *attempt)
{
	bool works = attempt->stage == STAGE_DONE;
	bool is_absent = attempt_is_not_offered(road, attempt);
	char *text = attempt_text(road, attempt, trials->patience);
	const char *advice = attempt_advice(road, attempt);

	out_print("%*s%s%-14s%s  ", ROAD, "",
		  works	      ? out_green()
		  : is_absent ? out_plain()
			      : out_red(),
		  road_name(road), out_plain());
	out_wrapped(TEXT, TEXT, text);
	if (advice) {
		unsigned column = TEXT + (out.utf8 ? 2 : 3);

		out_print("%*s%s ", TEXT, "", out.utf8 ? "→" : "->");
		out_wrapped(column, column, advice);
	}
	release(text);
}

void trials_print(const struct trials *trials)
{
	const struct trials_list *list = &trials->list;

	out_print("\n%stried%s\n", out_bold(), out_plain());
	if (list->cuda_error)
		out_print("  no GPU: %s\n",
			  list->cuda_error < 0 ? "libcuda.so.1 is missing" : "cuInit fails");
	if (!list->has_verbs)
		out_print("  no RDMA device: libibverbs.so.1 is missing, or pindown was built "
			  "without "
			  "its header\n");
	else if (!list->cards)
		out_print("  no RDMA device: libibverbs finds none\n");
	for (int gpu = 0; gpu < list->gpus; gpu++)
		for (int card = 0; card < list->cards; card++) {
			const struct attempt *attempts = attempts_of(trials, gpu, card);

			out_print("  CUDA device %d (%s) and %s\n", gpu, list->gpu[gpu],
				  list->card[card]);
			for (unsigned road = 0; road < ROADS; road++)
				print_attempt(trials, (enum road)road, &attempts[road]);
		}
}

static void print_json_attempt(const struct trials *trials, int gpu, int card, enum road road)
{
	const struct attempt *attempt = &attempts_of(trials, gpu, card)[road];
	char *text = attempt_text(road, attempt, trials->patience);

	json_begin_object(NULL);
	json_number("gpu", (uint64_t)gpu);
	json_text("address", trials->list.gpu[gpu]);
	json_text("device", trials->list.card[card]);
	json_text("road", road_name(road));
	json_bool("works", attempt->stage == STAGE_DONE);
	json_text("text", text);
	json_text("advice", attempt_advice(road, attempt));
	json_number("registration_ns", attempt->pin_ns);
	json_number("registered_bytes", attempt->pin_ns ? TRY_BYTES : 0);
	json_end_object();
	release(text);
}

void trials_print_json(const struct trials *trials)
{
	json_begin_list("tries");
	for (int gpu = 0; gpu < trials->list.gpus; gpu++)
		for (int card = 0; card < trials->list.cards; card++)
			for (unsigned road = 0; road < ROADS; road++)
				print_json_attempt(trials, gpu, card, (enum road)road);
	json_end_list();
}
