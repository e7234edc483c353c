/* SPDX-License-Identifier: MIT */
/*
 * The network card's registrations of GPU memory. They are consumer objects of the cache
 * (pindown.h): found again at the next call that asks for the same. Two kinds are made:
 *
 *	by ibv_reg_mr and its relatives		one for each region, protection domain, access and
 *						distance between addresses and iovas
 *	by a dma-buf that the program has	exact ones: of just the bytes that the program
 *	exported itself, and umems (umem.c)	named. They are objects of the region of that memory
 *
 * Idle ones are deregistered before the memory ends, before the region is unpinned for another
 * reason, and before the protection domain or the device ends. PINDOWN_HELD decides about those
 * that the program holds when it frees the memory.
 *
 * How the card makes them: dmabuf.c. What a card refuses for good is remembered: limits.c.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/environment/config.h"
#include "cache/base/memory/hashed.h"
#include "hook/hook.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
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

/* ---- keys ------------------------------------------------------------------------------------ */

/*
 * The key: owner is the protection domain, or the device of a umem; word[0] has the access flags,
 * as five bits, and the pages of the region (the first one and their count, or 0 and 0 for all);
 * word[1] is iova - address.
 *
 * With KEY_EXACT, word[0] also has whether the export has flags, and the length. word[1] is a hash
 * of the rest, which is more than a key has room for: is_as_asked() compares it. An object is
 * looked for on one region, so the hash of the buffer id only tells adjacent mappings apart.
 */
#define KEY_RELAXED 16u
#define KEY_EXACT   32u
#define KEY_FLAGS   64u
#define KEY_LENGTH  7
#define KEY_FIRST   8
#define KEY_COUNT   36
#define KEY_MAX	    ((1ull << 28) - 1) /* pages: 1 TiB */

struct part {
	uint64_t first, count; /* pages, from the start of the pinned range */
};

static bool is_exact(const struct pdn_request *what)
{
	return what->maker != PDN_MR_BY_ADDRESS;
}

static uint64_t key_access(int access)
{
	return (uint64_t)(access & RIGHTS) |
	       (access & IBV_ACCESS_RELAXED_ORDERING ? KEY_RELAXED : 0);
}

static struct pindown_key key_of(const struct pdn_request *what, struct part part)
{
	return (struct pindown_key){
		.owner = (uintptr_t)what->pd,
		.word = {key_access(what->access) | part.first << KEY_FIRST |
				 part.count << KEY_COUNT,
			 what->iova - what->addr},
	};
}

static struct pindown_key key_of_exact(const struct pdn_request *what)
{
	uint64_t hash = pdn_hash(what->flags << 8 | (uint64_t)what->maker);

	hash = pdn_hash(what->part.addr ^ pdn_hash(what->iova ^ hash));
	return (struct pindown_key){
		.owner = what->pd ? (uintptr_t)what->pd : (uintptr_t)what->context,
		.word = {KEY_EXACT | key_access(what->access) | (what->part.flags ? KEY_FLAGS : 0) |
				 what->length << KEY_LENGTH,
			 pdn_hash(hash ^ what->part.buffer_id)},
	};
}

/* What the key says of a part of the region, as a request of exactly that. */
static void ask_for_part(struct pdn_request *what, const pindown_region *region,
			 const struct pindown_key *key)
{
	uint64_t first = key->word[0] >> KEY_FIRST & KEY_MAX, count = key->word[0] >> KEY_COUNT;

	what->part.addr = pindown_region_pin_base(region) + first * PAGE;
	what->length = count ? count * PAGE : pindown_region_pin_length(region);
	what->iova = what->part.addr + key->word[1];
}

/* The cached registration covers just this, and was made in this way. Acquires: see fill(). */
static bool is_as_asked(const struct pdn_mr *kept, const struct pdn_request *what)
{
	return (uintptr_t)__atomic_load_n(&kept->verbs.mr.addr, __ATOMIC_ACQUIRE) ==
		       what->part.addr &&
	       __atomic_load_n(&kept->verbs.mr.length, __ATOMIC_ACQUIRE) == what->length &&
	       __atomic_load_n(&kept->maker, __ATOMIC_ACQUIRE) == what->maker &&
	       __atomic_load_n(&kept->flags, __ATOMIC_ACQUIRE) == what->flags &&
	       __atomic_load_n(&kept->iova, __ATOMIC_ACQUIRE) == what->iova;
}

/* ---- the consumer objects -------------------------------------------------------------------- */

/* Will the provider or the kernel always refuse it? Any other error may be temporary. */
static bool is_permanent(int error)
{
	return error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT;
}

static void note_answer(const struct pdn_request *what, const pindown_region *region, int error)
{
	if (is_exact(what))
		return;
	if (PDN_UNLIKELY(is_permanent(error)))
		pdn_verbs_note_refused(what->context, pindown_region_buffer_id(region));
	else if (!error && PDN_UNLIKELY(pdn_verbs_any_limit()))
		pdn_verbs_note_taken(what->context);
}

int pdn_verbs_deregister_made(unsigned copy, enum pdn_maker maker, void *made)
{
	enum pdn_verb verb = pdn_maker_makes_umems(maker) ? PDN_VERB_mlx5dv_devx_umem_dereg
							  : PDN_VERB_ibv_dereg_mr;

	return pdn_verbs_call_end(pdn_verb_real(copy, verb), maker, made);
}

/* The keys of a umem are its id and its handle. The owner is in the place of the domain. */
static struct ibv_mr umem_as_mr(const struct pdn_mlx5_umem *umem, const struct pdn_request *what)
{
	return (struct ibv_mr){
		.context = what->context,
		.pd = (struct ibv_pd *)what->context,
		.handle = umem->handle,
		.lkey = umem->umem.umem_id,
	};
}

/* The record has what the registration covers, for is_as_asked(). */
static void keep(struct pdn_mr *kept, void *made, const struct pdn_request *what)
{
	struct ibv_mr mr = pdn_maker_makes_umems(what->maker) ? umem_as_mr(made, what)
							      : *(struct ibv_mr *)made;

	mr.addr = (void *)(uintptr_t)what->part.addr;
	mr.length = what->length;
	pdn_mr_fill(kept, &mr);
	/* Relaxed: as in pdn_mr_free(). */
	__atomic_store_n(&kept->maker, what->maker, __ATOMIC_RELAXED);
	__atomic_store_n(&kept->flags, what->flags, __ATOMIC_RELAXED);
	__atomic_store_n(&kept->iova, what->iova, __ATOMIC_RELAXED);
	pdn_mr_set_real(kept, made);
}

static int create(const struct pindown_object_request *object, void **data, void *arg)
{
	struct pdn_request what = *(const struct pdn_request *)object->request;
	int saved = errno, error;
	struct pdn_mr *kept = pdn_mr_new(PDN_MR_CACHED);
	void *made;

	(void)arg;
	if (!kept)
		return ENOMEM;
	kept->copy = (uint16_t)what.copy;
	pdn_verbs_use(what.copy);
	what.access &= DMABUF_ACCESS;
	if (!is_exact(&what))
		ask_for_part(&what, object->region, &object->key);
	made = pdn_verbs_make(object->region, &what, &error);
	note_answer(&what, object->region, error);
	if (made)
		keep(kept, made, &what);
	else
		pdn_mr_free(kept);
	*data = kept;
	errno = saved;
	return error;
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
		pdn_mr_free(kept);
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
	/* Relaxed: it may be freed, and used again, meanwhile, as name_holder() says. */
	bool exact = kept && __atomic_load_n(&kept->maker, __ATOMIC_RELAXED);
	const struct pdn_mr *range = exact ? kept : mr;

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
	struct pdn_mr *mr;

	for (PDN_EACH_MR(mr))
		name_holder(mr, search);
}

/* With another iova, a late use could reach other memory; the card may still need a umem. */
static bool may_retire(const struct pindown_key *key, const void *data)
{
	const struct pdn_mr *kept = data;

	(void)key;
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

/* ---- attaching ------------------------------------------------------------------------------- */

/*
 * In this region, or in the one of this memory; the answer is our create's error or another result.
 * Idle registrations are given up if the card has no room.
 */
static int attach_object(const struct pdn_request *what, pindown_region *region, uint64_t addr,
			 uint64_t length, const struct pindown_key *key, pindown_object **object)
{
	void *request = (void *)(uintptr_t)what;
	int us = our_consumer(), result;

	do {
		result = region ? pindown_attach_region(us, region, 0, 0, 0, key, request, object)
				: pindown_attach(us, addr, length, 0, key, request, object);
		if (PINDOWN_CREATE_ERROR(result))
			result = PINDOWN_CREATE_ERROR(result);
	} while (PDN_UNLIKELY(result == ENOMEM || result == ENOSPC) &&
		 pdn_verbs_evict_idle(what->context));
	return result;
}

/* The region is that of the allocation; what sticks out of this is in the pages of its pin. */
static int attach_exact(const struct pdn_request *what, pindown_object **object)
{
	const struct pdn_exported *part = &what->part;
	uint64_t begin = part->addr, end = part->addr + what->length;
	struct pindown_key key = key_of_exact(what);

	if (begin < part->memory.base)
		begin = part->memory.base;
	if (end > part->memory.end)
		end = part->memory.end;
	return attach_object(what, NULL, begin, end - begin, &key, object);
}

static struct part exact_part(const struct pdn_request *what, uint64_t base)
{
	uint64_t begin = what->addr & ~PAGE_MASK;
	uint64_t end = (what->addr + what->length + PAGE_MASK) & ~PAGE_MASK;

	return (struct part){(begin - base) / PAGE, (end - begin) / PAGE};
}

/*
 * The largest part around the address whose iovas don't overflow: all of the region, unless the
 * iova 0 lies inside it.
 */
static struct part largest_part(const struct pdn_request *what, uint64_t base, uint64_t length)
{
	uint64_t distance = what->iova - what->addr;
	uint64_t zero = -distance - base; /* offset of the iova 0 */

	if (!distance || zero == 0 || zero >= length)
		return (struct part){0, 0};
	if (what->addr - base >= zero)
		return (struct part){zero / PAGE, (length - zero) / PAGE};
	return (struct part){0, zero / PAGE};
}

static int attach_part(const struct pdn_request *what, pindown_region *region, struct part part,
		       pindown_object **object)
{
	struct pindown_key key = key_of(what, part);

	if (part.first > KEY_MAX || part.count > KEY_MAX)
		return EINVAL;
	return attach_object(what, region, 0, 0, &key, object);
}

/* A part of the region might be registered where all of it was refused. */
static bool is_worth_a_part(int error)
{
	return error > 0 && !is_permanent(error) && error != PDN_NO_DESCRIPTOR;
}

/* largest: try the largest part first, unless the card has refused such a length before. */
static int attach_pinned(const struct pdn_request *what, pindown_region *region, bool largest,
			 pindown_object **object)
{
	uint64_t base = pindown_region_pin_base(region), length = pindown_region_pin_length(region);
	bool tried = !largest && pdn_config()->verbs == PDN_VERBS_ON;
	int result;

	if (largest && length <= pdn_verbs_longest(what->context)) {
		result = attach_part(what, region, largest_part(what, base, length), object);
		if (!is_worth_a_part(result))
			return result;
		tried = true;
	}
	result = attach_part(what, region, exact_part(what, base), object);
	if (result == PINDOWN_OK && tried && what->length < length)
		pdn_verbs_note_limit(what->context, length - 1);
	return result;
}

#define MAX_LOST_RACES 100

/* Get the region first: its place and length decide which part of it to register. */
static int attach_carefully(const struct pdn_request *what, bool largest, pindown_object **object)
{
	for (unsigned lost = 0;; lost++) {
		pindown_region *region;
		int result = pindown_get(what->addr, what->length, 0, &region);
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

static int attach_by_address(const struct pdn_request *what, pindown_object **object)
{
	struct pindown_key key;
	int result;

	if (pdn_config()->verbs != PDN_VERBS_ON)
		return attach_carefully(what, false, object);
	if (what->iova != what->addr || pdn_verbs_any_limit())
		return attach_carefully(what, true, object);
	key = key_of(what, (struct part){0, 0});
	result = attach_object(what, NULL, what->addr, what->length, &key, object);
	if (PDN_UNLIKELY(is_worth_a_part(result)))
		result = attach_carefully(what, false, object);
	return result;
}

/* ---- registering ----------------------------------------------------------------------------- */

static bool is_for_dmabuf(const struct pdn_request *what)
{
	const int access = DMABUF_ACCESS | (is_exact(what) ? 0 : IBV_ACCESS_OPTIONAL_RANGE);

	if (what->access & ~access)
		return false;
	if (pdn_maker_makes_umems(what->maker))
		return what->context;
	return what->pd && what->length && !((what->iova - what->addr) & PAGE_MASK) &&
	       (!is_exact(what) || what->iova + (what->length - 1) >= what->iova);
}

/* Of an exact one, the memory. */
static bool find_memory(struct pdn_request *what)
{
	const uint64_t begin = what->addr, end = begin + what->length;

	if (pdn_request_is_by_dmabuf(what))
		return pdn_export_find(what->fd, begin, what->length, &what->part);
	what->part = (struct pdn_exported){.addr = begin, .memory = {.base = begin, .end = end}};
	return end > begin;
}

/* `why`: the card's error, or a pindown_result. false: it is no GPU memory that can be cached. */
static bool is_left(int why)
{
	return why > 0 || (why < PINDOWN_ERR_RANGE && why != PINDOWN_ERR_BUSY);
}

/*
 * A registration of GPU memory is left to libibverbs: none of those ends with its memory. Count it,
 * and say so if it is the first.
 */
static void leave(const struct pdn_request *what, int why)
{
	const struct ibv_context *context = what->context;
	static bool said, said_of_one;

	if (is_exact(what) || !is_left(why))
		return;
	pdn_left_to_card();
	if (why > 0 && why != PDN_NO_DESCRIPTOR && pdn_verbs_longest(context) != 0)
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

/*
 * false: it was revoked meanwhile, as its memory is being freed, and the card may reuse the keys.
 * The loads are acquires so that the check comes after them. They pair with no store: these members
 * were written before the object was published.
 */
static bool fill(struct pdn_mr *mr, pindown_object *object, const struct pdn_request *what)
{
	const struct pdn_mr *kept = pindown_object_data(object);
	struct ibv_mr filled = {
		.context = what->context,
		.pd = what->pd,
		.addr = (void *)(uintptr_t)what->addr, /* libibverbs, too, has an offset there */
		.length = what->length,
	};

	pdn_mr_set_object(mr, object);
	if (PDN_UNLIKELY(!kept) || (is_exact(what) && !is_as_asked(kept, what)))
		return false;
	filled.handle = __atomic_load_n(&kept->verbs.mr.handle, __ATOMIC_ACQUIRE);
	filled.lkey = __atomic_load_n(&kept->verbs.mr.lkey, __ATOMIC_ACQUIRE);
	filled.rkey = __atomic_load_n(&kept->verbs.mr.rkey, __ATOMIC_ACQUIRE);
	pdn_mr_fill(mr, &filled);
	mr->verbs.type = PDN_MR_TYPE_DMABUF;
	mr->verbs.access = what->access;
	mr->copy = (uint16_t)what->copy;
	mr->by_dmabuf = is_exact(what);
	if (pdn_maker_makes_umems(what->maker))
		mr->umem = (struct pdn_mlx5_umem){.umem = {filled.lkey},
						  .context = what->context,
						  .handle = filled.handle,
						  .addr = filled.addr,
						  .size = what->length};
	else
		mr->iova = what->iova;
	return pindown_object_data(object) == kept;
}

static void *attach(struct pdn_mr *mr, const struct pdn_request *what)
{
	pindown_object *object;
	int result =
		is_exact(what) ? attach_exact(what, &object) : attach_by_address(what, &object);

	if (PDN_UNLIKELY(result != PINDOWN_OK)) {
		leave(what, result);
	} else if (PDN_UNLIKELY(!fill(mr, object, what))) {
		pindown_detach(object);
	} else {
		pdn_mr_set_by(mr, (uintptr_t)what->caller);
		return pdn_maker_makes_umems(what->maker) ? (void *)&mr->umem.umem : &mr->verbs.mr;
	}
	pdn_mr_free(mr);
	return NULL;
}

void *pdn_verbs_register(struct pdn_request *what)
{
	int saved = errno;
	void *made = NULL;
	struct pdn_mr *mr;

	if (!is_for_dmabuf(what))
		return NULL;
	if (what->pd)
		what->context = what->pd->context;
	if (pdn_verbs_longest(what->context) == 0) {
		leave(what, EOPNOTSUPP);
		return NULL;
	}
	if (is_exact(what) && !find_memory(what))
		return NULL;
	mr = pdn_mr_new(PDN_MR_GIVEN);
	if (mr)
		made = attach(mr, what);
	errno = saved;
	return made;
}

/* ---- deregistering --------------------------------------------------------------------------- */

int pdn_verbs_deregister(struct pdn_mr *mr, enum pdn_maker maker)
{
	static bool told;
	pindown_object *object;
	int error = 0;

	/* Of several calls for the same one only the first continues. */
	if (PDN_UNLIKELY(!pdn_mr_take(mr, PDN_MR_GIVEN))) {
		pdn_log_once(&told, PDN_LOG_ERROR, "%s: %p is not a memory region; ignored",
			     pdn_maker_makes_umems(maker) ? "mlx5dv_devx_umem_dereg"
							  : "ibv_dereg_mr",
			     (void *)mr);
		return EINVAL;
	}
	if (PDN_UNLIKELY(mr->real) && !pdn_mr_is_gone(mr))
		error = pdn_verbs_deregister_made(mr->copy, maker, mr->real);
	if (PDN_UNLIKELY(error)) {
		/*
		 * Release pairs with the acquire in pdn_mr_take(): the program keeps its ibv_mr,
		 * and another of its threads may retry.
		 */
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
	struct pdn_mr *mr;

	for (PDN_EACH_MR(mr)) {
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
	struct pdn_mr *mr;

	for (PDN_EACH_MR(mr))
		count += is_kept_on(mr, context);
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
	struct pdn_mr *mr;

	/* Release pairs with the acquire in pdn_mr_is_gone(). */
	for (PDN_EACH_MR(mr))
		if (is_of(mr, context))
			__atomic_store_n(&mr->gone, 1, __ATOMIC_RELEASE);
	pdn_umem_unstick(context);
	pdn_verbs_forget_limits(context);
}
