/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * compat.h - one name for interfaces that differ between kernels from 5.15 on. The probes in Kbuild
 * try to compile each variant, and set PDN_HAVE_*.
 */
#ifndef PINDOWN_COMPAT_H
#define PINDOWN_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/mm.h>
#include <linux/module.h>

/* Changes the flags of a vma that no other thread can see yet. */
static inline void pdn_vm_flags_change(struct vm_area_struct *vma, unsigned long set,
				       unsigned long clear)
{
#ifdef PDN_HAVE_VM_FLAGS_MOD
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

/* Notifies a dynamic importer that it must stop. Needs the dma-buf's reservation lock. */
static inline void pdn_tell_importer(struct dma_buf_attachment *attach)
{
#ifdef PDN_HAVE_INVALIDATE_MAPPINGS
	if (attach->importer_ops->invalidate_mappings)
		attach->importer_ops->invalidate_mappings(attach);
#else
	attach->importer_ops->move_notify(attach);
#endif
}

/*
 * Does the core pin a dma-buf for each mapping of an importer that can be notified? It did without
 * CONFIG_DMABUF_MOVE_NOTIFY. Linux 7 has no such option and never does; the series that removed it
 * also renamed move_notify.
 */
#if defined(PDN_HAVE_INVALIDATE_MAPPINGS) || IS_ENABLED(CONFIG_DMABUF_MOVE_NOTIFY)
#define PDN_CORE_PINS false
#else
#define PDN_CORE_PINS true
#endif

/* Selects all fences of a reservation object: a usage from 5.19 on, a bool before. */
#ifdef PDN_HAVE_RESV_USAGE
#define PDN_ALL_FENCES DMA_RESV_USAGE_BOOKKEEP
#else
#define PDN_ALL_FENCES true
#endif

/* The argument of MODULE_IMPORT_NS() is a bare word up to 6.12, and a string later. */
#ifdef PDN_HAVE_IMPORT_NS_WORD
#define PDN_IMPORT_NS(name) MODULE_IMPORT_NS(name)
#else
#define PDN_IMPORT_NS(name) MODULE_IMPORT_NS(#name)
#endif

#endif
