/* SPDX-License-Identifier: MIT */
/* A consumer that keeps books of the objects it has made, and checks of these books. */
#include "tests/unit/support/objects_test.h"

struct books books;
int consumer;

int books_create(const struct pindown_object_request *what, void **data, void *arg)
{
	struct books *own = arg;
	int fail = __atomic_load_n(&own->fail, __ATOMIC_RELAXED);
	unsigned n = __atomic_fetch_add(&own->places, 1, __ATOMIC_SEQ_CST);
	struct made *made = &own->made[n % MADE_MOST];

	*made = (struct made){.owner = what->key.owner,
			      .access = what->key.word[0],
			      .base = pindown_region_base(what->region),
			      .id = pindown_region_buffer_id(what->region),
			      .addr = what->addr,
			      .length = what->length,
			      .request = what->request};
	if (own->in_create)
		own->in_create(own, what->region);
	if (fail)
		return fail;
	__atomic_fetch_add(&own->creates, 1, __ATOMIC_SEQ_CST);
	*data = made;
	return 0;
}

int books_destroy(const struct pindown_object_end *what, void *arg)
{
	struct books *own = arg;
	struct made *made = what->data;

	if (!fake_open_exports_of(made->id))
		own->pin_is_gone = true;
	made->reason = what->reason;
	made->in_use = what->in_use;
	made->destroyed++;
	if (own->in_destroy)
		own->in_destroy(own, what);
	__atomic_fetch_add(&own->destroys, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int books_open(struct books *own)
{
	const struct pindown_consumer ops = {
		.name = "books", .create = books_create, .destroy = books_destroy, .arg = own};
	int id = pindown_consumer_add(&ops, sizeof(ops));

	ck_assert_int_gt(id, 0);
	return id;
}

pindown_object *must_attach(int whose, uint64_t addr, const struct pindown_key *key)
{
	pindown_object *object = NULL;
	int result = pindown_attach(whose, addr, 1, 0, key, NULL, &object);

	ck_assert_msg(result == PINDOWN_OK, "attach at 0x%jx: %d, %s", (uintmax_t)addr, result,
		      pindown_strerror(result));
	ck_assert_ptr_nonnull(object);
	return object;
}

void attach_and_detach(int whose, uint64_t addr, const struct pindown_key *key)
{
	pindown_detach(must_attach(whose, addr, key));
}

struct made *made_by(pindown_object *object)
{
	return pindown_object_data(object);
}

/* ---- the test's own books ---- */

void open_books(void)
{
	cache_begin();
	consumer = books_open(&books);
	for (unsigned i = 0; i < 4; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
}

void close_books(void)
{
	pindown_flush();
	ck_assert_uint_eq(books.creates, books.destroys);
	for (unsigned i = 0; i < books.places && i < MADE_MOST; i++)
		ck_assert_uint_le(books.made[i].destroyed, 1);
	ck_assert(!books.pin_is_gone);
	ck_assert_uint_eq(stats().objects, 0);
	ck_assert_uint_eq(stats().object_kept_regions, 0);
	ck_assert_uint_eq(stats().object_kept_bytes, 0);
	cache_end();
}

void destroyed(unsigned times, int reason, int in_use)
{
	ck_assert_uint_eq(books.destroys, times);
	ck_assert_int_eq(books.made[times - 1].reason, reason);
	ck_assert_int_eq(books.made[times - 1].in_use, in_use);
}

TCase *objects_case(Suite *suite, const char *name)
{
	return suite_case(suite, name, open_books, close_books);
}
