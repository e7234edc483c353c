// SPDX-License-Identifier: MIT
/* pindown doctor --try --storage: starts the attempts, waits for each, and prints what works. */
#define _GNU_SOURCE
#include "tools/doctor/storage.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/doctor/try_child.h"
#include "tools/ui/json.h"

/* ---- the attempts --------------------------------------------------------------------------- */

static struct attempt *attempts_of(const struct storage *storage, int gpu, unsigned place)
{
	return &storage->attempts[((size_t)gpu * storage->places.count + place) * STORE_ROADS];
}

struct pair {
	int gpu;
	const char *folder;
};

static void begin(void)
{
	try_cuda_begin();
}

static void make(const void *what, unsigned number, struct attempt *attempt)
{
	const struct pair *pair = what;

	try_storage(pair->gpu, pair->folder, (enum storage_road)number, attempt);
}

static void try_pair(const struct pair *pair, unsigned patience, struct attempt *attempts)
{
	struct series series = {STORE_ROADS, begin, make, pair};

	child_make(&series, patience, attempts);
	/* Of attempts that stopped. */
	for (unsigned road = 0; road < STORE_ROADS; road++)
		storage_unlink(pair->folder, &attempts[road]);
}

void storage_make(struct storage *storage, const struct trials *trials, const struct texts *folders)
{
	struct attempt *attempts = child_memory(STORE_ROADS * sizeof(*attempts));
	struct places *places = &storage->places;

	for (unsigned i = 0; i < folders->count; i++)
		places_add(places, place_of_folder(folders->list[i]));
	storage->attempts = allocate(((size_t)trials->list.gpus * places->count * STORE_ROADS + 1) *
				     sizeof(*storage->attempts));
	for (int gpu = 0; attempts && gpu < trials->list.gpus; gpu++)
		for (unsigned i = 0; i < places->count; i++) {
			struct pair pair = {gpu, places->list[i].folder};

			try_pair(&pair, trials->patience, attempts);
			memcpy(attempts_of(storage, gpu, i), attempts,
			       STORE_ROADS * sizeof(*attempts));
		}
	if (attempts)
		munmap(attempts, STORE_ROADS * sizeof(*attempts));
}

void storage_free(struct storage *storage)
{
	places_free(&storage->places);
	release(storage->attempts);
}

/* ---- the verdict ---------------------------------------------------------------------------- */

/* Whether any of the attempts with a pair counts. */
static bool any_road(const struct attempt *attempts, bool (*counts)(const struct attempt *))
{
	for (unsigned road = 0; road < STORE_ROADS; road++)
		if (counts(&attempts[road]))
			return true;
	return false;
}

static bool is_unknown(const struct attempt *attempt)
{
	return attempt->stage == STAGE_DONE && attempt->way == WAY_UNKNOWN;
}

static bool works(const struct attempt *attempt)
{
	return attempt->stage == STAGE_DONE;
}

/* Adds "; HOW in 2" to the sentence, unless the number is 0. */
static char *with_part(char *text, const char *how, unsigned number)
{
	char *longer;

	if (!number)
		return text;
	longer = text_of("%s; %s in %u", text, how, number);
	release(text);
	return longer;
}

char *storage_verdict(const struct storage *storage, const struct trials *trials, bool is_simulated)
{
	unsigned pairs = (unsigned)trials->list.gpus * storage->places.count;
	unsigned direct = 0, unknown = 0, host = 0;
	char *text;

	for (unsigned i = 0; i < pairs; i++) {
		const struct attempt *attempts = &storage->attempts[(size_t)i * STORE_ROADS];

		if (any_road(attempts, storage_is_direct))
			direct++;
		else if (any_road(attempts, is_unknown))
			unknown++;
		else if (any_road(attempts, works))
			host++;
	}
	if (!pairs)
		return text_of("storage: no GPU that CUDA can use");
	text = text_of("storage: bytes moved peer to peer in %u of %u pairs of a %sGPU and a "
		       "folder",
		       direct, pairs, is_simulated ? "simulated " : "");
	text = with_part(text, "in an unknown way", unknown);
	text = with_part(text, "only through host memory", host);
	return with_part(text, "not at all", pairs - direct - unknown - host);
}

/* ---- output --------------------------------------------------------------------------------- */

static void print_attempt(enum storage_road road, const struct attempt *attempt, unsigned patience)
{
	char *text = storage_text(road, attempt, patience);

	attempt_print(storage_road_name(road),
		      storage_is_direct(attempt)	 ? out_green()
		      : attempt->stage == STAGE_DONE	 ? out_yellow()
		      : storage_is_absent(road, attempt) ? out_plain()
							 : out_red(),
		      text, storage_advice(road, attempt));
	release(text);
}

void storage_print(const struct storage *storage, const struct trials *trials)
{
	out_print("\n%stried with storage%s\n", out_bold(), out_plain());
	for (int gpu = 0; gpu < trials->list.gpus; gpu++)
		for (unsigned i = 0; i < storage->places.count; i++) {
			const struct attempt *attempts = attempts_of(storage, gpu, i);
			char *text = text_of("CUDA device %d (%s) and %s", gpu,
					     trials->list.gpu[gpu], storage->places.list[i].folder);

			out_print("  ");
			out_wrapped(2, 4, text);
			release(text);
			for (unsigned road = 0; road < STORE_ROADS; road++)
				print_attempt((enum storage_road)road, &attempts[road],
					      trials->patience);
		}
}

static void print_json_place(const struct place *place)
{
	json_begin_object(NULL);
	json_text("folder", place->folder);
	json_text("file_system", place->type);
	json_text("disk", place->disk);
	json_text("controller", place->controller);
	json_text("address", place->address);
	json_bool("multipath", place->is_multipath);
	json_bool("remote", place->is_remote);
	json_end_object();
}

static void print_json_attempt(const struct storage *storage, const struct trials *trials, int gpu,
			       unsigned place, enum storage_road road)
{
	static const char *const ways[] = {[WAY_PEER] = "peer",
					   [WAY_NVIDIA_FS] = "nvidia-fs",
					   [WAY_HOST] = "host",
					   [WAY_CACHE] = "page cache"};
	const struct attempt *attempt = &attempts_of(storage, gpu, place)[road];
	char *text = storage_text(road, attempt, trials->patience);

	json_begin_object(NULL);
	json_number("gpu", (uint64_t)gpu);
	json_text("address", trials->list.gpu[gpu]);
	json_text("folder", storage->places.list[place].folder);
	json_text("road", storage_road_name(road));
	json_bool("works", attempt->stage == STAGE_DONE);
	json_text("way", attempt->stage == STAGE_DONE ? ways[attempt->way] : NULL);
	json_text("text", text);
	json_text("advice", storage_advice(road, attempt));
	json_number("moved_bytes", attempt->stage == STAGE_DONE ? STORED_BYTES : 0);
	json_number("write_ns", attempt->write_ns);
	json_number("read_ns", attempt->read_ns);
	json_end_object();
	release(text);
}

void storage_print_json(const struct storage *storage, const struct trials *trials)
{
	json_begin_object("storage");
	json_begin_list("folders");
	for (unsigned i = 0; i < storage->places.count; i++)
		print_json_place(&storage->places.list[i]);
	json_end_list();
	json_begin_list("tries");
	for (int gpu = 0; gpu < trials->list.gpus; gpu++)
		for (unsigned i = 0; i < storage->places.count; i++)
			for (unsigned road = 0; road < STORE_ROADS; road++)
				print_json_attempt(storage, trials, gpu, i,
						   (enum storage_road)road);
	json_end_list();
	json_end_object();
}
