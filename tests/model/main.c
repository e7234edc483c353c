/* SPDX-License-Identifier: MIT */
/*
 * test_model: rounds of random operations until there were enough, or until one has failed; see
 * model.h.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "model.h"
#include "tests/unit/support/sanitizers.h"

#if UNDER_SANITIZER
#define USUAL_OPERATIONS 500000
#else
#define USUAL_OPERATIONS 10000000
#endif

static struct {
	uint64_t operations, seed, round;
	const char *replay, *save;
	bool verbose;
} options = {.operations = USUAL_OPERATIONS, .round = 100000};

static void usage(void)
{
	printf("usage: test_model [--operations N] [--round N] [--seed S] [--save FILE] "
	       "[--verbose]\n"
	       "       test_model --replay FILE    operations as it prints them; - for standard "
	       "input\n"
	       "\n"
	       "Does random operations on the cache and on a model of it, in rounds of a process "
	       "each\n"
	       "(usually %d operations, %" PRIu64
	       " each round). If they disagree, it looks for the\n"
	       "shortest sequence that shows it, prints it, and saves it in FILE "
	       "(test_model.ops).\n",
	       USUAL_OPERATIONS, options.round);
}

static uint64_t number_of(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 0);

	if (*end || end == text) {
		fprintf(stderr, "test_model: '%s' is not a number\n", text);
		exit(2);
	}
	return n;
}

static void parse(int argc, char **argv)
{
	static const struct option known[] = {
		{"operations", required_argument, NULL, 'n'},
		{"seed", required_argument, NULL, 's'},
		{"round", required_argument, NULL, 'r'},
		{"replay", required_argument, NULL, 'p'},
		{"save", required_argument, NULL, 'o'},
		{"verbose", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int option;

	if (getrandom(&options.seed, sizeof(options.seed), 0) != (int)sizeof(options.seed))
		options.seed = (uint64_t)time(NULL);
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (option) {
		case 'n':
			options.operations = number_of(optarg);
			break;
		case 's':
			options.seed = number_of(optarg);
			break;
		case 'r':
			options.round = number_of(optarg);
			break;
		case 'p':
			options.replay = optarg;
			break;
		case 'o':
			options.save = optarg;
			break;
		case 'v':
			options.verbose = true;
			break;
		case 'h':
			usage();
			exit(0);
		default:
			fprintf(stderr, "test_model: --help lists the options\n");
			exit(2);
		}
	if (optind < argc || !options.round) {
		fprintf(stderr, "test_model: --help lists the options\n");
		exit(2);
	}
}

static void save(bool checks, const struct op *ops, uint64_t count)
{
	const char *name = options.save ? options.save : "test_model.ops";
	FILE *file = fopen(name, "we");

	if (!file) {
		perror(name);
		return;
	}
	print_sequence(file, checks, ops, count);
	fclose(file);
	printf("To repeat it: test_model --replay %s\n", name);
}

static void report(bool checks, uint64_t seed)
{
	uint64_t count = this_log->count, shrunk = count;
	struct op *ops = malloc(count * sizeof(*ops));
	char message[sizeof(this_log->message)];

	memcpy(message, this_log->message, sizeof(message));
	printf("After %" PRIu64 " operations, %" PRIu64 " of a round with seed 0x%" PRIx64
	       ", cache and model disagree: %s\n",
	       this_log->done, count, seed, message);
	fflush(stdout);
	if (!ops)
		return;
	memcpy(ops, this_log->ops, count * sizeof(*ops));
	if (play_sequence(checks, ops, count))
		printf("They agree when the same operations are done again.\n");
	else
		shrunk = shrink(checks, ops, count);
	printf("%" PRIu64 " operations that show it: %s\n", shrunk, this_log->message);
	print_sequence(stdout, checks, ops, shrunk);
	save(checks, ops, shrunk);
	free(ops);
}

static int replay(void)
{
	bool checks;
	uint64_t count = read_sequence(options.replay, &checks, this_log->ops, max_ops);

	if (play_sequence(checks, this_log->ops, count)) {
		printf("%" PRIu64 " operations: cache and model agree\n", count);
		return 0;
	}
	printf("%" PRIu64 " operations: %s\n", count, this_log->message);
	return 1;
}

/* A comparison that never happened proves nothing. */
static bool print_seen(void)
{
	const struct counts *c = &this_log->seen;
	const struct {
		const char *name;
		uint64_t times;
	} seen[] = {
		{"hits", c->hits},
		{"of them compared by buffer id", c->tag_checks},
		{"misses", c->misses},
		{"pins", c->pins},
		{"of them with more than the request's memory", c->grown},
		{"of them of a part of the memory", c->windows},
		{"pins that failed", c->pin_failures},
		{"pins that lost a race", c->lost_races},
		{"of them for a get that was not to wait", c->would_wait},
		{"vectors", c->vectors},
		{"of them that failed", c->failed_vectors},
		{"evictions", c->evictions},
		{"invalidations", c->invalidations},
		{"of them missed", c->missed},
		{"unpins", c->unpins},
		{"of them at the last put", c->unpins_at_last_put},
		{"objects made", c->objects_made},
		{"of them for nothing", c->made_in_vain},
		{"objects found again", c->objects_found},
		{"of them by more rights or a wider range", c->objects_served},
		{"objects kept for their holders", c->objects_kept},
		{"objects held when their owner ended", c->objects_hidden},
		{"of them destroyed at the last detach", c->destroyed_at_last_detach},
		{"objects revoked", c->objects_revoked},
		{"of them when their memory was handed out again", c->objects_reused},
		{"forks", this_log->forks},
	};
	bool all = true;

	for (unsigned i = 0; i < OP_CODES; i++) {
		printf("%14" PRIu64 " %s\n", this_log->kinds[i], op_kinds[i].name);
		all &= this_log->kinds[i] > 0;
	}
	printf("What happened:\n");
	for (unsigned i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
		printf("%14" PRIu64 " %s\n", seen[i].times, seen[i].name);
		all &= seen[i].times > 0;
	}
	if (!all)
		printf("Something never happened.\n");
	return all || this_log->done < 100000;
}

static bool play(void)
{
	uint64_t rounds = 0;

	while (this_log->done < options.operations) {
		uint64_t left = options.operations - this_log->done;
		uint64_t seed = options.seed + rounds;
		bool checks = rounds % 4 == 3;

		may_miss = rounds % 4 == 2;
		if (!play_random(checks, seed, left < options.round ? left : options.round)) {
			report(checks, seed);
			return false;
		}
		rounds++;
		if (options.verbose && rounds % 100 == 0) {
			printf("%" PRIu64 " operations\n", this_log->done);
			fflush(stdout);
		}
	}
	printf("%" PRIu64 " operations in %" PRIu64 " rounds: cache and model agree\n",
	       this_log->done, rounds);
	return print_seen();
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	make_log(options.round + 1000000);
	if (options.replay)
		return replay();
	printf("--operations %" PRIu64 " --round %" PRIu64 " --seed 0x%" PRIx64 "\n",
	       options.operations, options.round, options.seed);
	fflush(stdout);
	return play() ? 0 : 1;
}
