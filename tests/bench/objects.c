// SPDX-License-Identifier: MIT
/*
 * objects COUNT: COUNT consumer objects on one region, as many ranges of one KV cache make them:
 * the cost of making one, of a hit (attach and detach) of any of them, and of the free that ends
 * all, without the end of the region itself. Run with the preload, PINDOWN_BACKEND=none and the
 * libcuda.so.1 that does nothing, which has a large allocation. Prints lines NAME, COUNT and ns,
 * with tabs between.
 */
#include "calls.h"

#include "cache/pindown.h"

#define LARGE	 UINT64_C(0x600000000000) /* 8 GiB in one allocation */
#define PIECE	 ((uint64_t)PINDOWN_PAGE_SIZE)
#define HITS	 2000u
#define TURNS	 5u
#define MAX_MANY (1u << 17)

static int consumer;
static uint32_t many;

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	(void)what, (void)arg;
	*data = NULL;
	return 0;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	(void)what;
	++*(uint64_t *)arg;
	return 0;
}

/* As the wrapper of ibv_reg_mr names them: by protection domain, rights and pages. */
static void attach_and_detach(uint64_t addr, unsigned flags)
{
	struct pindown_key key = {1, {7, PINDOWN_KEY_RANGE(addr, PIECE)}};
	pindown_object *object;
	int result = pindown_attach(consumer, addr, PIECE, flags, &key, NULL, &object);

	if (result != PINDOWN_OK)
		stop(pindown_strerror(result), result);
	pindown_detach(object);
}

static void pin(void)
{
	pindown_region *region;
	int result = pindown_get(LARGE, PIECE, 0, &region);

	if (result != PINDOWN_OK)
		stop(pindown_strerror(result), result);
	pindown_put(region);
}

static double make_all(void)
{
	double begin = now_ns();

	for (uint32_t i = 0; i < many; i++)
		attach_and_detach(LARGE + i * PIECE, 0);
	return (now_ns() - begin) / many;
}

/* The free of the large allocation, with all objects on its region or with none. */
static double free_ns(bool with_objects)
{
	double begin;

	pin();
	if (with_objects)
		make_all();
	begin = now_ns();
	must(cuMemFree_v2(LARGE), "cuMemFree");
	return now_ns() - begin;
}

/* For each object, without the end of the region, which has many places in the index. */
static double end_of_all(void)
{
	enum { MAX_TURNS = 101 };
	double with[MAX_TURNS], without[MAX_TURNS], ns;
	unsigned turns = many > 1000 ? 1 : MAX_TURNS;

	for (unsigned i = 0; i < turns; i++) {
		without[i] = free_ns(false);
		with[i] = free_ns(true);
	}
	ns = median(with, turns) - median(without, turns);
	return ns > 0 ? ns / many : 0;
}

static double hits(void)
{
	double values[TURNS];
	uint64_t state = 1;

	for (unsigned turn = 0; turn < TURNS; turn++) {
		double begin = now_ns();

		for (unsigned i = 0; i < HITS; i++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			attach_and_detach(LARGE + ((state >> 32) * many >> 32) * PIECE,
					  PINDOWN_GET_CACHED);
		}
		values[turn] = (now_ns() - begin) / HITS;
	}
	return median(values, TURNS);
}

static void print(const char *name, double ns)
{
	printf("%s\t%u\t%.2f\n", name, many, ns);
}

int main(int argc, char **argv)
{
	uint64_t destroyed = 0;
	const struct pindown_consumer about = {.name = "bench",
					       .create = create,
					       .destroy = destroy,
					       .arg = &destroyed,
					       .flags = PINDOWN_CONSUMER_RANGES};

	many = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	if (!many || many > MAX_MANY) {
		fprintf(stderr, "usage: %s COUNT (1 to %u)\n", argv[0], MAX_MANY);
		return 2;
	}
	open_driver();
	consumer = pindown_consumer_add(&about, sizeof(about));
	if (consumer < 0)
		stop(pindown_strerror(consumer), consumer);
	attach_and_detach(LARGE - PIECE, 0); /* what happens once in a process */
	must(cuMemFree_v2(LARGE - PIECE), "cuMemFree");
	destroyed = 0;
	pin();
	print("object, made", make_all());
	print("object, hit", hits());
	must(cuMemFree_v2(LARGE), "cuMemFree");
	if (destroyed != many)
		stop("the free has not ended all objects", (int)destroyed);
	print("objects, the free that ends them, each", end_of_all());
	return 0;
}
