/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * compat.h - one name for interfaces that differ between kernels from 5.15 on. Kbuild searches the
 * kernel's headers and sets HCA_*.
 */
#ifndef HCA_COMPAT_H
#define HCA_COMPAT_H

#include <linux/dma-buf.h>
#include <rdma/ib_umem.h>
#ifdef HCA_HAS_ITER /* part of ib_umem.h before */
#include <rdma/iter.h>
#endif

/* The last parameters of some operations, which this device does not use. */
#ifdef HCA_REG_DMAH
#define HCA_REG_REST struct ib_dmah *dmah, struct ib_udata *udata
#define HCA_REG_DMABUF_REST struct ib_dmah *dmah, struct uverbs_attr_bundle *attrs
#else
#define HCA_REG_REST struct ib_udata *udata
#ifdef HCA_REG_DMABUF_ATTRS
#define HCA_REG_DMABUF_REST struct uverbs_attr_bundle *attrs
#else
#define HCA_REG_DMABUF_REST struct ib_udata *udata
#endif
#endif
#ifdef HCA_CREATE_CQ_ATTRS
#define HCA_CREATE_CQ_REST struct uverbs_attr_bundle *attrs
#else
#define HCA_CREATE_CQ_REST struct ib_udata *udata
#endif

#ifdef HCA_HAS_INVALIDATE_MAPPINGS
#define HCA_MOVE_NOTIFY invalidate_mappings
#else
#define HCA_MOVE_NOTIFY move_notify
#endif

#ifndef HCA_HAS_UMEM_GET_VA
static inline struct ib_umem *ib_umem_get_va(struct ib_device *device, unsigned long addr,
					     size_t size, int access)
{
	return ib_umem_get(device, addr, size, access);
}
#endif

#ifndef HCA_HAS_PINNED
static inline struct ib_umem_dmabuf *ib_umem_dmabuf_get_pinned(struct ib_device *device,
							       unsigned long offset, size_t size,
							       int fd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}
#endif

#endif
