/* SPDX-License-Identifier: MIT */
/* A consumer whose objects may end while they are held: see retired_test.h. */
#define _GNU_SOURCE
#include "tests/unit/support/retired_test.h"

int retired_consumer;
static struct registration *registrations; /* all, so that none is lost */
void (*on_end)(const struct registration *ended);
__thread bool retired_by_another; /* and so not asked about: another thread may be freeing it */

static uint64_t id_at(CUdeviceptr p)
{
	unsigned long long id = 0;

	return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p) == CUDA_SUCCESS ? id
											     : 0;
}

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	struct registration *made = calloc(1, sizeof(*made));

	(void)arg;
	made->base = pindown_region_base(what->region);
	made->id = pindown_region_buffer_id(what->region);
	made->older = __atomic_exchange_n(&registrations, made, __ATOMIC_SEQ_CST);
	*data = made;
	return 0;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	struct registration *made = what->data;

	(void)arg;
	made->in_time = !retired_by_another && id_at(made->base) == made->id;
	__atomic_add_fetch(&made->ended, 1, __ATOMIC_SEQ_CST);
	if (on_end)
		on_end(made);
	return 0;
}

static bool may_retire(const struct pindown_key *key, const void *data)
{
	(void)data;
	return key->word[0] == 0;
}

static bool is_sure(uint64_t addr)
{
	(void)addr;
	return true;
}

void retired_begin(void)
{
	const struct pindown_consumer card = {.name = "card", .create = create, .destroy = destroy};

	sim_begin();
	pdn_free_is_sure = is_sure;
	pdn_allocation_waits_ns = pdn_retiring_waits_ns = PATIENCE_NS;
	start_cuda();
	retired_consumer = pindown_consumer_add(&card, sizeof(card));
	ck_assert_int_gt(retired_consumer, 0);
	pdn_consumer_holders(retired_consumer, NULL, may_retire);
}

static void end(void)
{
	on_end = NULL;
	while (pdn_retired_in(PDN_RETIRED_GOING))
		pdn_retired_give_back_some();
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_PENDING), 0);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(stats().retired_bytes, 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	sim_end();
}

TCase *retired_case(Suite *suite, const char *name)
{
	return suite_case(suite, name, retired_begin, end);
}

CUdeviceptr program_alloc(uint64_t size)
{
	struct pdn_aside aside = {0};
	bool gated = pdn_allocation_begins();
	CUdeviceptr p;

	do
		OK(cuMemAlloc_v2(&p, size));
	while (pdn_retired_again(&aside, p, size));
	if (gated)
		pdn_allocation_ended();
	pdn_retired_give_back();
	pdn_allocated(p, size);
	return p;
}

CUresult program_free(CUdeviceptr p)
{
	pdn_guard guard = pdn_end_allocation(p);
	CUresult result = cuMemFree_v2(p);

	pdn_ended(guard);
	return result;
}

pindown_object *hold(CUdeviceptr p)
{
	const struct pindown_key key = {.owner = 1};
	pindown_object *object = NULL;

	ck_assert_int_eq(pindown_attach(retired_consumer, p, 1, 0, &key, NULL, &object),
			 PINDOWN_OK);
	return object;
}

struct registration *registration_of(pindown_object *object)
{
	return pindown_object_data(object);
}

struct retired retire(uint64_t size)
{
	struct retired retired = {.p = program_alloc(size)};

	retired.object = hold(retired.p);
	retired.registration = registration_of(retired.object);
	OK(program_free(retired.p));
	return retired;
}
