// SPDX-License-Identifier: MIT
/*
 * fuzz TARGET [--seed N] [--runs N] [--seconds N] [--save FOLDER] [FILE...]
 *
 * Gives a part of pindown inputs that nobody would make: each is one of the files, or one that the
 * target begins with, changed in a few places. Input N of a seed is always the same. Inputs run in
 * a child, some hundreds in each; one that ends it, or takes more than 20 s, is saved and counted.
 * This program is built with sanitizers, which end the child for what would pass unseen.
 */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/dice.h"

enum { MAX_INPUT = 1 << 20, BATCH = 256, PATIENCE = 20, MAX_FILES = 1024 };

static const struct target *const targets[] = {&target_environment, &target_elf, &target_doctor,
					       &target_trace};
static const struct target *target;

struct input {
	unsigned char *data;
	size_t size;
};

static struct input files[MAX_FILES];
static unsigned file_count;
static uint64_t seed = 1;
static const char *save = ".";
static volatile uint64_t *current; /* shared with the child: the input that runs */

const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "hard_rss_limit_mb=2048:allocator_may_return_null=1:detect_stack_use_after_return=0";
}

/* A number at which programs go wrong. */
static uint64_t nasty_number(uint64_t *state)
{
	static const uint64_t numbers[] = {0,
					   1,
					   7,
					   0x7f,
					   0x80,
					   0xff,
					   0x7fff,
					   0xffff,
					   0x10000,
					   0x7fffffff,
					   0x80000000,
					   0xffffffff,
					   0x100000000,
					   0x7fffffffffffffff,
					   0x8000000000000000,
					   0xffffffffffffffff,
					   0xfffffffffffff000};

	return numbers[below(state, sizeof(numbers) / sizeof(*numbers))];
}

/* A place in the input: every other time in its first part, where headers are. */
static size_t place_in(uint64_t *state, size_t size)
{
	return size > 512 && below(state, 2) ? below(state, 512) : below(state, size);
}

static void change_number(uint64_t *state, struct input *input)
{
	size_t bytes = (size_t)1 << below(state, 4), at = place_in(state, input->size);
	uint64_t number = nasty_number(state);

	at -= below(state, 4) ? at % bytes : 0;
	if (at + bytes <= input->size)
		memcpy(input->data + at, &number, bytes);
}

static void insert(uint64_t *state, struct input *input)
{
	static const char *const texts[] = {"0",	"-1",	"18446744073709551616",
					    "=",	",",	"\n",
					    ":",	"/",	"%s%n",
					    "0x",	" ",	"9999999999",
					    "\xff",	"..",	"$ORIGIN",
					    "PINDOWN_", "KMGT", "''"};
	const char *text = texts[below(state, sizeof(texts) / sizeof(*texts))];
	size_t at = below(state, input->size + 1), length = strlen(text);

	if (input->size + length > MAX_INPUT)
		return;
	memmove(input->data + at + length, input->data + at, input->size - at);
	memcpy(input->data + at, text, length);
	input->size += length;
}

static void take_out(uint64_t *state, struct input *input)
{
	size_t at = below(state, input->size), most = input->size - at;
	size_t length = 1 + below(state, most < 64 ? most : 64);

	length = length < most ? length : most;
	memmove(input->data + at, input->data + at + length, most - length);
	input->size -= length;
}

static void copy_part(uint64_t *state, struct input *input)
{
	size_t length = 1 + below(state, 64), from = below(state, input->size),
	       to = below(state, input->size);

	if (from + length <= input->size && to + length <= input->size)
		memmove(input->data + to, input->data + from, length);
}

static void change_once(uint64_t *state, struct input *input)
{
	switch (input->size ? below(state, 8) : 4) {
	case 0:
		input->data[place_in(state, input->size)] ^= (unsigned char)(1u << below(state, 8));
		break;
	case 1:
		input->data[place_in(state, input->size)] = (unsigned char)next(state);
		break;
	case 2:
	case 3:
		change_number(state, input);
		break;
	case 4:
		insert(state, input);
		break;
	case 5:
		take_out(state, input);
		break;
	case 6:
		copy_part(state, input);
		break;
	default:
		if (!below(state, 4))
			input->size = below(state, input->size);
	}
}

/* Input `number` of the seed. */
static void make(uint64_t number, struct input *input)
{
	uint64_t state = seed * 0xd1342543de82ef95u + number;
	const struct input *from = &files[below(&state, file_count)];

	memcpy(input->data, from->data, from->size);
	input->size = from->size;
	for (uint64_t changes = number < file_count ? 0 : 1 + below(&state, 8); changes; changes--)
		change_once(&state, input);
}

static void run_batch(uint64_t first, uint64_t end)
{
	struct input input = {.data = malloc(MAX_INPUT)};
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(nothing, 0);
	dup2(nothing, 1);
	if (!getenv("FUZZ_SHOW"))
		dup2(nothing, 2);
	for (uint64_t number = first; number < end; number++) {
		/* A copy of its own size, so that a read behind it is seen. */
		unsigned char *data;

		*current = number;
		make(number, &input);
		data = malloc(input.size ? input.size : 1);
		memcpy(data, input.data, input.size);
		alarm(PATIENCE);
		target->run(data, input.size);
		alarm(0);
		free(data);
	}
	free(input.data);
	_exit(0);
}

static void save_input(uint64_t number, int status)
{
	struct input input = {.data = malloc(MAX_INPUT)};
	char name[400];
	FILE *file;

	make(number, &input);
	snprintf(name, sizeof(name), "%s/%s-%llu-%llu", save, target->name,
		 (unsigned long long)seed, (unsigned long long)number);
	file = fopen(name, "w");
	if (file) {
		fwrite(input.data, 1, input.size, file);
		fclose(file);
	}
	printf("FAILED: input %llu of seed %llu, %s %d: %s\n", (unsigned long long)number,
	       (unsigned long long)seed, WIFSIGNALED(status) ? "signal" : "status",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), name);
	fflush(stdout);
	free(input.data);
}

/* Runs inputs from `first` on; returns the first one that is left. */
static uint64_t play(uint64_t first, uint64_t end, unsigned *failures)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		run_batch(first, end);
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("fuzz: a child");
		exit(2);
	}
	if (status == 0)
		return end;
	save_input(*current, status);
	++*failures;
	return *current + 1;
}

static void read_file(const char *name)
{
	FILE *file = fopen(name, "r");
	struct input input = {.data = malloc(MAX_INPUT)};

	if (!file || file_count == MAX_FILES) {
		perror(name);
		exit(2);
	}
	input.size = fread(input.data, 1, MAX_INPUT, file);
	fclose(file);
	files[file_count++] = input;
}

static int usage(void)
{
	fprintf(stderr, "usage: fuzz environment|elf|doctor|trace [--seed N] [--runs N] "
			"[--seconds N] [--save FOLDER] [FILE...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t runs = UINT64_MAX, number = 0;
	time_t end = 0;
	unsigned failures = 0;

	for (unsigned i = 0; i < sizeof(targets) / sizeof(*targets); i++)
		if (argc > 1 && strcmp(argv[1], targets[i]->name) == 0)
			target = targets[i];
	if (!target)
		return usage();
	for (int i = 2; i < argc; i++) {
		if (strncmp(argv[i], "--", 2) != 0)
			read_file(argv[i]);
		else if (i + 1 == argc)
			return usage();
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--runs") == 0)
			runs = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--seconds") == 0)
			end = time(NULL) + strtol(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--save") == 0)
			save = argv[++i];
		else
			return usage();
	}
	if (target->first && file_count < MAX_FILES)
		files[file_count++] = (struct input){(unsigned char *)strdup(target->first),
						     strlen(target->first)};
	if (!file_count || (runs == UINT64_MAX && !end))
		return usage();
	current = mmap(NULL, sizeof(*current), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	while (number < runs && (!end || time(NULL) < end) && failures < 20)
		number = play(number, number + BATCH < runs ? number + BATCH : runs, &failures);
	printf("%s: %llu inputs, %u failed, seed %llu\n", target->name, (unsigned long long)number,
	       failures, (unsigned long long)seed);
	return failures != 0;
}
