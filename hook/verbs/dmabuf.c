/* SPDX-License-Identifier: MIT */
/*
 * ibv_reg_dmabuf_mr and mlx5dv_reg_dmabuf_mr of a dma-buf that the program, or middleware in it,
 * has exported itself. Umems share the making of exact registrations (umem.c). Where the descriptor
 * is known (cache/dmabuf/foreign_dmabufs.h), the registration is a consumer object of the region of
 * that memory, as one by ibv_reg_mr is: found again at the next call, and ended with its memory. It
 * covers exactly the bytes that the program named.
 *
 * It is made from the region's dma-buf, which all registrations of the region share; so the program
 * may close its descriptor at any time. A dma-buf that was exported with flags maps the memory for
 * the card in another way than the region's does: then the registration is made from that one.
 *
 * Every other call is left to libibverbs and libmlx5: no part of it is changed.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/hashed.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "hook/hook.h"
#include "hook/verbs/verbs.h"

#define PAGE_MASK 0xfffull /* offsets and iovas must agree below this, in every kernel */

/* ---- the key --------------------------------------------------------------------------------- */

/*
 * Beside PDN_KEY_EXACT and the access, word[0] has whether the export has flags, and the length.
 * word[1] is a hash of the rest, which is more than a key has room for: pdn_verbs_is_as_asked()
 * compares it. The owner is the protection domain, or the device of a umem. An object is looked
 * for on one region, so the hash of the buffer id only tells adjacent mappings apart.
 */
#define KEY_FLAGS  64u
#define KEY_LENGTH 7

static struct pindown_key key_of(const struct pdn_exact *exact)
{
	uint64_t made = exact->maker ? pdn_hash(exact->flags << 8 | (uint64_t)exact->maker) : 0;
	uint64_t hash = pdn_hash(exact->part.addr ^ pdn_hash(exact->iova ^ made));

	return (struct pindown_key){
		.owner = exact->pd ? (uintptr_t)exact->pd : (uintptr_t)exact->context,
		.word = {PDN_KEY_EXACT | pdn_verbs_key_access(exact->access) |
				 (exact->part.flags ? KEY_FLAGS : 0) | exact->length << KEY_LENGTH,
			 pdn_hash(hash ^ exact->part.buffer_id)},
	};
}

bool pdn_verbs_is_as_asked(const struct pdn_mr *kept, const struct pdn_exact *exact)
{
	return (uintptr_t)__atomic_load_n(&kept->verbs.mr.addr, __ATOMIC_ACQUIRE) ==
		       exact->part.addr &&
	       __atomic_load_n(&kept->verbs.mr.length, __ATOMIC_ACQUIRE) == exact->length &&
	       __atomic_load_n(&kept->maker, __ATOMIC_ACQUIRE) == exact->maker &&
	       __atomic_load_n(&kept->flags, __ATOMIC_ACQUIRE) == exact->flags &&
	       __atomic_load_n(&kept->iova, __ATOMIC_ACQUIRE) == exact->iova;
}

/* ---- making it ------------------------------------------------------------------------------- */

static bool is_in_pin(const pindown_region *region, const struct pdn_exact *exact)
{
	uint64_t base = pindown_region_pin_base(region), length = pindown_region_pin_length(region);

	return exact->part.addr >= base && exact->length <= length &&
	       exact->part.addr - base <= length - exact->length;
}

static struct ibv_mr *register_for_mlx5(int fd, uint64_t offset, const struct pdn_exact *exact)
{
	pdn_mlx5dv_reg_dmabuf_mr_function *real = PDN_VERB_REAL(exact->copy, mlx5dv_reg_dmabuf_mr);

	return real ? real(exact->pd, offset, exact->length, exact->iova, fd, exact->access,
			   (int)exact->flags)
		    : NULL;
}

static void *register_from(int fd, uint64_t offset, const struct pdn_exact *exact, int *error)
{
	pdn_ibv_reg_dmabuf_mr_function *real;
	void *made = NULL;

	errno = 0;
	if (pdn_maker_makes_umems(exact->maker)) {
		made = pdn_umem_make(fd, offset, exact);
	} else if (exact->maker == PDN_BY_MLX5DV) {
		made = register_for_mlx5(fd, offset, exact);
	} else {
		real = PDN_VERB_REAL(exact->copy, ibv_reg_dmabuf_mr);
		if (real)
			made = real(exact->pd, offset, exact->length, exact->iova, fd,
				    exact->access);
	}
	*error = made ? 0 : errno ? errno : EIO;
	return made;
}

/* By address, with the mapping that the card needs. */
static void *make_by_address(pindown_region *region, const struct pdn_exact *exact, int *error)
{
	uint64_t offset = exact->part.addr - pindown_region_pin_base(region);
	struct pdn_loan loan;
	void *made = NULL;

	*error = EIO;
	if (pdn_dmabuf_lend(region, exact->context->device->ibdev_path, &loan) != PINDOWN_OK)
		return NULL;
	do
		made = register_from(loan.fd, offset, exact, error);
	while (pdn_verbs_refuses_mapping(*error) && pdn_dmabuf_lend_other(region, &loan));
	pdn_dmabuf_end_loan(region, &loan, made);
	return made;
}

/* From the program's own dma-buf, by a duplicate: its number may be another file's by now. */
static void *make_from_own(const struct pdn_exact *exact, int *error)
{
	void *made;
	int fd = pdn_export_open(exact->fd, exact->offset, exact->length, &exact->part);

	*error = ESTALE;
	if (fd < 0)
		return NULL;
	made = register_from(fd, exact->offset, exact, error);
	pdn_export_close(fd);
	return made;
}

/* All registrations of the region share its dma-buf, if it has one that maps it as the export. */
static void *make(pindown_region *region, const struct pdn_exact *exact, int *error)
{
	void *made;
	int fd;

	if (exact->part.flags || pdn_dmabuf_borrow_default(region, &fd) != PINDOWN_OK)
		return make_from_own(exact, error);
	made = register_from(fd, exact->part.addr - pindown_region_pin_base(region), exact, error);
	pdn_dmabuf_return(region, made);
	return made;
}

/*
 * Is it the memory of the export? The program's other threads may free it at any time, and then the
 * region is of the next allocation there. The driver has the export's memory there now, as it had
 * when the descriptor was looked up. No buffer id is used twice, so it had it there all the time.
 * By address, the region is that of the memory now at the address: one whose memory was freed
 * unseen may be found at the address of an export made since.
 */
void *pdn_verbs_make_exact(pindown_region *region, const struct pdn_exact *exact, int *error)
{
	void *made;

	*error = ERANGE;
	if (!is_in_pin(region, exact) || !pdn_region_is_still_there(region))
		return NULL;
	made = exact->maker == PDN_UMEM_BY_ADDRESS ? make_by_address(region, exact, error)
						   : make(region, exact, error);
	if (made && exact->maker != PDN_UMEM_BY_ADDRESS &&
	    !pdn_export_is_still_there(&exact->part)) {
		pdn_verbs_deregister_made(exact->copy, exact->maker, made);
		*error = ESTALE;
		return NULL;
	}
	return made;
}

/* ---- registering ----------------------------------------------------------------------------- */

static bool is_for_cache(const struct pdn_exact *exact)
{
	return pdn_verbs_may_cache(exact->access) && !((exact->offset ^ exact->iova) & PAGE_MASK) &&
	       exact->iova + (exact->length - 1) >= exact->iova;
}

/* The region is that of the allocation; what sticks out of this is in the pages of its pin. */
int pdn_verbs_attach_exact(const struct pdn_exact *exact, pindown_object **object)
{
	const struct pdn_exported *part = &exact->part;
	uint64_t begin = part->addr, end = part->addr + exact->length;
	struct pindown_key key = key_of(exact);

	if (begin < part->memory.base)
		begin = part->memory.base;
	if (end > part->memory.end)
		end = part->memory.end;
	return pdn_verbs_attach(begin, end - begin, &key, exact, exact->context, object);
}

struct ibv_mr *pdn_verbs_register_dmabuf(struct pdn_exact *exact)
{
	/* libibverbs, too, puts the offset in the place of the address. */
	const struct pdn_registration what = {.pd = exact->pd,
					      .addr = (void *)(uintptr_t)exact->offset,
					      .length = exact->length,
					      .iova = exact->iova,
					      .access = exact->access,
					      .copy = exact->copy};
	int saved = errno;
	const struct pdn_mr *kept;
	pindown_object *object;
	struct pdn_mr *mr;

	if (!exact->pd || !is_for_cache(exact))
		return NULL;
	exact->context = exact->pd->context;
	if (pdn_verbs_longest(exact->context) == 0 ||
	    !pdn_export_find(exact->fd, exact->offset, exact->length, &exact->part))
		return NULL;
	mr = pdn_mr_new(PDN_MR_GIVEN);
	if (!mr || pdn_verbs_attach_exact(exact, &object) != PINDOWN_OK) {
		if (mr)
			pdn_mr_free(mr);
		errno = saved;
		return NULL;
	}
	pdn_mr_set_object(mr, object);
	mr->by_dmabuf = true;
	kept = pindown_object_data(object);
	if (!kept || !pdn_verbs_is_as_asked(kept, exact) || !pdn_verbs_fill(mr, &what)) {
		pindown_detach(object);
		pdn_mr_free(mr);
		errno = saved;
		return NULL;
	}
	pdn_mr_set_by(mr, (uintptr_t)exact->caller);
	errno = saved;
	return &mr->verbs.mr;
}
