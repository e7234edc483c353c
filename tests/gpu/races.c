/* SPDX-License-Identifier: MIT */
/*
 * All processors get and put memory of every kind while it is freed.
 *
 * Each slot has a piece of memory, which one thread at a time frees and allocates again, while the
 * others ask pindown for it, without waiting. A thread that replaces a piece makes the slot's
 * generation odd before the driver's call begins, and even when the new piece exists. So if a get,
 * and then the driver's answer for the buffer id, came between two reads of the same even
 * generation, no free can have begun: the region must have the driver's id, and the get must have
 * succeeded. Otherwise it must at least not have an id that had died before the get began.
 *
 * In the end nothing may be pinned, and the device's free memory must be as before, except for
 * memory that the driver keeps for itself (--slack). Without libpindown.so the same is done without
 * gets, for comparison.
 *
 * The program itself asks the driver only about memory whose slot it owns, which nobody frees
 * meanwhile: libcuda may crash where it is asked about other memory. At a crash, races_crash.c says
 * what each thread was doing.
 */
#define _GNU_SOURCE
#include "races.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/pindown.h"

#define MAX_SLOTS   256
#define MAX_HELD    3
#define MAX_THREADS 512
#define MAX_SAID    20

static struct {
	unsigned seconds, threads, slack, seed;
	const char *kinds;
} options = {.seconds = 60, .slack = 32, .seed = 1};

static struct {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_flush) flush;
	__typeof__(&pindown_stats) stats;
	__typeof__(&pindown_strerror) strerror;
	__typeof__(&pindown_region_buffer_id) buffer_id;
	__typeof__(&pindown_region_base) base;
	__typeof__(&pindown_region_is_live) is_live;
	__typeof__(&pindown_driver_error) driver_error;
} pindown;

static unsigned passed, failed, said, refusals;
static bool exports; /* pindown's backend makes dma-bufs */

/*
 * The simulated driver can't make one dma-buf of two mappings if one of them has a dma-buf already:
 * it returns CUDA_ERROR_NOT_SUPPORTED.
 */
static bool simulated;

/* ---- what is said --------------------------------------------------------------------------- */

static void say_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say_wrong(const char *format, ...)
{
	char line[400];
	va_list arguments;

	if (__atomic_fetch_add(&said, 1, __ATOMIC_RELAXED) >= MAX_SAID)
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	printf("WRONG: %s\n", line);
}

static void check(bool well, const char *what)
{
	passed += well;
	failed += !well;
	printf("%s %s\n", well ? "ok  " : "FAIL", what);
}

bool driver(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return true;
	__atomic_fetch_add(&refusals, 1, __ATOMIC_RELAXED);
	say_wrong("%s answers %d", call, (int)result);
	return false;
}

static void stop(const char *why)
{
	printf("%s\n", why);
	exit(1);
}

/* ---- slots ---------------------------------------------------------------------------------- */

static struct slot slots[MAX_SLOTS];
static unsigned slot_count, hot;
static bool over;

/* ---- one thread ----------------------------------------------------------------------------- */

struct counts {
	uint64_t turns, gets, got, busy, refused, compared, wide, stale, failed, replaced;
	uint64_t replaced_of[16];
};

struct player {
	pthread_t thread;
	unsigned number;
	bool bare; /* has no current context, like a progress thread; only gets */
	uint64_t random;
	struct counts counts;
	pindown_region *held[MAX_HELD];
};

static uint64_t roll(struct player *player)
{
	player->random ^= player->random << 13;
	player->random ^= player->random >> 7;
	player->random ^= player->random << 17;
	return player->random >> 11;
}

static unsigned kind_of(const struct slot *slot)
{
	return (unsigned)(slot->piece.kind - kinds);
}

static void enters(const char *what, const struct slot *slot)
{
	stage = what;
	stage_of = slot->piece.kind->name;
}

static void replace(struct player *player, struct slot *slot)
{
	if (pthread_mutex_trylock(&slot->owner) != 0)
		return;
	slot_begin_change(slot);
	enters("the end", slot);
	slot_empty(slot, roll(player));
	for (uint64_t i = roll(player) % 4; i; i--)
		sched_yield(); /* there is no memory for a while */
	enters("the making", slot);
	slot_fill(slot, roll(player));
	slot_end_change(slot);
	pthread_mutex_unlock(&slot->owner);
	player->counts.replaced++;
	player->counts.replaced_of[kind_of(slot)]++;
}

/* The state of a slot as a thread saw it before its get. */
struct look {
	uint64_t generation, at, size, part, id[PARTS], dead[PARTS];
};

static struct look look_at(const struct slot *slot)
{
	struct look look = {.generation = __atomic_load_n(&slot->generation, __ATOMIC_ACQUIRE)};

	look.at = load(&slot->at);
	look.size = load(&slot->size);
	look.part = load(&slot->part);
	for (unsigned part = 0; part < PARTS; part++) {
		look.id[part] = load(&slot->id[part]);
		look.dead[part] = __atomic_load_n(&slot->dead[part], __ATOMIC_ACQUIRE);
	}
	return look;
}

/* Did the piece exist all the time? The fence keeps the get before the second look. */
static bool has_stood(const struct slot *slot, const struct look *look)
{
#if !defined(__SANITIZE_THREAD__) /* ThreadSanitizer does not know fences */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
	return !(look->generation & 1) && load(&slot->generation) == look->generation;
}

static bool had_died(const struct look *look, uint64_t id)
{
	return id && (id == look->dead[0] || id == look->dead[1]);
}

/* The driver's id there now, if the piece stands and no other thread has the slot. */
static bool ask_as_owner(struct slot *slot, const struct look *look, uint64_t at, uint64_t *id)
{
	bool stands;

	if (pthread_mutex_trylock(&slot->owner) != 0)
		return false;
	stands = has_stood(slot, look);
	if (stands) {
		enters("a question of the test's own", slot);
		*id = driver_id(slot, at);
	}
	pthread_mutex_unlock(&slot->owner);
	return stands;
}

/* The piece that has the address, as it is now. */
static const struct slot *slot_with(uint64_t addr, struct look *look)
{
	for (unsigned i = 0; i < slot_count; i++) {
		*look = look_at(&slots[i]);
		if (look->at && addr >= look->at && addr - look->at < look->size)
			return &slots[i];
	}
	return NULL;
}

static uint64_t id_in(const struct look *look, uint64_t addr)
{
	return look->id[(addr - look->at) / look->part];
}

/*
 * The pin reaches over mappings beside the piece, and begins in another one. If that has stood
 * until the region was seen to be live, it is the region's. A live region begins in some piece.
 */
static void compare_wide(struct player *player, const pindown_region *region)
{
	uint64_t base = pindown.base(region), id = pindown.buffer_id(region), was;
	struct look look;
	const struct slot *slot = slot_with(base, &look);

	if (!pindown.is_live(region) || (slot && !has_stood(slot, &look)))
		return;
	player->counts.wide++;
	was = slot ? id_in(&look, base) : 0;
	if (id == was)
		return;
	player->counts.stale++;
	say_wrong("stale: a live region at 0x%llx has buffer id %llu; the driver had %llu there",
		  (unsigned long long)base, (unsigned long long)id, (unsigned long long)was);
}

/* Is the region the memory that the driver had there when the piece was made, and has there now? */
static void compare(struct player *player, struct slot *slot, const struct look *look,
		    const pindown_region *region)
{
	uint64_t id = pindown.buffer_id(region), base = pindown.base(region);
	const char *kind = slot->piece.kind->name;
	uint64_t was, now;

	if (!has_stood(slot, look)) {
		if (!had_died(look, id))
			return;
		player->counts.stale++;
		say_wrong("stale: %s at 0x%llx, buffer id %llu had died before the get began", kind,
			  (unsigned long long)base, (unsigned long long)id);
		return;
	}
	if (base < look->at) {
		compare_wide(player, region);
		return;
	}
	player->counts.compared++;
	was = now = id_in(look, base);
	ask_as_owner(slot, look, base, &now);
	if (id == was && id == now)
		return;
	player->counts.stale++;
	say_wrong("stale: %s at 0x%llx: the region at 0x%llx has buffer id %llu; the driver had "
		  "%llu there when it was made, and has %llu now",
		  kind, (unsigned long long)look->at, (unsigned long long)base,
		  (unsigned long long)id, (unsigned long long)was, (unsigned long long)now);
}

static bool may_refuse(const struct slot *slot, int result)
{
	const struct kind *kind = slot->piece.kind;

	if (result == kind->refusal)
		return true;
	if (kind->refusal != PINDOWN_OK || !exports)
		return false;
	return kind->unexportable ||
	       (simulated && pindown.driver_error() == CUDA_ERROR_NOT_SUPPORTED);
}

/* A get of memory that existed all the time returns the result of its kind. */
static void judge(struct player *player, const struct slot *slot, const struct look *look,
		  int result)
{
	bool busy = result == PINDOWN_ERR_BUSY || result == PINDOWN_ERR_TIMED_OUT;

	player->counts.busy += busy;
	player->counts.refused += result != PINDOWN_OK && !busy;
	if (may_refuse(slot, result) || !has_stood(slot, look))
		return;
	player->counts.failed++;
	say_wrong("%s at 0x%llx, which nobody frees: %s (%d)", slot->piece.kind->name,
		  (unsigned long long)look->at, pindown.strerror(result), pindown.driver_error());
}

static void hold_for_a_while(struct player *player, pindown_region *region)
{
	pindown_region **place = &player->held[roll(player) % MAX_HELD];

	if (*place)
		pindown.put(*place);
	*place = region;
}

static void get(struct player *player, struct slot *slot, const struct look *look)
{
	uint64_t offset = roll(player) % look->size;
	uint64_t length = 1 + roll(player) % (look->size - offset);
	pindown_region *region = NULL;
	int result;

	enters("a get", slot);
	result = pindown.get(look->at + offset, length, 0, &region);
	player->counts.gets++;
	judge(player, slot, look, result);
	if (result != PINDOWN_OK)
		return;
	player->counts.got++;
	compare(player, slot, look, region);
	stage = "a put";
	if (roll(player) % 8 == 0)
		hold_for_a_while(player, region);
	else
		pindown.put(region);
}

/* Without pindown: makes the same queries to the driver alone. */
static void ask(struct player *player, struct slot *slot, const struct look *look)
{
	uint64_t now;

	if (!ask_as_owner(slot, look, look->at, &now))
		return;
	player->counts.compared++;
	if (now == look->id[0])
		return;
	player->counts.stale++;
	say_wrong("the driver has changed its mind about 0x%llx", (unsigned long long)look->at);
}

static void turn(struct player *player)
{
	unsigned number = roll(player) % 2 ? __atomic_load_n(&hot, __ATOMIC_RELAXED)
					   : (unsigned)(roll(player) % slot_count);
	struct slot *slot = &slots[number];
	struct look look;

	player->counts.turns++;
	if (player->counts.turns % 64 == 0) /* here most threads meet */
		__atomic_store_n(&hot, (unsigned)(roll(player) % slot_count), __ATOMIC_RELAXED);
	if (!player->bare && roll(player) % slot->piece.kind->rarely == 0) {
		replace(player, slot);
		return;
	}
	look = look_at(slot);
	if (!look.at || !look.size)
		return;
	if (pindown.get)
		get(player, slot, &look);
	else
		ask(player, slot, &look);
}

static CUcontext primary;

static void *play(void *arg)
{
	struct player *player = arg;

	stage = "the start";
	if (!player->bare)
		driver(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		turn(player);
	stage = "the last puts";
	stage_of = "";
	for (unsigned i = 0; i < MAX_HELD; i++)
		if (player->held[i])
			pindown.put(player->held[i]);
	return NULL;
}

/* ---- all threads ---------------------------------------------------------------------------- */

static struct player players[MAX_THREADS];

static void run_for(unsigned seconds)
{
	struct timespec left = {.tv_sec = seconds};

	for (unsigned i = 0; i < options.threads; i++) {
		players[i].number = i;
		players[i].bare = i % 8 == 7;
		players[i].random = options.seed * 1000003u + i * 7919u + 1;
		if (pthread_create(&players[i].thread, NULL, play, &players[i]) != 0)
			stop("no more threads can be had: fewer with --threads");
	}
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < options.threads; i++)
		pthread_join(players[i].thread, NULL);
}

static struct counts sum(void)
{
	struct counts all = {0};
	uint64_t *to = (uint64_t *)&all;

	for (unsigned i = 0; i < options.threads; i++)
		for (size_t n = 0; n < sizeof(all) / sizeof(*to); n++)
			to[n] += ((const uint64_t *)&players[i].counts)[n];
	return all;
}

/* ---- before and after ----------------------------------------------------------------------- */

static bool wanted(const char *kind)
{
	const char *at = options.kinds;
	size_t length = strlen(kind);

	for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, kind, length) && (at[length] == ',' || at[length] == '\0'))
			return true;
	return options.kinds == NULL;
}

static unsigned slots_of_each_kind(void)
{
	const unsigned max_slots = options.threads * 3 < 24	     ? 24
				   : options.threads * 3 > MAX_SLOTS ? MAX_SLOTS
								     : options.threads * 3;
	unsigned wanted_kinds = 0;

	for (unsigned of_kind = 0; kinds[of_kind].name; of_kind++)
		wanted_kinds += wanted(kinds[of_kind].name);
	return max_slots / wanted_kinds;
}

/* A context takes hundreds of MiB of a GPU, and milliseconds: there are two pieces of that kind. */
static void make_slots(void)
{
	for (unsigned of_kind = 0; kinds[of_kind].name; of_kind++) {
		unsigned count = kinds[of_kind].rarely >= 64 ? 2 : slots_of_each_kind();

		for (unsigned i = 0; wanted(kinds[of_kind].name) && i < count; i++) {
			struct slot *slot = &slots[slot_count];

			pthread_mutex_init(&slot->owner, NULL);
			slot->piece.kind = &kinds[of_kind];
			slot->piece.number = slot_count++;
		}
	}
}

static void empty_slots(void)
{
	for (unsigned i = 0; i < slot_count; i++) {
		slot_empty(&slots[i], i);
		store(&slots[i].at, 0);
	}
}

static void release_all(void)
{
	CUmemoryPool pool;

	if (pindown.flush)
		pindown.flush();
	driver(cuCtxSynchronize(), "cuCtxSynchronize");
	if (driver(cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool"))
		driver(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
}

static long free_mib(void)
{
	size_t left = 0, all = 0;

	driver(cuMemGetInfo_v2(&left, &all), "cuMemGetInfo");
	return (long)(left / MIB);
}

static unsigned descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	while (folder && readdir(folder))
		count++;
	if (folder)
		closedir(folder);
	return count;
}

/* Each kind is allocated, pinned and freed once: then the driver has all memory that it keeps. */
static void warm_up(void)
{
	for (unsigned i = 0; i < slot_count; i++) {
		pindown_region *region;

		slot_fill(&slots[i], i);
		if (slots[i].full && pindown.get &&
		    pindown.get(slots[i].piece.at, 1, 0, &region) == PINDOWN_OK)
			pindown.put(region);
	}
	empty_slots();
	release_all();
}

static struct pindown_stats statistics(void)
{
	struct pindown_stats stats;

	memset(&stats, 0, sizeof(stats));
	if (pindown.stats)
		pindown.stats(&stats, sizeof(stats), -1);
	return stats;
}

static void print_counts(const struct counts *all, const struct pindown_stats *before,
			 const struct pindown_stats *after)
{
	for (unsigned i = 0; kinds[i].name; i++)
		if (wanted(kinds[i].name))
			printf("%-8s %10llu ended and made again\n", kinds[i].name,
			       (unsigned long long)all->replaced_of[i]);
#define COUNT(name, value) printf("%-8s %10llu\n", name, (unsigned long long)(value))
	if (pindown.get) {
		COUNT("gets", all->gets);
		COUNT("hits", after->hits - before->hits);
		COUNT("misses", after->misses - before->misses);
		COUNT("pins", after->pins - before->pins);
		COUNT("lost", after->lost_races - before->lost_races);
		COUNT("busy", all->busy);
		COUNT("refused", all->refused);
	}
	COUNT("compared", all->compared);
	COUNT("wide", all->wide);
	COUNT("forgot", driver_forgot);
	COUNT("stale", all->stale);
}

static bool each_kind_died(const struct counts *all)
{
	for (unsigned i = 0; kinds[i].name; i++)
		if (wanted(kinds[i].name) && !all->replaced_of[i])
			return false;
	return true;
}

static void check_pins(const struct counts *all, const struct pindown_stats *stats)
{
	check(all->failed == 0, "each get of memory that nobody freed was answered as its kind is");
	check(stats->regions == 0 && stats->bytes == 0 && stats->kept_bytes == 0 &&
		      stats->pins == stats->unpins,
	      "nothing is pinned in the end");
	check(stats->missed_invalidations == 0 && !stats->distrusted && stats->intercepting,
	      "pindown has missed no free");
}

/* ---- the program ---------------------------------------------------------------------------- */

static bool find_pindown(void)
{
	pindown.get = dlsym(RTLD_DEFAULT, "pindown_get");
	pindown.put = dlsym(RTLD_DEFAULT, "pindown_put");
	pindown.flush = dlsym(RTLD_DEFAULT, "pindown_flush");
	pindown.stats = dlsym(RTLD_DEFAULT, "pindown_stats");
	pindown.strerror = dlsym(RTLD_DEFAULT, "pindown_strerror");
	pindown.buffer_id = dlsym(RTLD_DEFAULT, "pindown_region_buffer_id");
	pindown.base = dlsym(RTLD_DEFAULT, "pindown_region_base");
	pindown.is_live = dlsym(RTLD_DEFAULT, "pindown_region_is_live");
	pindown.driver_error = dlsym(RTLD_DEFAULT, "pindown_driver_error");
	return pindown.get != NULL;
}

static void usage(void)
{
	printf("races [--seconds=60] [--threads=PROCESSORS] [--slack=32] [--seed=1] [--kinds=");
	for (unsigned i = 0; kinds[i].name; i++)
		printf("%s%s", i ? "," : "", kinds[i].name);
	printf("]\nslack: how many MiB of device memory the driver may keep for itself\n");
	exit(2);
}

static unsigned number(const char *text, unsigned max)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || end == text || value < 1 || value > max) {
		printf("races: %s is no number from 1 to %u\n", text, max);
		exit(2);
	}
	return (unsigned)value;
}

static void check_kinds(void)
{
	const char *at = options.kinds;

	for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		size_t length = strcspn(at, ",");
		unsigned i = 0;

		while (kinds[i].name &&
		       (strlen(kinds[i].name) != length || strncmp(kinds[i].name, at, length) != 0))
			i++;
		if (!kinds[i].name) {
			printf("races: there is no kind %.*s\n", (int)length, at);
			usage();
		}
	}
}

static unsigned read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"seconds", required_argument, NULL, 's'},
		{"threads", required_argument, NULL, 't'},
		{"slack", required_argument, NULL, 'm'},
		{"seed", required_argument, NULL, 'r'},
		{"kinds", required_argument, NULL, 'k'},
		{"export", required_argument, NULL, 'e'},
		{0},
	};
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned to_export = 0;
	int option;

	options.threads = processors < 2 ? 2 : processors > 256 ? 256 : (unsigned)processors;
	while ((option = getopt_long(argc, argv, "", known, NULL)) >= 0) {
		switch (option) {
		case 's':
			options.seconds = number(optarg, 86400);
			break;
		case 't':
			options.threads = number(optarg, MAX_THREADS);
			break;
		case 'm':
			options.slack = number(optarg, 1u << 20);
			break;
		case 'r':
			options.seed = number(optarg, 1u << 30);
			break;
		case 'k':
			options.kinds = optarg;
			break;
		case 'e':
			to_export = number(optarg, 64);
			break;
		default:
			usage();
		}
	}
	if (optind != argc)
		usage();
	check_kinds();
	return to_export;
}

static void start_driver(void)
{
	if (!driver(cuInit(0), "cuInit") ||
	    !driver(cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain") ||
	    !driver(cuCtxSetCurrent(primary), "cuCtxSetCurrent"))
		stop("there is no GPU that can be used");
}

int main(int argc, char **argv)
{
	unsigned to_export = read_options(argc, argv), fds;
	struct pindown_stats before, after;
	struct counts all;
	char line[160];
	long mib, mib_after;

	setvbuf(stdout, NULL, _IOLBF, 0);
	tell_of_crashes();
	stage = "the start of the driver";
	start_driver();
	if (to_export)
		return exporter_main(to_export);
	/*
	 * One for each slot: memory that two slots have open stays after one of them has closed it.
	 */
	if (wanted("ipc") && !exporter_start(slots_of_each_kind()))
		stop("the other process, of --kinds=ipc, did not start");
	make_slots();
	if (!find_pindown())
		printf("libpindown.so is not in this process: the driver alone\n");
	stage = "the warm-up";
	warm_up();
	stage = "waiting for the others";
	before = statistics();
	exports = pindown.get && strcmp(before.backend, "none") != 0;
	simulated = dlsym(RTLD_DEFAULT, "sim_calls") != NULL;
	printf("%u threads, %u seconds, %u pieces of memory, backend %s\n", options.threads,
	       options.seconds, slot_count, pindown.get ? before.backend : "-");
	mib = free_mib();
	fds = descriptors();
	run_for(options.seconds);
	stage = "the end of all memory";
	empty_slots();
	release_all();
	mib_after = free_mib();
	after = statistics();
	all = sum();

	print_counts(&all, &before, &after);
	check(all.stale == 0, "no answer was about dead memory");
	if (pindown.get)
		check_pins(&all, &after);
	check(refusals == 0, "the driver has done what the program asked of it");
	check(each_kind_died(&all), "each kind of memory has died");
	check(all.compared > 0, "some answers were compared with the driver's");
	check(descriptors() == fds, "as many descriptors are open as before");
	snprintf(line, sizeof(line),
		 "%ld MiB of device memory are free, %ld before; %u may be missing", mib_after, mib,
		 options.slack);
	check(mib_after + (long)options.slack >= mib, line);
	exporter_end();
	printf("%u passed, %u failed\n", passed, failed);
	return failed != 0;
}
