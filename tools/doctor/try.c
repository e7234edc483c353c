// SPDX-License-Identifier: MIT
/* pindown doctor --try: starts the attempts, waits for each, and prints what works. */
#define _GNU_SOURCE
#include "tools/doctor/try.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/doctor/try_child.h"
#include "tools/ui/json.h"

enum { CUDA_OUT_OF_MEMORY = 2 };

/* ---- what there is -------------------------------------------------------------------------- */

/* Can memory of the GPU become a dma-buf? Without space for it nothing is known. */
static int export_error_of(int gpu)
{
	uint64_t addr;
	int fd, error;

	if (try_cuda_allocate(gpu, &addr, TRY_BYTES))
		return 0;
	error = try_cuda_export(addr, TRY_BYTES, false, &fd);
	if (error && !try_cuda_export(addr, TRY_BYTES, true, &fd))
		error = 0;
	if (!error)
		close(fd);
	try_cuda_free(addr);
	return error == CUDA_OUT_OF_MEMORY ? 0 : error;
}

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
	/* Last: the driver may hang in it. */
	for (int i = 0; i < list->gpus; i++)
		list->export_error[i] = export_error_of(i);
}

static void make_list(struct trials *trials)
{
	struct trials_list *list = child_memory(sizeof(*list));
	struct child child;

	if (!list)
		return;
	if (child_start(&child)) {
		fill_list(list);
		_exit(0);
	}
	child_wait(&child, trials->patience, NULL, 0);
	trials->list = *list;
	munmap(list, sizeof(*list));
}

/* ---- the attempts --------------------------------------------------------------------------- */

static struct attempt *attempts_of(const struct trials *trials, int gpu, int card)
{
	return &trials->attempts[((size_t)gpu * (size_t)trials->list.cards + (size_t)card) * ROADS];
}

struct pair {
	int gpu;
	const char *card;
};

static void begin(void)
{
	try_verbs_begin();
	try_cuda_begin();
}

static void make(const void *what, unsigned number, struct attempt *attempt)
{
	const struct pair *pair = what;

	try_road(pair->gpu, pair->card, (enum road)number, attempt);
}

static void try_pair(struct trials *trials, int gpu, int card, struct attempt *attempts)
{
	struct pair pair = {gpu, trials->list.card[card]};
	struct series series = {ROADS, begin, make, &pair};

	child_make(&series, trials->patience, attempts);
	memcpy(attempts_of(trials, gpu, card), attempts, ROADS * sizeof(*attempts));
}

void trials_make(struct trials *trials)
{
	struct attempt *attempts = child_memory(ROADS * sizeof(*attempts));
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

static void print_line(const char *road, const char *colour, const char *text, const char *advice)
{
	out_print("%*s%s%-14s%s  ", ROAD, "", colour, road, out_plain());
	out_wrapped(TEXT, TEXT, text);
	if (advice) {
		unsigned column = TEXT + (out.utf8 ? 2 : 3);

		out_print("%*s%s ", TEXT, "", out.utf8 ? "→" : "->");
		out_wrapped(column, column, advice);
	}
}

static void print_attempt(const struct trials *trials, enum road road,
			  const struct attempt *attempt)
{
	bool works = attempt->stage == STAGE_DONE;
	bool is_absent = attempt_is_not_offered(road, attempt);
	char *text = attempt_text(road, attempt, trials->patience);

	print_line(road_name(road),
		   works       ? out_green()
		   : is_absent ? out_plain()
			       : out_red(),
		   text, attempt_advice(road, attempt));
	release(text);
}

void trials_print(const struct trials *trials)
{
	const struct trials_list *list = &trials->list;

	out_print("\n%stried%s\n", out_bold(), out_plain());
	if (list->cuda_error < 0) {
		out_print("  no GPU: libcuda.so.1 is missing\n");
	} else if (list->cuda_error) {
		char *error = cuda_error_name(list->cuda_error);

		out_print("  no GPU: %s from cuInit\n", error);
		release(error);
	}
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
