/* SPDX-License-Identifier: MIT */
/*
 * Consumer objects between threads and processes: which call waits for which, and what a random
 * mixture of all calls leaves behind.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache/objects/object.h"
#include "tests/unit/support/fork_test.h"
#undef AT
#include "tests/unit/support/objects_test.h"

static struct gate inside, go_on;

static void open_books_and_gates(void)
{
	open_books();
	handle_forks();
	gate_init(&inside);
	gate_init(&go_on);
}

/* At the end of memory, holders are searched for. */
static void open_books_of_one_that_warns(void)
{
	setenv("PINDOWN_HELD", "warn", 1);
	open_books_and_gates();
}

/* The first callback stops in the middle until the test opens the gate. */
static void stop_in_create(struct books *b, pindown_region *region)
{
	(void)region;
	b->in_create = NULL;
	gate_open(&inside);
	gate_wait(&go_on);
}

static void stop_in_destroy(struct books *b, const struct pindown_object_end *what)
{
	(void)what;
	b->in_destroy = NULL;
	gate_open(&inside);
	gate_wait(&go_on);
}

/* ---- threads: one stopped in a callback, another that meets it ----------------------------- */

struct attempt {
	int result;
	pindown_object *object;
};

static void attach(void *arg)
{
	struct attempt *a = arg;

	a->result = pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &a->object);
}

START_TEST(two_threads_make_one_object)
{
	struct attempt a = {0}, b = {0};
	struct worker first, second;

	books.in_create = stop_in_create;
	worker_start(&first, attach, &a);
	gate_wait(&inside);
	worker_start(&second, attach, &b);
	worker_wait_idle(&second);
	ck_assert(!worker_is_done(&second));
	gate_open(&go_on);
	worker_join(&first);
	worker_join(&second);
	ck_assert_int_eq(a.result, PINDOWN_OK);
	ck_assert_int_eq(b.result, PINDOWN_OK);
	ck_assert_ptr_eq(a.object, b.object);
	ck_assert_uint_eq(books.creates, 1);
	pindown_detach(a.object);
	pindown_detach(b.object);
}
END_TEST

static void fail_once(struct books *b, pindown_region *region)
{
	stop_in_create(b, region);
	b->fail = 0; /* has been read by this call: the next one succeeds */
}

START_TEST(a_thread_that_waited_for_a_failed_create_tries_itself)
{
	struct attempt a = {0}, b = {0};
	struct worker first, second;

	books.fail = ENOMEM;
	books.in_create = fail_once;
	worker_start(&first, attach, &a);
	gate_wait(&inside);
	worker_start(&second, attach, &b);
	worker_wait_idle(&second);
	gate_open(&go_on);
	worker_join(&first);
	worker_join(&second);
	ck_assert_int_eq(a.result, PINDOWN_CREATE_FAILED(ENOMEM));
	ck_assert_int_eq(b.result, PINDOWN_OK);
	ck_assert_uint_eq(books.creates, 1);
	pindown_detach(b.object);
}
END_TEST

static unsigned exports_after_end;

static void free_memory(void *arg)
{
	pdn_guard guard = pdn_end_range(AT(0), 0);

	(void)arg;
	exports_after_end = fake_open_exports();
	fake_free(AT(0));
	pdn_ended(guard);
}

START_TEST(a_free_waits_for_what_is_being_made)
{
	struct attempt a = {0};
	struct worker maker, freer;

	books.in_create = stop_in_create;
	worker_start(&maker, attach, &a);
	gate_wait(&inside);
	worker_start(&freer, free_memory, NULL);
	worker_wait_idle(&freer);
	ck_assert(!worker_is_done(&freer));
	gate_open(&go_on);
	worker_join(&freer);
	worker_join(&maker);
	ck_assert_uint_eq(exports_after_end, 0);
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_int_eq(books.made[0].reason, PINDOWN_REASON_FREED);
	ck_assert_int_eq(a.result, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

/*
 * A free does not wait for ever: the thread that makes the object may need what the freeing thread
 * has.
 */
START_TEST(a_free_goes_on_after_two_seconds)
{
	struct attempt a = {0};
	struct worker maker;

	restore_wait_limit();
	books.in_create = stop_in_create;
	worker_start(&maker, attach, &a);
	gate_wait(&inside);
	free_memory(NULL);
	ck_assert_uint_eq(exports_after_end, 1);
	gate_open(&go_on);
	worker_join(&maker);
	ck_assert_int_eq(a.result, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

static int owner_result;

static void end_owner(void *arg)
{
	(void)arg;
	owner_result = pindown_end_owner(consumer, 1);
}

START_TEST(a_free_waits_for_what_an_owner_destroys)
{
	struct worker ender, freer;

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = stop_in_destroy;
	worker_start(&ender, end_owner, NULL);
	gate_wait(&inside);
	worker_start(&freer, free_memory, NULL);
	worker_wait_idle(&freer);
	ck_assert(!worker_is_done(&freer));
	gate_open(&go_on);
	worker_join(&ender);
	worker_join(&freer);
	ck_assert_uint_eq(exports_after_end, 0);
	ck_assert_int_eq(owner_result, 0);
	ck_assert_uint_eq(books.destroys, 1);
}
END_TEST

START_TEST(an_owners_end_waits_for_what_a_free_destroys)
{
	struct worker ender, freer;

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = stop_in_destroy;
	worker_start(&freer, free_memory, NULL);
	gate_wait(&inside);
	worker_start(&ender, end_owner, NULL);
	worker_wait_idle(&ender);
	ck_assert(!worker_is_done(&ender));
	gate_open(&go_on);
	worker_join(&ender);
	worker_join(&freer);
	ck_assert_int_eq(owner_result, 0);
}
END_TEST

START_TEST(an_owners_end_waits_for_what_is_being_made)
{
	struct attempt a = {0};
	struct worker maker, ender;

	books.in_create = stop_in_create;
	worker_start(&maker, attach, &a);
	gate_wait(&inside);
	worker_start(&ender, end_owner, NULL);
	worker_wait_idle(&ender);
	ck_assert(!worker_is_done(&ender));
	gate_open(&go_on);
	worker_join(&maker);
	worker_join(&ender);
	ck_assert_int_eq(a.result, PINDOWN_OK);
	ck_assert_int_eq(owner_result, 1); /* the thread that has made it holds it */
	ck_assert_int_eq(pindown_object_is_live(a.object), 0);
	pindown_detach(a.object);
	ck_assert_uint_eq(books.destroys, 1);
}
END_TEST

/* An object that is being destroyed is not found, and not made a second time before it is gone. */
START_TEST(an_attach_waits_for_what_is_being_destroyed)
{
	struct attempt a = {0};
	struct worker ender, asker;

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = stop_in_destroy;
	worker_start(&ender, end_owner, NULL);
	gate_wait(&inside);
	worker_start(&asker, attach, &a);
	worker_wait_idle(&asker);
	ck_assert(!worker_is_done(&asker));
	ck_assert_uint_eq(books.creates, 1);
	gate_open(&go_on);
	worker_join(&ender);
	worker_join(&asker);
	ck_assert_int_eq(a.result, PINDOWN_OK);
	ck_assert_uint_eq(books.creates, 2);
	pindown_detach(a.object);
}
END_TEST

static void remove_consumer(void *arg)
{
	(void)arg;
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
}

START_TEST(removing_a_consumer_waits_for_its_callbacks)
{
	struct attempt a = {0};
	struct worker maker, remover;

	attach_and_detach(consumer, AT(1), KEY(1, 1));
	books.in_create = stop_in_create;
	worker_start(&maker, attach, &a);
	gate_wait(&inside);
	worker_start(&remover, remove_consumer, NULL);
	worker_wait_idle(&remover);
	ck_assert(!worker_is_done(&remover));
	gate_open(&go_on);
	worker_join(&maker);
	worker_join(&remover);
	ck_assert_int_eq(a.result, PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(books.destroys, 2);
}
END_TEST

static void stop_in_search(const struct pdn_holder_search *search)
{
	(void)search;
	gate_open(&inside);
	gate_wait(&go_on);
}

static void free_it(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}

/* It is asked without the lock, and only the object that it is asked about says so. */
START_TEST(removing_a_consumer_waits_for_a_search_for_holders)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));
	struct worker freer, remover;

	pdn_consumer_holders(consumer, stop_in_search, NULL);
	worker_start(&freer, free_it, NULL);
	gate_wait(&inside);
	worker_start(&remover, remove_consumer, NULL);
	worker_wait_idle(&remover);
	ck_assert(!worker_is_done(&remover));
	ck_assert_uint_eq(books.destroys, 0);
	gate_open(&go_on);
	worker_join(&freer);
	worker_join(&remover);
	ck_assert_uint_eq(books.destroys, 1);
	pindown_detach(object);
}
END_TEST

/* ---- processes ---------------------------------------------------------------------------- */

static void childs_part(void *arg)
{
	pindown_object *object = NULL;
	unsigned destroys = books.destroys;

	EXPECT(!pindown_object_is_live(arg));
	EXPECT(pindown_object_data(arg) == &books.made[0]);
	EXPECT(pindown_attach(consumer, AT(0), 1, PINDOWN_GET_CACHED, KEY(1, 1), NULL, &object) ==
	       PINDOWN_ERR_NO_CUDA);
	pindown_detach(arg);
	pindown_detach(arg);
	EXPECT(pindown_end_owner(consumer, 1) == 0);
	EXPECT(pindown_flush() == 0);
	EXPECT(books.destroys == destroys);
	EXPECT(stats().objects == 0);
	EXPECT(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object) ==
	       PINDOWN_ERR_NO_CUDA);
	EXPECT(watched_free(AT(0)) == FAKE_SUCCESS);
	EXPECT(books.destroys == destroys);
	EXPECT(pindown_consumer_remove(consumer) == PINDOWN_OK);
	EXPECT(books.destroys == destroys);
}

START_TEST(a_child_abandons_its_parents_objects)
{
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));

	attach_and_detach(consumer, AT(1), KEY(1, 1));
	in_child(childs_part, held);
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_int_eq(pindown_object_is_live(held), 1);
	pindown_detach(held);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_uint_eq(books.creates, 2);
}
END_TEST

static pid_t forked;

static void fork_in_create(struct books *b, pindown_region *region)
{
	(void)region;
	b->in_create = NULL;
	forked = fork();
}

static void fork_in_destroy(struct books *b, const struct pindown_object_end *what)
{
	(void)what;
	b->in_destroy = NULL;
	forked = fork();
}

START_TEST(a_child_forked_in_the_middle_of_create_has_no_object)
{
	pindown_object *object = NULL;
	int made;

	books.in_create = fork_in_create;
	made = pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object);
	if (forked == 0) {
		EXPECT(made == PINDOWN_ERR_BUSY && !object);
		EXPECT(books.destroys == 0);
		EXPECT(stats().objects == 0);
		EXPECT(pindown_consumer_remove(consumer) == PINDOWN_OK);
		_exit(0);
	}
	reap(forked);
	ck_assert_int_eq(made, PINDOWN_OK);
	pindown_detach(object);
}
END_TEST

START_TEST(a_child_forked_in_the_middle_of_destroy_destroys_no_more)
{
	for (unsigned i = 0; i < 3; i++)
		attach_and_detach(consumer, AT(0), KEY(1, i));
	books.in_destroy = fork_in_destroy;
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	if (forked == 0) {
		EXPECT(books.destroys == 1); /* the one whose callback was running */
		EXPECT(stats().objects == 0);
		EXPECT(pindown_consumer_remove(consumer) == PINDOWN_OK);
		_exit(0);
	}
	reap(forked);
	ck_assert_uint_eq(books.destroys, 3);
}
END_TEST

/* ---- all of it at random ------------------------------------------------------------------ */

#define THREADS 4
#define OWNERS	3
#define SLOTS	3

static pthread_mutex_t slots[SLOTS]; /* held by the thread that frees and allocates */

static uint32_t roll(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

static void free_and_allocate(unsigned slot)
{
	if (pthread_mutex_trylock(&slots[slot]) != 0)
		return;
	if (watched_free(AT(slot)) != FAKE_SUCCESS)
		abort();
	watched_alloc(AT(slot), MIB(2), FAKE_LINEAR);
	pthread_mutex_unlock(&slots[slot]);
}

static void use(uint64_t *seed, unsigned slot)
{
	pindown_object *objects[3];
	unsigned n = 0;

	for (unsigned i = 1 + roll(seed) % 3; i > 0; i--) {
		int got =
			pindown_attach(consumer, AT(slot) + roll(seed) % MIB(2), 1, 0,
				       KEY(roll(seed) % OWNERS, roll(seed) % 2), NULL, &objects[n]);

		if (got == PINDOWN_OK)
			n++;
		else if (got != PINDOWN_ERR_NOT_DEVICE && got != PINDOWN_ERR_BUSY &&
			 got != PINDOWN_ERR_TIMED_OUT && got != PINDOWN_CREATE_FAILED(EIO))
			abort();
	}
	while (n-- > 0) {
		/* With PINDOWN_HELD=keep a holder of an object may use it. */
		struct made *made = made_by(objects[n]);

		if (made->destroyed || made->base != AT(slot))
			abort();
		pindown_detach(objects[n]);
	}
}

static void live(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 0x9e3779b97f4a7c15u;

	for (unsigned i = 0; i < 1500; i++) {
		unsigned slot = roll(&seed) % SLOTS;

		switch (roll(&seed) % 16) {
		case 0:
			free_and_allocate(slot);
			break;
		case 1:
			pindown_end_owner(consumer, roll(&seed) % OWNERS);
			break;
		case 2:
			pindown_flush();
			break;
		case 3:
			pindown_invalidate(AT(slot), 1);
			break;
		case 4:
			__atomic_store_n(&books.fail, roll(&seed) % 2 ? EIO : 0, __ATOMIC_RELAXED);
			break;
		default:
			use(&seed, slot);
		}
	}
}

START_TEST(a_random_mixture_of_everything)
{
	struct worker workers[THREADS];

	for (unsigned i = 0; i < SLOTS; i++)
		pthread_mutex_init(&slots[i], NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		worker_start(&workers[i], live, (void *)(i + 1));
	for (unsigned i = 0; i < THREADS; i++)
		worker_join(&workers[i]);
	ck_assert_uint_gt(books.creates, 20);
	ck_assert_uint_eq(stats().kept_regions, 0);
	for (unsigned owner = 0; owner < OWNERS; owner++)
		ck_assert_int_eq(pindown_end_owner(consumer, owner), 0);
	ck_assert_uint_eq(stats().objects, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: consumer objects");
	TCase *tc = suite_case(suite, "objects between threads", open_books_and_gates, close_books);

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, two_threads_make_one_object);
	tcase_add_test(tc, a_thread_that_waited_for_a_failed_create_tries_itself);
	tcase_add_test(tc, a_free_waits_for_what_is_being_made);
	tcase_add_test(tc, a_free_goes_on_after_two_seconds);
	tcase_add_test(tc, a_free_waits_for_what_an_owner_destroys);
	tcase_add_test(tc, an_owners_end_waits_for_what_a_free_destroys);
	tcase_add_test(tc, an_owners_end_waits_for_what_is_being_made);
	tcase_add_test(tc, an_attach_waits_for_what_is_being_destroyed);
	tcase_add_test(tc, removing_a_consumer_waits_for_its_callbacks);
	tcase_add_test(tc, a_child_abandons_its_parents_objects);
	tcase_add_test(tc, a_child_forked_in_the_middle_of_create_has_no_object);
	tcase_add_test(tc, a_child_forked_in_the_middle_of_destroy_destroys_no_more);
	tcase_add_test(tc, a_random_mixture_of_everything);
	tc = suite_case(suite, "holders", open_books_of_one_that_warns, close_books);
	tcase_add_test(tc, removing_a_consumer_waits_for_a_search_for_holders);
	return run_suite(suite);
}
