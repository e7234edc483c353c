/* SPDX-License-Identifier: MIT */
/*
 * Mistakes in calls of the API. An argument that is no region or no object is always ignored. With
 * PINDOWN_DEBUG=1, a put too many or a use after the last put is reported, with the stack of the
 * call.
 */
#define _GNU_SOURCE
#include <regex.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "tests/unit/support/objects_test.h"

static void open_books_for_debugging(void)
{
	setenv("PINDOWN_DEBUG", "1", 1);
	open_books();
}

/* ---- what is printed ---- */

static void must_match(const char *said, const char *pattern)
{
	regex_t compiled;

	ck_assert_int_eq(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0);
	ck_assert_msg(regexec(&compiled, said, 0, NULL, 0) == 0, "said: %s\nexpected: %s", said,
		      pattern);
	regfree(&compiled);
}

/* The line, and then where this program made the call. */
#define AT_STACK "; called at\npindown:     test_misuse\\+0x[0-9a-f]+\n"
#define LAST_GIVEN_BACK \
	"pindown: it was last given back by thread [0-9]+, at\npindown:     test_misuse\\+0x"
#define NOBODY_HOLDS(call) \
	"^pindown: " call ": nobody holds the region of 2097152 bytes at 0x7f4400000000"

static pindown_region *region;
static pindown_object *object;
static void *garbage;

static void put_it(void)
{
	pindown_put(region);
}

static void put_garbage(void)
{
	pindown_put(garbage);
}

static void detach_it(void)
{
	pindown_detach(object);
}

static void detach_garbage(void)
{
	pindown_detach(garbage);
}

/* ---- without PINDOWN_DEBUG ---- */

/* Also before there is any object, or any table of objects. */
START_TEST(arguments_that_are_no_object_are_ignored)
{
	static char anything[256];
	void *const them[] = {anything, (void *)8, (void *)-8, &region};

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < sizeof(them) / sizeof(them[0]); i++) {
			garbage = them[i];
			const char *said = stderr_of(detach_garbage);
			if (round == 0 && i == 0)
				must_match(
					said,
					"^pindown: pindown_detach: 0x[0-9a-f]+ is not an object; "
					"ignored\n$");
			else
				ck_assert_str_eq(said, "");
		}
		garbage = NULL;
		ck_assert_str_eq(stderr_of(detach_garbage), "");
		attach_and_detach(consumer, AT(0), KEY(1, 1));
		garbage = pdn_objects + 100000;
		detach_garbage();
		garbage = pdn_objects; /* number 0, which is never used */
		detach_garbage();
	}
	object = must_attach(consumer, AT(0), KEY(1, 1));
	pindown_detach(object);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	destroyed(1, PINDOWN_REASON_FREED, 0);
}
END_TEST

START_TEST(without_it_nothing_is_said_of_holds)
{
	region = must_get(AT(0), 1);
	pindown_region *again = must_get(AT(0), 1);
	ck_assert_ptr_eq(again, region);
	ck_assert_str_eq(stderr_of(put_it), "");
	ck_assert_str_eq(stderr_of(put_it), "");
	ck_assert_int_eq(pindown_region_is_live(region), 1);
}
END_TEST

/* ---- regions ---- */

START_TEST(a_put_too_many)
{
	region = must_get(AT(0), 1);
	ck_assert_str_eq(stderr_of(put_it), "");
	const char *said = stderr_of(put_it);
	must_match(said, NOBODY_HOLDS("pindown_put") ", one put was too many: ignored" AT_STACK);
	must_match(said, LAST_GIVEN_BACK);
	/* It is ignored: the region's next holder is not affected. */
	pindown_region *held = must_get(AT(0), 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 1);
	pindown_put(held);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

static void put_in_thread(void *arg)
{
	pindown_put(arg);
}

/*
 * While other threads hold the region the mistake can't be seen. But then their put is the one too
 * many, and the last puts are reported.
 */
START_TEST(a_put_too_many_under_another_holder)
{
	region = must_get(AT(0), 1);
	ck_assert_ptr_eq(must_get(AT(0), 1), region);
	in_other_thread(put_in_thread, region);
	in_other_thread(put_in_thread, region);
	const char *said = stderr_of(put_it);
	must_match(said, NOBODY_HOLDS("pindown_put"));
	must_match(said, LAST_GIVEN_BACK);
}
END_TEST

START_TEST(puts_by_other_threads_are_none_too_many)
{
	for (unsigned i = 0; i < 20; i++) {
		region = must_get(AT(0), 1);
		in_other_thread(put_in_thread, region);
	}
	ck_assert_int_eq(pindown_flush(), 1);
}
END_TEST

START_TEST(a_put_of_what_is_gone)
{
	region = must_get(AT(0), 1);
	pindown_put(region);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	/* Other regions come, and none of them uses its record. */
	for (unsigned i = 0; i < 100; i++) {
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
		pindown_region *held = must_get(AT(0), 1);
		must_match(i < 20 ? stderr_of(put_it) : "pindown: pindown_put: nobody holds",
			   "^pindown: pindown_put: nobody holds");
		ck_assert(i >= 20 || pindown_region_is_live(held));
		pindown_put(held);
		ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	}
}
END_TEST

START_TEST(a_put_of_garbage)
{
	get_and_put(AT(0), 1);
	garbage = &region;
	must_match(stderr_of(put_garbage), "^pindown: pindown_put: 0x[0-9a-f]+ is not a region; "
					   "ignored" AT_STACK);
	garbage = (char *)(pdn_regions + 1) + 8;
	must_match(stderr_of(put_garbage), "is not a region");
	garbage = pdn_regions + 3000;
	must_match(stderr_of(put_garbage), "is not a region");
	garbage = NULL;
	ck_assert_str_eq(stderr_of(put_garbage), "");
}
END_TEST

/*
 * After a time with many regions, when none is left, their table starts again. Records that were
 * not to be reused for a while do not count as free then, as another region may have them by now.
 */
START_TEST(records_that_rest_go_with_their_table)
{
	enum { MANY = 1100 };
	static pindown_region *many[MANY];

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < MANY; i++)
			fake_alloc(AT(10 + i), PAGE, FAKE_LINEAR);
		for (unsigned i = 0; i < MANY; i++)
			many[i] = must_get(AT(10 + i), 1);
		for (unsigned i = 0; i < MANY / 2; i++) {
			pindown_put(many[i]);
			ck_assert_int_eq(pindown_invalidate(AT(10 + i), 1), 1);
		}
		for (unsigned i = 0; i < MANY / 2; i++)
			many[i] = must_get(AT(10 + i), 1);
		for (unsigned i = 0; i < MANY; i++)
			ck_assert_uint_eq(pindown_region_base(many[i]), AT(10 + i));
		for (unsigned i = 0; i < MANY; i++) {
			pindown_put(many[i]);
			ck_assert_int_eq(watched_free(AT(10 + i)), FAKE_SUCCESS);
		}
		pindown_flush();
	}
}
END_TEST

/* A child has its parent's pointers, and gives back what it does not hold. */
static void put_in_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		for (unsigned i = 0; i < 3; i++) {
			pindown_put(region);
			pindown_detach(object);
		}
		_exit(stats().regions || stats().objects);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

START_TEST(a_child_gives_back_what_its_parent_holds)
{
	region = must_get(AT(0), 1);
	object = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_str_eq(stderr_of(put_in_child), "");
	ck_assert_str_eq(stderr_of(put_it), "");
	ck_assert_str_eq(stderr_of(detach_it), "");
}
END_TEST

static uint64_t sink;

static void look_at_it(void)
{
	sink += pindown_region_base(region);
}

START_TEST(use_after_the_last_put)
{
	region = must_get(AT(0), 1);
	ck_assert_str_eq(stderr_of(look_at_it), "");
	pindown_put(region);
	const char *said = stderr_of(look_at_it);
	must_match(said, NOBODY_HOLDS("pindown_region_base") " any more" AT_STACK);
	must_match(said, LAST_GIVEN_BACK);
}
END_TEST

static void use_everything(void)
{
	uint64_t offset;
	int fd;

	sink += pindown_region_base(region) + pindown_region_length(region);
	sink += pindown_region_pin_base(region) + pindown_region_pin_length(region);
	sink += pindown_region_buffer_id(region) + (uintptr_t)pindown_region_context(region);
	sink += (uint64_t)pindown_region_device(region);
	sink += (uint64_t)pindown_region_is_volatile(region);
	sink += (uint64_t)pindown_region_is_live(region);
	sink += (uint64_t)pindown_region_dmabuf(region, AT(0), &fd, &offset);
}

static unsigned count(const char *said, const char *what)
{
	unsigned n = 0;

	for (; (said = strstr(said, what)); said += strlen(what))
		n++;
	return n;
}

START_TEST(every_accessor_is_looked_at)
{
	region = must_get(AT(0), 1);
	ck_assert_str_eq(stderr_of(use_everything), "");
	pindown_put(region);
	ck_assert_uint_eq(count(stderr_of(use_everything), ": nobody holds the region"), 10);
}
END_TEST

static void put_again(void)
{
	pindown_put(region);
}

/* Each line of a stack is a place in a module. */
START_TEST(no_line_of_a_stack_is_made_up)
{
	const char *said;

	region = must_get(AT(0), 1);
	pindown_put(region);
	said = stderr_of(put_again);
	ck_assert_uint_ge(count(said, "\npindown:     "), 2);
	ck_assert_uint_eq(count(said, "\npindown:     0x"), 0);
}
END_TEST

/* Correct uses: by an object, in callbacks, of memory that has ended. */
static void use_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	region = what->region;
	use_everything();
}

static void use_in_create(struct books *own, pindown_region *its)
{
	(void)own;
	region = its;
	use_everything();
}

static void use_in_destroy(struct books *own, const struct pindown_object_end *what)
{
	(void)own;
	sink += pindown_region_base(what->region);
}

static void use_rightly(void)
{
	int id = pindown_subscribe(use_in_callback, NULL);

	books.in_create = use_in_create;
	books.in_destroy = use_in_destroy;
	object = must_attach(consumer, AT(0), KEY(1, 1));
	region = pindown_object_region(object);
	use_everything();
	pindown_region *held = must_get(AT(1), 1);
	watched_free(AT(1));
	region = held;
	sink += pindown_region_base(region);
	pindown_put(held);
	watched_free(AT(0));
	sink += pindown_region_base(pindown_object_region(object));
	pindown_detach(object);
	pindown_unsubscribe(id);
}

START_TEST(rightful_uses_are_not_named)
{
	setenv("PINDOWN_HELD", "keep", 1); /* which names no registration that is held */
	ck_assert_str_eq(stderr_of(use_rightly), "");
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/* ---- objects ---- */

START_TEST(a_detach_too_many)
{
	object = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_str_eq(stderr_of(detach_it), "");
	const char *said = stderr_of(detach_it);
	must_match(said,
		   "^pindown: pindown_detach: nobody holds the object 0x[0-9a-f]+, one detach was "
		   "too many: ignored" AT_STACK);
	must_match(said, LAST_GIVEN_BACK);
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(books.destroys, 0);
	pindown_detach(held);
	destroyed(1, PINDOWN_REASON_FREED, 0);
	/* The same for an object that is gone. */
	must_match(stderr_of(detach_it), "nobody holds the object");
}
END_TEST

START_TEST(a_detach_of_what_is_gone)
{
	object = must_attach(consumer, AT(0), KEY(1, 1));
	pindown_detach(object);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	/* Other objects come, and none of them uses its record. */
	for (unsigned i = 0; i < 20; i++) {
		pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));
		must_match(stderr_of(detach_it), "^pindown: pindown_detach: nobody holds");
		ck_assert_int_eq(pindown_end_owner(consumer, 1), 1);
		pindown_detach(held);
	}
}
END_TEST

START_TEST(a_detach_of_garbage)
{
	garbage = &region;
	must_match(stderr_of(detach_garbage),
		   "^pindown: pindown_detach: 0x[0-9a-f]+ is not an object; "
		   "ignored" AT_STACK);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	garbage = (char *)(pdn_objects + 1) + 8;
	must_match(stderr_of(detach_garbage), "is not an object");
	garbage = pdn_objects + 3000;
	must_match(stderr_of(detach_garbage), "is not an object");
}
END_TEST

static void use_object(void)
{
	sink += (uintptr_t)pindown_object_data(object);
	sink += (uintptr_t)pindown_object_region(object);
	sink += (uint64_t)pindown_object_is_live(object);
}

START_TEST(use_after_the_last_detach)
{
	object = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_str_eq(stderr_of(use_object), "");
	pindown_detach(object);
	ck_assert_uint_eq(count(stderr_of(use_object), "nobody holds the object"), 3);
}
END_TEST

static void attach_to_it(void)
{
	if (pindown_attach_region(consumer, region, 0, 0, 0, KEY(1, 1), NULL, &object) ==
	    PINDOWN_OK)
		pindown_detach(object);
}

START_TEST(an_attach_to_what_is_not_held)
{
	region = must_get(AT(0), 1);
	ck_assert_str_eq(stderr_of(attach_to_it), "");
	pindown_put(region);
	must_match(stderr_of(attach_to_it), NOBODY_HOLDS("pindown_attach_region"));
}
END_TEST

/* ---- many mistakes ---- */

static void put_often(void)
{
	for (unsigned i = 0; i < 100; i++)
		pindown_put(region);
}

START_TEST(the_messages_are_limited)
{
	region = must_get(AT(0), 1);
	const char *said = stderr_of(put_often);
	ck_assert_uint_eq(count(said, "one put was too many"), 20);
	must_match(said, "\npindown: no further mistakes are reported\n$");
	ck_assert_uint_eq(count(stderr_of(put_often), "pindown"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("misuse");
	TCase *tc = objects_case(suite, "without PINDOWN_DEBUG");

	tcase_add_test(tc, arguments_that_are_no_object_are_ignored);
	tcase_add_test(tc, without_it_nothing_is_said_of_holds);
	tc = suite_case(suite, "with PINDOWN_DEBUG=1", open_books_for_debugging, close_books);
	tcase_add_test(tc, a_put_too_many);
	tcase_add_test(tc, a_put_too_many_under_another_holder);
	tcase_add_test(tc, puts_by_other_threads_are_none_too_many);
	tcase_add_test(tc, a_put_of_what_is_gone);
	tcase_add_test(tc, records_that_rest_go_with_their_table);
	tcase_add_test(tc, a_child_gives_back_what_its_parent_holds);
	tcase_add_test(tc, a_put_of_garbage);
	tcase_add_test(tc, use_after_the_last_put);
	tcase_add_test(tc, every_accessor_is_looked_at);
	tcase_add_test(tc, no_line_of_a_stack_is_made_up);
	tcase_add_test(tc, rightful_uses_are_not_named);
	tcase_add_test(tc, a_detach_too_many);
	tcase_add_test(tc, a_detach_of_what_is_gone);
	tcase_add_test(tc, a_detach_of_garbage);
	tcase_add_test(tc, use_after_the_last_detach);
	tcase_add_test(tc, an_attach_to_what_is_not_held);
	tcase_add_test(tc, the_messages_are_limited);
	return run_suite(suite);
}
