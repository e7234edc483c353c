// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * map.c - mappings of regions into the address space of their process.
 *
 * Faults insert pages. They are removed by offset in the inode's address_space, never through a
 * vma, so it does not matter into how many pieces a mapping was split or where these were moved. A
 * fault holds region->lock for reading from the check of the state until the page is inserted. The
 * end of a region changes the state under that lock for writing, and then zaps.
 *
 * All descriptors share one inode. So that the end of one region does not zap the mappings of
 * others, each mapped region has a range of offsets of its own, its map_id, which replaces its
 * number in vm_pgoff.
 */
#include <linux/idr.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

/* The machine can map 2^22 regions at a time: offsets are signed and have 63 bits. */
#define MAX_MAP_ID ((1u << 22) - 1)
#define ID_SHIFT (PDN_OFFSET_BITS - PAGE_SHIFT)
#define CACHING_SHIFT (60 - PAGE_SHIFT)

static DEFINE_IDA(map_ids);

u64 pdn_map_offset(u32 number)
{
	return (u64)number << PDN_OFFSET_BITS;
}

/* ---- memory types ---- */

/*
 * On x86 a fault uses the type in the machine's list of memory types, not that of the vma. So write
 * combining must be reserved in that list. If the GPU's driver has reserved another type already,
 * that type is used: slower, but correct.
 */
static void wc_free(struct pdn_region *region, u32 count)
{
	while (count--)
		arch_io_free_memtype_wc(region->runs[count].start, pdn_run_length(region, count));
}

/* Allocates, so without region->lock: the runs of a region that was live stay as they are. */
static bool wc_reserve(struct pdn_region *region)
{
	u32 i;

	for (i = 0; i < region->run_count; i++) {
		if (arch_io_reserve_memtype_wc(region->runs[i].start,
					       pdn_run_length(region, i))) {
			wc_free(region, i);
			return false;
		}
	}
	return true;
}

/* Needs region->lock for writing, like every change of the mapping members. */
static void wc_release(struct pdn_region *region)
{
	if (region->wc_reserved)
		wc_free(region, region->run_count);
	region->wc_reserved = false;
}

void pdn_map_end(struct pdn_region *region)
{
	if (!region->mappings)
		return;
	unmap_mapping_range(region->file->mapping, (loff_t)region->map_id << PDN_OFFSET_BITS,
			    region->length, 1);
	wc_release(region);
}

void pdn_map_release(struct pdn_region *region)
{
	if (region->map_id)
		ida_free(&map_ids, region->map_id);
}

void pdn_map_exit(void)
{
	ida_destroy(&map_ids);
}

/* ---- faults ---- */

static const struct pdn_run *run_of(const struct pdn_region *region, u64 offset)
{
	u32 low = 0, high = region->run_count;

	/* Finds the last run that begins at or before the offset. */
	while (high - low > 1) {
		u32 middle = low + (high - low) / 2;

		if (region->runs[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return &region->runs[low];
}

static unsigned long pfn_of(const struct pdn_region *region, u64 offset)
{
	const struct pdn_run *run = run_of(region, offset);

	return (run->start + (offset - run->offset)) >> PAGE_SHIFT;
}

/*
 * The bytes that one fault maps: with pages of 4 KiB all that a page of page tables maps. With
 * larger pages (arm64) it maps 2048 or 8192 of them, which take too long.
 */
#define FAULT_WINDOW min_t(unsigned long, PMD_SIZE, 512 * PAGE_SIZE)

/*
 * Also inserts the pages around the address, within one page of page tables, since GPU memory is
 * read and written in bulk. Only the page that faulted must succeed.
 */
static vm_fault_t insert_around(struct vm_fault *vmf, const struct pdn_region *region)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long window = ALIGN_DOWN(vmf->address, FAULT_WINDOW);
	unsigned long first = max(vma->vm_start, window);
	unsigned long last = min(vma->vm_end - 1, window + (FAULT_WINDOW - 1));
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

static int leave_pte(pte_t *pte, unsigned long address, void *unused)
{
	return 0;
}

/* Makes the page of page tables that maps the window, so that no insertion allocates. */
static int make_page_table(struct vm_fault *vmf)
{
	return apply_to_page_range(vmf->vma->vm_mm, vmf->address & PAGE_MASK, PAGE_SIZE, leave_pte,
				   NULL);
}

static vm_fault_t region_fault(struct vm_fault *vmf)
{
	struct pdn_region *region = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	if (make_page_table(vmf))
		return VM_FAULT_OOM;
	down_read(&region->lock);
	if (region->state == PDN_LIVE)
		ret = insert_around(vmf, region);
	up_read(&region->lock);
	pdn_count(ret == VM_FAULT_SIGBUS ? PDN_SIGBUS : PDN_FAULTS);
	return ret;
}

/* A vma was split, and both halves are mappings. Neither fork nor mremap growth gets here. */
static void region_vma_open(struct vm_area_struct *vma)
{
	struct pdn_region *region = vma->vm_private_data;

	kref_get(&region->ref);
	down_write(&region->lock);
	region->mappings++;
	up_write(&region->lock);
}

static void region_vma_close(struct vm_area_struct *vma)
{
	struct pdn_region *region = vma->vm_private_data;

	down_write(&region->lock);
	if (!--region->mappings)
		wc_release(region);
	up_write(&region->lock);
	pdn_region_put(region);
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

/* The CPU never encrypts memory of a device. Memory of the system keeps the encryption it has. */
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
 * Replaces the requested kind of caching by the one that the mapping gets. Needs region->lock for
 * writing.
 */
static int choose_caching(struct pdn_region *region, u32 *caching)
{
	bool is_default = *caching == PINDOWN_MAP_DEFAULT >> 60;

	if (!region->memory)
		region->memory = pdn_memory_of(region);
	switch (region->memory) {
	case PDN_MEMORY_OF_DEVICE:
		if (is_default)
			*caching = WRITE_COMBINED;
		return *caching == CACHED ? -EOPNOTSUPP : 0;
	case PDN_MEMORY_COHERENT:
		if (is_default)
			*caching = CACHED;
		return *caching == CACHED ? 0 : -EOPNOTSUPP;
	default:
		pr_warn_ratelimited("a region of process %d is not mapped: what the driver says of "
				    "caching does not fit with where its pages are\n",
				    task_tgid_nr(current));
		return -EOPNOTSUPP;
	}
}

/* What the first mapping of a region takes over; made without region->lock. */
struct first_mapping {
	u32 id; /* 0: none */
	bool wc_reserved;
};

/* Needs region->lock for writing. */
static int find_needs(struct pdn_region *region, u32 caching, bool *id, bool *wc)
{
	int ret;

	if (region->state != PDN_LIVE)
		return -ESTALE;
	ret = choose_caching(region, &caching);
	if (ret)
		return ret;
	*id = !region->map_id;
	*wc = !region->mappings && caching == WRITE_COMBINED;
	return 0;
}

static int first_mapping_prepare(struct pdn_region *region, u32 caching,
				 struct first_mapping *first)
{
	bool needs_id, needs_wc;
	int ret;

	down_write(&region->lock);
	ret = find_needs(region, caching, &needs_id, &needs_wc);
	up_write(&region->lock);
	if (ret)
		return ret;
	if (needs_id) {
		ret = ida_alloc_range(&map_ids, 1, MAX_MAP_ID, GFP_KERNEL);
		if (ret < 0)
			return ret;
		first->id = ret;
	}
	if (needs_wc)
		first->wc_reserved = wc_reserve(region);
	return 0;
}

/* What the region has not taken over. */
static void first_mapping_drop(struct pdn_region *region, const struct first_mapping *first)
{
	if (first->id)
		ida_free(&map_ids, first->id);
	if (first->wc_reserved)
		wc_free(region, region->run_count);
}

/*
 * Needs region->lock for writing. mmap_lock is held from first_mapping_prepare() on, and only this
 * process maps the region: so it has got what is needed, unless the region has ended.
 */
static int map_region(struct pdn_region *region, struct vm_area_struct *vma, u32 *asked,
		      struct first_mapping *first)
{
	u64 offset = (u64)(vma->vm_pgoff & ((1ul << ID_SHIFT) - 1)) << PAGE_SHIFT;
	u64 length = vma->vm_end - vma->vm_start;
	u32 caching;
	int ret;

	if (region->state != PDN_LIVE)
		return -ESTALE;
	if (offset >= region->length || length > region->length - offset)
		return -EINVAL;
	ret = choose_caching(region, asked);
	if (ret)
		return ret;
	caching = *asked;
	if (region->mappings && region->map_caching != caching)
		return -EBUSY;
	if (first->id)
		region->map_id = first->id;
	if (first->wc_reserved)
		region->wc_reserved = true;
	*first = (struct first_mapping){};
	region->map_caching = caching;
	region->mappings++;

	vma->vm_page_prot = protection_of(vma->vm_page_prot, caching);
	vma->vm_pgoff = ((unsigned long)region->map_id << ID_SHIFT) | (offset >> PAGE_SHIFT);
	pdn_vm_flags_change(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP,
			    VM_MAYEXEC);
	vma->vm_private_data = region;
	vma->vm_ops = &region_vm_ops;
	return 0;
}

int pdn_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct pdn_file *file = filp->private_data;
	u32 number = (vma->vm_pgoff >> ID_SHIFT) & PDN_MAX_REGION;
	u32 caching = vma->vm_pgoff >> CACHING_SHIFT;
	struct first_mapping first = {};
	struct pdn_region *region;
	int ret;

	if (!number && !caching)
		return pdn_is_owner(file) ? pdn_state_mmap(file, vma) : -EPERM;
	if (!pdn_is_owner(file))
		return -EPERM;
	if (!(vma->vm_flags & VM_SHARED) || caching > WRITE_COMBINED)
		return -EINVAL;
	/* Nobody runs code from the memory of a GPU. */
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	region = pdn_region_get(file, number);
	if (!region)
		return -ENOENT;
	ret = first_mapping_prepare(region, caching, &first);
	if (!ret) {
		down_write(&region->lock);
		ret = map_region(region, vma, &caching, &first);
		up_write(&region->lock);
	}
	first_mapping_drop(region, &first);
	trace_pindown_map(region, vma->vm_start, vma->vm_end, caching, ret);
	if (ret) {
		pdn_region_put(region);
		return ret;
	}
	/* The vma owns the reference now. */
	pdn_count(PDN_MAPS);
	return 0;
}
