// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * map.c - regions in the address space of their process.
 *
 * Pages are inserted by faults, and taken out by offset in the inode's address_space, never through
 * a vma: so it does not matter into how many pieces a mapping was split, where they were moved, and
 * how many there are. A fault holds region->lock for reading from its look at the state until the
 * page is in; whoever ends the region changes the state under the lock and then zaps.
 *
 * All descriptors share one inode. So that one region's end does not zap what is mapped of others,
 * each mapped region gets a part of the offsets of its own, a map_id, put in place of its number.
 */
#include <linux/idr.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

/* 2^22 regions mapped at a time, on the whole machine: offsets are signed and have 63 bits. */
#define MAX_MAP_ID ((1u << 22) - 1)
#define ID_SHIFT (PD_OFFSET_BITS - PAGE_SHIFT)
#define CACHING_SHIFT (60 - PAGE_SHIFT)

static DEFINE_IDA(map_ids);

u64 pd_map_offset(u32 number)
{
	return (u64)number << PD_OFFSET_BITS;
}

/* ---- memory types ---- */

/*
 * On x86 a fault inserts what the machine's list of memory types says, not what the vma wants. For
 * write combining the list must be told. When it has another opinion already, from the GPU's
 * driver, that holds: slower, and correct.
 */
static void wc_free(struct pd_region *region, u32 count)
{
	while (count--)
		arch_io_free_memtype_wc(region->runs[count].start, pd_run_length(region, count));
}

/* Needs region->lock for writing, as all that changes mappings and what belongs to them. */
static void wc_reserve(struct pd_region *region)
{
	u32 i;

	for (i = 0; i < region->run_count; i++) {
		if (arch_io_reserve_memtype_wc(region->runs[i].start,
					       pd_run_length(region, i))) {
			wc_free(region, i);
			return;
		}
	}
	region->wc_reserved = true;
}

static void wc_release(struct pd_region *region)
{
	if (region->wc_reserved)
		wc_free(region, region->run_count);
	region->wc_reserved = false;
}

void pd_map_end(struct pd_region *region)
{
	if (!region->mappings)
		return;
	unmap_mapping_range(region->file->mapping, (loff_t)region->map_id << PD_OFFSET_BITS,
			    region->length, 1);
	wc_release(region);
}

void pd_map_release(struct pd_region *region)
{
	if (region->map_id)
		ida_free(&map_ids, region->map_id);
}

void pd_map_exit(void)
{
	ida_destroy(&map_ids);
}

/* ---- faults ---- */

static const struct pd_run *run_of(const struct pd_region *region, u64 offset)
{
	u32 low = 0, high = region->run_count;

	/* The last run that does not begin behind it. */
	while (high - low > 1) {
		u32 middle = low + (high - low) / 2;

		if (region->runs[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return &region->runs[low];
}

static unsigned long pfn_of(const struct pd_region *region, u64 offset)
{
	const struct pd_run *run = run_of(region, offset);

	return (run->start + (offset - run->offset)) >> PAGE_SHIFT;
}

/*
 * Inserts what surrounds the address too, as far as one page of page tables reaches: GPU memory is
 * read and written in bulk. Only the page that was asked for must succeed.
 */
static vm_fault_t insert_around(struct vm_fault *vmf, const struct pd_region *region)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long window = vmf->address & PMD_MASK;
	unsigned long first = max(vma->vm_start, window);
	unsigned long last = min(vma->vm_end - 1, window + (PMD_SIZE - 1));
	u64 base = (u64)(vma->vm_pgoff & ((1ul << ID_SHIFT) - 1)) << PAGE_SHIFT;
	unsigned long address;
	vm_fault_t ret;

	address = vmf->address & PAGE_MASK;
	ret = vmf_insert_pfn(vma, address, pfn_of(region, base + (address - vma->vm_start)));
	if (ret != VM_FAULT_NOPAGE)
		return ret;
	for (address = first & PAGE_MASK; address <= last; address += PAGE_SIZE) {
		if (address == (vmf->address & PAGE_MASK))
			continue;
		if (vmf_insert_pfn(vma, address,
				   pfn_of(region, base + (address - vma->vm_start))) !=
		    VM_FAULT_NOPAGE)
			break;
	}
	return VM_FAULT_NOPAGE;
}

static vm_fault_t region_fault(struct vm_fault *vmf)
{
	struct pd_region *region = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	down_read(&region->lock);
	if (region->state == PD_LIVE)
		ret = insert_around(vmf, region);
	up_read(&region->lock);
	pd_count(ret == VM_FAULT_SIGBUS ? PD_SIGBUS : PD_FAULTS);
	return ret;
}

/* A vma was split: both halves are mappings. Neither fork nor growth comes here. */
static void region_vma_open(struct vm_area_struct *vma)
{
	struct pd_region *region = vma->vm_private_data;

	kref_get(&region->ref);
	down_write(&region->lock);
	region->mappings++;
	up_write(&region->lock);
}

static void region_vma_close(struct vm_area_struct *vma)
{
	struct pd_region *region = vma->vm_private_data;

	down_write(&region->lock);
	if (!--region->mappings)
		wc_release(region);
	up_write(&region->lock);
	pd_region_put(region);
}

static const struct vm_operations_struct region_vm_ops = {
	.open = region_vma_open,
	.close = region_vma_close,
	.fault = region_fault,
};

/* ---- mmap ---- */

#define WRITE_COMBINED (PINDOWN_MAP_WRITE_COMBINED >> 60)
#define UNCACHED (PINDOWN_MAP_UNCACHED >> 60)
#define CACHED (PINDOWN_MAP_CACHED >> 60)

/* A device's memory is never encrypted by the CPU; the system's is, or is not, as all of it. */
static pgprot_t protection_of(pgprot_t prot, u32 caching)
{
	switch (caching) {
	case WRITE_COMBINED:
		return pgprot_decrypted(pgprot_writecombine(prot));
	case UNCACHED:
		return pgprot_decrypted(pgprot_noncached(prot));
	default:
		return prot;
	}
}

/*
 * The kind of caching that a mapping gets, in place of the one that was asked for. Needs
 * region->lock for writing.
 */
static int choose_caching(struct pd_region *region, u32 *caching)
{
	bool is_default = *caching == PINDOWN_MAP_DEFAULT >> 60;

	if (!region->memory)
		region->memory = pd_memory_of(region);
	switch (region->memory) {
	case PD_MEMORY_OF_DEVICE:
		if (is_default)
			*caching = WRITE_COMBINED;
		return *caching == CACHED ? -EOPNOTSUPP : 0;
	case PD_MEMORY_COHERENT:
		if (is_default)
			*caching = CACHED;
		return *caching == CACHED ? 0 : -EOPNOTSUPP;
	default:
		pr_warn_ratelimited("a region of process %d is not mapped: what the driver says of caching does not fit with where its pages are\n",
				    task_tgid_nr(current));
		return -EOPNOTSUPP;
	}
}

/* Needs region->lock for writing. */
static int map_region(struct pd_region *region, struct vm_area_struct *vma, u32 *asked)
{
	u64 offset = (u64)(vma->vm_pgoff & ((1ul << ID_SHIFT) - 1)) << PAGE_SHIFT;
	u64 length = vma->vm_end - vma->vm_start;
	u32 caching;
	int ret, id;

	if (region->state != PD_LIVE)
		return -ESTALE;
	if (offset >= region->length || length > region->length - offset)
		return -EINVAL;
	ret = choose_caching(region, asked);
	if (ret)
		return ret;
	caching = *asked;
	if (region->mappings && region->map_caching != caching)
		return -EBUSY;
	if (!region->map_id) {
		id = ida_alloc_range(&map_ids, 1, MAX_MAP_ID, GFP_KERNEL);
		if (id < 0)
			return id;
		region->map_id = id;
	}
	if (!region->mappings && caching == WRITE_COMBINED)
		wc_reserve(region);
	region->map_caching = caching;
	region->mappings++;

	vma->vm_page_prot = protection_of(vma->vm_page_prot, caching);
	vma->vm_pgoff = ((unsigned long)region->map_id << ID_SHIFT) | (offset >> PAGE_SHIFT);
	pd_vm_flags_change(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, 0);
	vma->vm_private_data = region;
	vma->vm_ops = &region_vm_ops;
	return 0;
}

int pd_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct pd_file *file = filp->private_data;
	u32 number = (vma->vm_pgoff >> ID_SHIFT) & PD_MAX_REGION;
	u32 caching = vma->vm_pgoff >> CACHING_SHIFT;
	struct pd_region *region;
	int ret;

	if (!number && !caching)
		return pd_is_owner(file) ? pd_state_mmap(file, vma) : -EPERM;
	if (!pd_is_owner(file))
		return -EPERM;
	if (!(vma->vm_flags & VM_SHARED) || caching > WRITE_COMBINED)
		return -EINVAL;
	region = pd_region_get(file, number);
	if (!region)
		return -ENOENT;
	down_write(&region->lock);
	ret = map_region(region, vma, &caching);
	up_write(&region->lock);
	trace_pindown_map(region, vma->vm_start, vma->vm_end, caching, ret);
	if (ret) {
		pd_region_put(region);
		return ret;
	}
	/* The reference is the vma's now. */
	pd_count(PD_MAPS);
	return 0;
}
