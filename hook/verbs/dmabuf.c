/* SPDX-License-Identifier: MIT */
/*
 * Makes the card's registrations, each from a dma-buf: with ibv_reg_dmabuf_mr(),
 * mlx5dv_reg_dmabuf_mr() or mlx5dv_devx_umem_reg_ex().
 *
 * Most are made from the region's dma-buf, which all registrations of the region share; so the
 * program may close its own descriptor at any time. A dma-buf that the program has exported with
 * flags (cache/dmabuf/foreign_dmabufs.h) maps the memory for the card in another way than the
 * region's does: then the registration is made from that one.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/dmabuf/region_dmabuf.h"
#include "hook/verbs/verbs.h"

/* Would the other mapping do? NVIDIA's driver answers ENOTSUPP, 524: only the kernel has a name. */
static bool refuses_mapping(int error)
{
	return error == EINVAL || error == EOPNOTSUPP || error == 524;
}

static bool is_in_pin(const pindown_region *region, const struct pdn_request *what)
{
	uint64_t base = pindown_region_pin_base(region), length = pindown_region_pin_length(region);

	return what->part.addr >= base && what->length <= length &&
	       what->part.addr - base <= length - what->length;
}

static enum pdn_verb verb_of(enum pdn_maker maker)
{
	if (pdn_maker_makes_umems(maker))
		return PDN_VERB_mlx5dv_devx_umem_reg_ex;
	return maker == PDN_MR_BY_MLX5DV ? PDN_VERB_mlx5dv_reg_dmabuf_mr
					 : PDN_VERB_ibv_reg_dmabuf_mr;
}

static void *make_from(int fd, uint64_t offset, const struct pdn_request *what, int *error)
{
	struct mlx5dv_devx_umem_in in = {
		.addr = (void *)(uintptr_t)offset,
		.size = what->length,
		.access = (uint32_t)what->access,
		.pgsz_bitmap = what->flags,
		.comp_mask = MLX5DV_UMEM_MASK_DMABUF,
		.dmabuf_fd = fd,
	};
	struct pdn_request by_dmabuf = *what;
	void *made;

	by_dmabuf.verb = verb_of(what->maker);
	by_dmabuf.fd = fd;
	by_dmabuf.addr = offset;
	by_dmabuf.argument = &in;
	errno = 0;
	made = pdn_verbs_call(pdn_verb_real(what->copy, by_dmabuf.verb), &by_dmabuf);
	*error = made ? 0 : errno ? errno : EIO;
	return made;
}

/* By address, with the mapping that the card needs. */
static void *make_by_address(pindown_region *region, const struct pdn_request *what, int *error)
{
	uint64_t offset = what->part.addr - pindown_region_pin_base(region);
	struct pdn_loan loan;
	void *made;

	*error = PDN_NO_DESCRIPTOR;
	if (pdn_dmabuf_lend(region, what->context->device->ibdev_path, &loan) != PINDOWN_OK)
		return NULL;
	do
		made = make_from(loan.fd, offset, what, error);
	while (refuses_mapping(*error) && pdn_dmabuf_lend_other(region, &loan));
	/* The kernel's registration holds the dma-buf, and a process has few descriptors. */
	pdn_dmabuf_end_loan(region, &loan, made);
	return made;
}

/* From the program's own dma-buf, by a duplicate: its number may be another file's by now. */
static void *make_from_own(const struct pdn_request *what, int *error)
{
	void *made;
	int fd = pdn_export_open(what->fd, what->addr, what->length, &what->part);

	*error = ESTALE;
	if (fd < 0)
		return NULL;
	made = make_from(fd, what->addr, what, error);
	pdn_export_close(fd);
	return made;
}

/*
 * By the program's dma-buf: is it the memory of that? The program's other threads may free it at
 * any time, and then the region is of the next allocation there. The driver has the export's memory
 * there now, as it had when the descriptor was looked up. No buffer id is used twice, so it had it
 * there all the time.
 */
static void *make_by_dmabuf(pindown_region *region, const struct pdn_request *what, int *error)
{
	void *made;
	int fd;

	if (what->part.flags || pdn_dmabuf_borrow_default(region, &fd) != PINDOWN_OK) {
		made = make_from_own(what, error);
	} else {
		made = make_from(fd, what->part.addr - pindown_region_pin_base(region), what,
				 error);
		pdn_dmabuf_return(region, made);
	}
	if (made && !pdn_export_is_still_there(&what->part)) {
		pdn_verbs_deregister_made(what->copy, what->maker, made);
		*error = ESTALE;
		return NULL;
	}
	return made;
}

/*
 * By address, too, of exactly the bytes that the program named, the region is that of the memory
 * now at the address: one whose memory was freed unseen may be found at the address of an export
 * made since.
 */
void *pdn_verbs_make(pindown_region *region, const struct pdn_request *what, int *error)
{
	*error = PDN_NO_DESCRIPTOR;
	if (!pdn_verb_real(what->copy, verb_of(what->maker)))
		return NULL;
	*error = ERANGE;
	if (what->maker != PDN_MR_BY_ADDRESS &&
	    (!is_in_pin(region, what) || !pdn_region_is_still_there(region)))
		return NULL;
	return pdn_request_is_by_dmabuf(what) ? make_by_dmabuf(region, what, error)
					      : make_by_address(region, what, error);
}
