/* SPDX-License-Identifier: MIT */
/*
 * The network card's registrations of GPU memory. There is one for each region, protection domain,
 * access and distance between addresses and iovas, made with ibv_reg_dmabuf_mr from the region's
 * dma-buf. They are consumer objects of the cache (pindown.h): found again at the next ibv_reg_mr.
 * Idle ones are deregistered before the memory ends, before the region is unpinned for another
 * reason, and before the protection domain or the device ends. PINDOWN_HELD decides about those
 * that the program holds when it frees the memory. Registrations by dma-bufs that the program has
 * exported itself, and umems, are objects of the same consumer: dmabuf.c, umem.c.
 *
 * What a card refuses for good is remembered: limits.c.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/config.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "hook/hook.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "hook/verbs/verbs.h"

#define PAGE	  4096u /* addresses, iovas and offsets must agree below this, in every kernel */
#define PAGE_MASK 0xfffull

/*
 * The access flags that the kernel takes for a dma-buf. Other optional flags are left out; with any
 * other flag the registration is left to libibverbs.
 */
#define RIGHTS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define DMABUF_ACCESS (RIGHTS | IBV_ACCESS_RELAXED_ORDERING)

/* The answer of create() when the region has no descriptor. */
#define NO_DESCRIPTOR ENODATA

/* ---- the consumer objects -------------------------------------------------------------------- */

/* Will the provider or the kernel always refuse it? Any other error may be temporary. */
static bool is_permanent(int error)
{
	return error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT;
}

/*
 * The key: owner is the protection domain; word[0] has the access flags, as five bits, and the
 * pages of the region (the first one and their count, or 0 and 0 for all); word[1] is iova -
 * address. With PDN_KEY_EXACT in word[0] the rest is dmabuf.c's.
 */
#define KEY_RELAXED 16u
#define KEY_FIRST   8
#define KEY_COUNT   36
#define KEY_MAX	    ((1ull << 28) - 1) /* pages: 1 TiB */

struct part {
	uint64_t first, count; /* pages, from the start of the pinned range */
};

uint64_t pdn_verbs_key_access(int access)
{
	return (uint64_t)(access & RIGHTS) |
	       (access & IBV_ACCESS_RELAXED_ORDERING ? KEY_RELAXED : 0);
}

bool pdn_verbs_may_cache(int access)
{
	return !(access & ~DMABUF_ACCESS);
}

static struct pindown_key key_of(const struct pdn_registration *what, struct part part)
{
	return (struct pindown_key){
		.owner = (uintptr_t)what->pd,
		.word = {pdn_verbs_key_access(what->access) | part.first << KEY_FIRST |
				 part.count << KEY_COUNT,
			 what->iova - (uintptr_t)what->addr},
	};
}

static int access_of(const struct pindown_key *key)
{
	return (int)(key->word[0] & RIGHTS) |
	       (key->word[0] & KEY_RELAXED ? IBV_ACCESS_RELAXED_ORDERING : 0);
}

/* NVIDIA's driver answers ENOTSUPP, which is 524 and has no name outside the kernel. */
bool pdn_verbs_refuses_mapping(int error)
{
	return error == EINVAL || error == EOPNOTSUPP || error == 524;
}

static struct ibv_mr *register_part(pindown_region *region, const struct pindown_key *key,
				    unsigned copy, int *error)
{
	pdn_ibv_reg_dmabuf_mr_function *real = PDN_VERB_REAL(copy, ibv_reg_dmabuf_mr);
	struct ibv_pd *pd = (struct ibv_pd *)(uintptr_t)key->owner;
	uint64_t base = pindown_region_pin_base(region), length = pindown_region_pin_length(region);
	uint64_t start = 0;
	struct pdn_loan loan;
	struct ibv_mr *mr;

	*error = NO_DESCRIPTOR;
	if (!real || pdn_dmabuf_lend(region, pd->context->device->ibdev_path, &loan) != PINDOWN_OK)
		return NULL;
	if (key->word[0] >> KEY_COUNT) {
		start = (key->word[0] >> KEY_FIRST & KEY_MAX) * PAGE;
		length = (key->word[0] >> KEY_COUNT) * PAGE;
	}
	do {
		errno = 0;
		mr = real(pd, start, length, base + start + key->word[1], loan.fd, access_of(key));
		*error = mr ? 0 : errno ? errno : EIO;
	} while (pdn_verbs_refuses_mapping(*error) && pdn_dmabuf_lend_other(region, &loan));
	/* The kernel's registration holds the dma-buf, and a process has few descriptors. */
	pdn_dmabuf_end_loan(region, &loan, mr);
	if (PDN_UNLIKELY(is_permanent(*error)))
		pdn_verbs_note_refused(pd->context, pindown_region_buffer_id(region));
	else if (mr && PDN_UNLIKELY(pdn_verbs_any_limit()))
		pdn_verbs_note_taken(pd->context);
	return mr;
}

int pdn_verbs_deregister_real(unsigned copy, struct ibv_mr *mr)
{
	pdn_ibv_dereg_mr_function *real = PDN_VERB_REAL(copy, ibv_dereg_mr);

	return real ? real(mr) : ENOSYS;
}

int pdn_verbs_deregister_made(unsigned copy, enum pdn_maker maker, void *made)
{
	pdn_mlx5dv_devx_umem_dereg_function *real;

	if (!pdn_maker_makes_umems(maker))
		return pdn_verbs_deregister_real(copy, made);
	real = PDN_VERB_REAL(copy, mlx5dv_devx_umem_dereg);
	return real ? real(made) : ENOSYS;
}

/* The record has what the registration covers, for pdn_verbs_is_as_asked(). */
static void *register_exact(pindown_region *region, const struct pdn_exact *exact,
			    struct pdn_mr *kept, int *error)
{
	void *made = pdn_verbs_make_exact(region, exact, error);
	struct ibv_mr what;

	if (!made)
		return NULL;
	what = pdn_maker_makes_umems(exact->maker) ? pdn_umem_as_mr(made, exact)
						   : *(struct ibv_mr *)made;
	what.addr = (void *)(uintptr_t)exact->part.addr;
	what.length = exact->length;
	pdn_mr_fill(kept, &what);
	kept->is_exact = true;
	/*
	 * Relaxed: pdn_verbs_is_as_asked() may read them when the record is used again; its caller
	 * then finds the object revoked.
	 */
	__atomic_store_n(&kept->maker, exact->maker, __ATOMIC_RELAXED);
	__atomic_store_n(&kept->flags, exact->flags, __ATOMIC_RELAXED);
	__atomic_store_n(&kept->iova, exact->iova, __ATOMIC_RELAXED);
	return made;
}

/*
 * So that the members of providers are zero in the next use of the record. Relaxed: as in
 * register_exact().
 */
static void free_kept(struct pdn_mr *kept)
{
	__atomic_store_n(&kept->maker, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&kept->flags, 0, __ATOMIC_RELAXED);
	pdn_mr_free(kept);
}

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	int saved = errno, error;
	const bool is_exact = what->key.word[0] & PDN_KEY_EXACT;
	const struct pdn_registration *part = what->request;
	const struct pdn_exact *exact = what->request;
	struct pdn_mr *kept = pdn_mr_new(PDN_MR_CACHED);
	void *made;

	(void)arg;
	if (!kept)
		return ENOMEM;
	kept->copy = (uint16_t)(is_exact ? exact->copy : part->copy);
	pdn_verbs_use(kept->copy);
	if (is_exact) {
		made = register_exact(what->region, exact, kept, &error);
	} else {
		made = register_part(what->region, &what->key, part->copy, &error);
		if (made)
			pdn_mr_fill(kept, made);
	}
	if (!made) {
		pdn_mr_free(kept);
		errno = saved;
		return error;
	}
	pdn_mr_set_real(kept, made);
	*data = kept;
	errno = saved;
	return 0;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	struct pdn_mr *kept = what->data;
	int saved = errno, error = 0;
	static bool told;

	(void)arg;
	if (!pdn_mr_is_gone(kept))
		error = pdn_verbs_deregister_made(kept->copy, kept->maker, kept->real);
	if (error && pdn_maker_makes_umems(kept->maker)) {
		error = pdn_umem_stick(kept);
	} else {
		pdn_mr_set_real(kept, NULL);
		free_kept(kept);
	}
	if (error)
		pdn_log_once(&told, PDN_LOG_WARN,
			     "a registration of GPU memory could not be deregistered: error %d",
			     error);
	errno = saved;
	return error;
}

/*
 * The object is wanted, so it stays. By a dma-buf, the program names an offset; the object has the
 * address. The acquires order the load in name_holder() after these.
 */
static struct pdn_holder holder_of(struct pdn_mr *mr, const pindown_object *object, uint64_t by)
{
	const struct pdn_mr *kept = pindown_object_data(object);
	const struct pdn_mr *range = kept && kept->is_exact ? kept : mr;

	return (struct pdn_holder){
		.object = object,
		.addr = (uintptr_t)__atomic_load_n(&range->verbs.mr.addr, __ATOMIC_ACQUIRE),
		.size = __atomic_load_n(&range->verbs.mr.length, __ATOMIC_ACQUIRE),
		.caller = by & ~PDN_MR_BY,
	};
}

/*
 * Other threads may free the record, and use it again; then its code has changed. If that is the
 * same again, so is what is said here: an object that ends gets no new holders.
 */
static void name_holder(struct pdn_mr *mr, const struct pdn_holder_search *search)
{
	/* Acquire: see pdn_mr_set_by(); the second one orders the loads after it. */
	uint64_t by = __atomic_load_n(&mr->next_or_by, __ATOMIC_ACQUIRE);
	const pindown_object *object = __atomic_load_n(&mr->object, __ATOMIC_ACQUIRE);
	struct pdn_holder holder;

	if (!(by & PDN_MR_BY) || !object || !search->wants(search->arg, object))
		return;
	holder = holder_of(mr, object, by);
	holder.was_named = __atomic_load_n(&mr->was_named, __ATOMIC_RELAXED);
	if (__atomic_load_n(&mr->next_or_by, __ATOMIC_RELAXED) == by &&
	    search->found(search->arg, &holder))
		__atomic_store_n(&mr->was_named, 1, __ATOMIC_RELAXED);
}

static void name_holders(const struct pdn_holder_search *search)
{
	for (uint32_t n = 1; pdn_mr_at(n); n++)
		name_holder(pdn_mr_at(n), search);
}

/* With another iova, a late use could reach other memory; the card may still need a umem. */
static bool may_retire(const struct pindown_key *key, const void *data)
{
	const struct pdn_mr *kept = data;

	if (!kept->is_exact)
		return key->word[1] == 0;
	return !pdn_maker_makes_umems((enum pdn_maker)kept->maker) &&
	       kept->iova == (uintptr_t)kept->verbs.mr.addr;
}

static int consumer; /* under PDN_LOCK_CONSUMER; 0: not registered yet */

static int our_consumer(void)
{
	static const struct pindown_consumer us = {
		.name = "verbs", .create = create, .destroy = destroy};
	/*
	 * Acquire, also in end_registrations(), pairs with the release below: the cache knows us.
	 */
	int known = __atomic_load_n(&consumer, __ATOMIC_ACQUIRE);

	if (PDN_UNLIKELY(!known)) {
		pdn_lock_one(PDN_LOCK_CONSUMER);
		if (!consumer) {
			known = pindown_consumer_add(&us, sizeof(us));
			pdn_consumer_holders(known, name_holders, may_retire);
			__atomic_store_n(&consumer, known, __ATOMIC_RELEASE);
		}
		known = consumer;
		pdn_unlock_one(PDN_LOCK_CONSUMER);
	}
	return known;
}

/* ---- registering ----------------------------------------------------------------------------- */

static struct part exact_part(const struct pdn_registration *what, uint64_t base)
{
	uint64_t begin = (uintptr_t)what->addr & ~PAGE_MASK;
	uint64_t end = ((uintptr_t)what->addr + what->length + PAGE_MASK) & ~PAGE_MASK;

	return (struct part){(begin - base) / PAGE, (end - begin) / PAGE};
}

/*
 * The largest part around the address whose iovas don't overflow: all of the region, unless the
 * iova 0 lies inside it.
 */
static struct part largest_part(const struct pdn_registration *what, uint64_t base, uint64_t length)
{
	uint64_t distance = what->iova - (uintptr_t)what->addr;
	uint64_t zero = -distance - base; /* offset of the iova 0 */

	if (!distance || zero == 0 || zero >= length)
		return (struct part){0, 0};
	if ((uintptr_t)what->addr - base >= zero)
		return (struct part){zero / PAGE, (length - zero) / PAGE};
	return (struct part){0, zero / PAGE};
}

/* The card has no room for another registration: were idle ones given up? */
static bool gets_room(int error, struct ibv_context *context)
{
	return PDN_UNLIKELY(error == ENOMEM || error == ENOSPC) && pdn_verbs_evict_idle(context);
}

/* Our create's error, or another result. */
static int own_error(int result)
{
	return PINDOWN_CREATE_ERROR(result) ? PINDOWN_CREATE_ERROR(result) : result;
}

int pdn_verbs_attach(uint64_t addr, uint64_t length, const struct pindown_key *key,
		     const void *request, struct ibv_context *context, pindown_object **object)
{
	int result;

	do
		result = own_error(pindown_attach(our_consumer(), addr, length, 0, key,
						  (void *)(uintptr_t)request, object));
	while (gets_room(result, context));
	return result;
}

static int attach_part(const struct pdn_registration *what, pindown_region *region,
		       struct part part, pindown_object **object)
{
	struct pindown_key key = key_of(what, part);
	int result = EINVAL;

	if (part.first > KEY_MAX || part.count > KEY_MAX)
		return result;
	do
		result = own_error(pindown_attach_region(our_consumer(), region, 0, 0, 0, &key,
							 (void *)(uintptr_t)what, object));
	while (gets_room(result, what->pd->context));
	return result;
}

/* A part of the region might be registered where all of it was refused. */
static bool is_worth_a_part(int error)
{
	return error > 0 && !is_permanent(error) && error != NO_DESCRIPTOR;
}

/* largest: try the largest part first, unless the card has refused such a length before. */
static int attach_pinned(const struct pdn_registration *what, pindown_region *region, bool largest,
			 pindown_object **object)
{
	uint64_t base = pindown_region_pin_base(region), length = pindown_region_pin_length(region);
	bool tried = !largest && pdn_config()->verbs == PDN_VERBS_ON;
	int result;

	if (largest && length <= pdn_verbs_longest(what->pd->context)) {
		result = attach_part(what, region, largest_part(what, base, length), object);
		if (!is_worth_a_part(result))
			return result;
		tried = true;
	}
	result = attach_part(what, region, exact_part(what, base), object);
	if (result == PINDOWN_OK && tried && what->length < length)
		pdn_verbs_note_limit(what->pd->context, length - 1);
	return result;
}

#define MAX_LOST_RACES 100

/* Get the region first: its place and length decide which part of it to register. */
static int __attribute__((noinline))
attach_carefully(const struct pdn_registration *what, bool largest, pindown_object **object)
{
	for (unsigned lost = 0;; lost++) {
		pindown_region *region;
		int result = pindown_get((uintptr_t)what->addr, what->length, 0, &region);
		bool again;

		if (result != PINDOWN_OK)
			return result;
		result = attach_pinned(what, region, largest, object);
		/* It was freed, or replaced by a wider one: what is there now? */
		again = result == PINDOWN_ERR_NOT_DEVICE && !pindown_region_is_live(region);
		pindown_put(region);
		if (!again || lost == MAX_LOST_RACES)
			return result;
	}
}

static int attach(const struct pdn_registration *what, pindown_object **object)
{
	struct pindown_key key;
	int result;

	if (pdn_config()->verbs != PDN_VERBS_ON)
		return attach_carefully(what, false, object);
	if (what->iova != (uintptr_t)what->addr || pdn_verbs_any_limit())
		return attach_carefully(what, true, object);
	key = key_of(what, (struct part){0, 0});
	result = pdn_verbs_attach((uintptr_t)what->addr, what->length, &key, what,
				  what->pd->context, object);
	if (PDN_UNLIKELY(is_worth_a_part(result)))
		result = attach_carefully(what, false, object);
	return result;
}

/*
 * The caller checks afterwards whether the object was revoked. The loads are acquires so that this
 * check comes after them. They pair with no store: these members were written before the object was
 * published.
 */
static void fill(struct pdn_mr *mr, const struct pdn_registration *what, const struct ibv_mr *kept)
{
	const struct ibv_mr filled = {
		.context = what->pd->context,
		.pd = what->pd,
		.addr = what->addr,
		.length = what->length,
		.handle = __atomic_load_n(&kept->handle, __ATOMIC_ACQUIRE),
		.lkey = __atomic_load_n(&kept->lkey, __ATOMIC_ACQUIRE),
		.rkey = __atomic_load_n(&kept->rkey, __ATOMIC_ACQUIRE),
	};

	pdn_mr_fill(mr, &filled);
	mr->verbs.type = PDN_MR_TYPE_DMABUF;
	mr->verbs.access = what->access;
	mr->iova = what->iova;
	mr->copy = (uint16_t)what->copy;
}

static bool is_for_dmabuf(const struct pdn_registration *what)
{
	return !(what->access & ~(DMABUF_ACCESS | IBV_ACCESS_OPTIONAL_RANGE)) && what->length &&
	       !((what->iova - (uintptr_t)what->addr) & PAGE_MASK) && what->pd;
}

/* `why`: the card's error, or a pindown_result. false: it is no GPU memory that can be cached. */
static bool is_left(int why)
{
	return why > 0 || (why < PINDOWN_ERR_RANGE && why != PINDOWN_ERR_BUSY);
}

/* Of registrations that libibverbs makes, none ends with its memory. */
void pdn_verbs_leave(const struct ibv_context *context, int why)
{
	static bool said, said_of_one;

	if (!is_left(why))
		return;
	pdn_left_to_card();
	if (why > 0 && why != NO_DESCRIPTOR && pdn_verbs_longest(context) != 0)
		pdn_log_once(&said_of_one, PDN_LOG_WARN,
			     "%s has refused the dma-buf of a region of GPU memory (error %d): its "
			     "registration is left to libibverbs, which needs nvidia-peermem; "
			     "pindown can't end it",
			     context->device->name, why);
	else if (why > 0)
		pdn_log_once(
			&said, PDN_LOG_WARN,
			"%s takes no dma-bufs of GPU memory (error %d): registrations are left "
			"to libibverbs, which needs nvidia-peermem; pindown can't end them",
			context->device->name, why);
	else if (why != PINDOWN_ERR_NO_BACKEND) /* which has a line of its own */
		pdn_log_once(&said, PDN_LOG_WARN,
			     "a registration of GPU memory is left to libibverbs, as it can't be "
			     "cached (%s): pindown can't end it",
			     pindown_strerror(why));
}

static struct ibv_mr *leave_to_libibverbs(struct pdn_mr *mr, int error)
{
	pdn_mr_free(mr);
	errno = error;
	return NULL;
}

/* Revoked: its memory is being freed, and the card may reuse the keys. */
bool pdn_verbs_fill(struct pdn_mr *mr, const struct pdn_registration *what)
{
	const struct pdn_mr *kept = pindown_object_data(mr->object);

	if (PDN_UNLIKELY(!kept))
		return false;
	fill(mr, what, &kept->verbs.mr);
	return pindown_object_data(mr->object) == kept;
}

struct ibv_mr *pdn_verbs_register(const struct pdn_registration *what)
{
	pindown_object *object;
	struct pdn_mr *mr;
	int saved = errno, result;

	if (!is_for_dmabuf(what))
		return NULL;
	if (pdn_verbs_longest(what->pd->context) == 0) {
		pdn_verbs_leave(what->pd->context, EOPNOTSUPP);
		return NULL;
	}
	mr = pdn_mr_new(PDN_MR_GIVEN);
	if (!mr) {
		errno = saved;
		return NULL;
	}
	result = attach(what, &object);
	if (PDN_UNLIKELY(result != PINDOWN_OK)) {
		pdn_verbs_leave(what->pd->context, result);
		return leave_to_libibverbs(mr, saved);
	}
	pdn_mr_set_object(mr, object);
	if (PDN_UNLIKELY(!pdn_verbs_fill(mr, what))) {
		pindown_detach(object);
		return leave_to_libibverbs(mr, saved);
	}
	pdn_mr_set_by(mr, (uintptr_t)what->caller);
	errno = saved;
	return &mr->verbs.mr;
}

/* ---- deregistering --------------------------------------------------------------------------- */

int pdn_verbs_deregister(struct pdn_mr *mr)
{
	static bool told;
	uint16_t given = PDN_MR_GIVEN;
	pindown_object *object;
	int error = 0;

	/*
	 * Of several calls for the same ibv_mr only the first continues. Acquire pairs with the
	 * release below, where the program keeps its ibv_mr after an error: another of its threads
	 * may retry.
	 */
	if (PDN_UNLIKELY(!__atomic_compare_exchange_n(&mr->state, &given, PDN_MR_FREE, false,
						      __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))) {
		pdn_log_once(&told, PDN_LOG_ERROR,
			     "ibv_dereg_mr: %p is not a memory region; ignored", (void *)mr);
		return EINVAL;
	}
	if (PDN_UNLIKELY(mr->real) && !pdn_mr_is_gone(mr))
		error = pdn_verbs_deregister_real(mr->copy, mr->real);
	if (PDN_UNLIKELY(error)) {
		__atomic_store_n(&mr->state, PDN_MR_GIVEN, __ATOMIC_RELEASE);
		return error;
	}
	/*
	 * In this order: when the object's record is used again, this one no longer names its
	 * holder (name_holder()).
	 */
	object = mr->object;
	pdn_mr_free(mr);
	pindown_detach(object);
	return 0;
}

/* ---- the end of protection domains and devices ----------------------------------------------- */

/* Ends idle registrations. If the domain ends, those in use are not handed out again. */
static void end_registrations(struct ibv_pd *pd, bool lives_on)
{
	int known = __atomic_load_n(&consumer, __ATOMIC_ACQUIRE);
	int saved = errno;

	if (known > 0 && lives_on)
		pdn_drop_idle_of(known, (uintptr_t)pd);
	else if (known > 0)
		pindown_end_owner(known, (uintptr_t)pd);
	errno = saved;
}

void pdn_verbs_end_pd(struct ibv_pd *pd)
{
	end_registrations(pd, false);
}

/*
 * Does it stand for a registration on this device? Acquire: the state pairs with the release in
 * pdn_mr_new(), and `real` with the one in pdn_mr_set_real(), before which the other members are
 * stored.
 */
static bool is_of(struct pdn_mr *mr, const struct ibv_context *context)
{
	return __atomic_load_n(&mr->state, __ATOMIC_ACQUIRE) != PDN_MR_FREE &&
	       __atomic_load_n(&mr->real, __ATOMIC_ACQUIRE) && mr->verbs.mr.context == context;
}

static bool is_kept_on(struct pdn_mr *mr, const struct ibv_context *context)
{
	return __atomic_load_n(&mr->state, __ATOMIC_RELAXED) == PDN_MR_CACHED && is_of(mr, context);
}

/* For all protection domains of a device. */
static void end_registrations_on(struct ibv_context *context, bool lives_on)
{
	struct ibv_pd *last = NULL;

	for (uint32_t n = 1; pdn_mr_at(n); n++) {
		struct pdn_mr *mr = pdn_mr_at(n);

		if (!is_kept_on(mr, context) || mr->verbs.mr.pd == last)
			continue;
		last = mr->verbs.mr.pd;
		end_registrations(last, lives_on);
	}
}

void pdn_verbs_end_device(struct ibv_context *context)
{
	end_registrations_on(context, false);
}

static unsigned kept_on(const struct ibv_context *context)
{
	unsigned count = 0;

	for (uint32_t n = 1; pdn_mr_at(n); n++)
		count += is_kept_on(pdn_mr_at(n), context);
	return count;
}

bool pdn_verbs_evict_idle(struct ibv_context *context)
{
	unsigned before = kept_on(context);

	if (before)
		end_registrations_on(context, true);
	return before && kept_on(context) < before;
}

void pdn_verbs_device_ended(struct ibv_context *context)
{
	for (uint32_t n = 1; pdn_mr_at(n); n++) {
		struct pdn_mr *mr = pdn_mr_at(n);

		/* Release pairs with the acquire in pdn_mr_is_gone(). */
		if (is_of(mr, context))
			__atomic_store_n(&mr->gone, 1, __ATOMIC_RELEASE);
	}
	pdn_umem_unstick(context);
	pdn_verbs_forget_limits(context);
}
