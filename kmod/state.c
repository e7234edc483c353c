// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * state.c - the state area: a word for each region, which user space reads.
 *
 * Its pages are ordinary kernel memory of one descriptor. A page is allocated when a number in it
 * is first used or first read, and freed with the descriptor.
 */
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/slab.h>

#include "compat.h"
#include "internal.h"

#define STATE_BYTES (sizeof(struct pindown_state) + (PDN_MAX_REGION + 1) * sizeof(u32))
#define STATE_PAGES DIV_ROUND_UP(STATE_BYTES, PAGE_SIZE)

u32 pdn_state_length(void)
{
	return STATE_PAGES * PAGE_SIZE;
}

u32 pdn_state_offset(u32 number)
{
	return sizeof(struct pindown_state) + number * sizeof(u32);
}

static struct page *page_at(struct pdn_state *state, u32 index)
{
	struct page *page = READ_ONCE(state->pages[index]);

	if (page)
		return page;
	page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!page)
		return NULL;
	mutex_lock(&state->lock);
	if (!state->pages[index]) {
		/* The zeroes before the pointer: READ_ONCE() above is not under the lock. */
		smp_store_release(&state->pages[index], page);
		page = NULL;
	}
	mutex_unlock(&state->lock);
	if (page)
		__free_page(page);
	return state->pages[index];
}

/* The page exists: that of the header since open(), that of a word since pdn_state_add(). */
static struct pindown_state *header(struct pdn_state *state)
{
	return page_address(state->pages[0]);
}

static u32 *word(struct pdn_state *state, u32 number)
{
	u32 offset = pdn_state_offset(number);

	return page_address(state->pages[offset / PAGE_SIZE]) + offset % PAGE_SIZE;
}

int pdn_state_init(struct pdn_state *state)
{
	mutex_init(&state->lock);
	state->pages = kvcalloc(STATE_PAGES, sizeof(*state->pages), GFP_KERNEL_ACCOUNT);
	if (!state->pages)
		return -ENOMEM;
	if (!page_at(state, 0)) {
		kvfree(state->pages);
		return -ENOMEM;
	}
	header(state)->abi = PINDOWN_ABI;
	return 0;
}

/* A mapping holds the descriptor, so none is left here. */
void pdn_state_free(struct pdn_state *state)
{
	u32 i;

	for (i = 0; i < STATE_PAGES; i++)
		if (state->pages[i])
			put_page(state->pages[i]);
	kvfree(state->pages);
}

int pdn_state_add(struct pdn_state *state, u32 number)
{
	return page_at(state, pdn_state_offset(number) / PAGE_SIZE) ? 0 : -ENOMEM;
}

void pdn_state_set(struct pdn_state *state, u32 number, u32 value)
{
	WRITE_ONCE(*word(state, number), value);
	/*
	 * A process that still reads the old value sees nothing of what follows: the driver's
	 * free, the next owner's writes. Pairs with the acquire load in user space.
	 */
	smp_mb();
}

/* Revocations of one descriptor's regions may run in several callbacks at a time. */
void pdn_state_count_revocation(struct pdn_state *state)
{
	atomic_inc((atomic_t *)&header(state)->revocations);
	/* As in pdn_state_set(): who still reads the old count sees nothing of the free. */
	smp_mb__after_atomic();
}

void pdn_state_wish(struct pdn_state *state, u32 serial, u64 bytes, const u8 *gpu_uuid)
{
	struct pindown_state *head = header(state);

	WRITE_ONCE(head->wanted_bytes, bytes);
	memcpy(head->wanted_gpu, gpu_uuid, sizeof(head->wanted_gpu));
	/* Pairs with user space: a process that reads the new number also reads what is wanted. */
	smp_store_release(&head->wanted, serial);
}

static vm_fault_t state_fault(struct vm_fault *vmf)
{
	struct pdn_file *file = vmf->vma->vm_private_data;

	if (vmf->pgoff >= STATE_PAGES)
		return VM_FAULT_SIGBUS;
	vmf->page = page_at(&file->state, array_index_nospec(vmf->pgoff, STATE_PAGES));
	if (!vmf->page)
		return VM_FAULT_OOM;
	get_page(vmf->page);
	return 0;
}

/* The vma holds the struct file, which holds the pdn_file. */
static const struct vm_operations_struct state_vm_ops = {
	.fault = state_fault,
};

/*
 * A child inherits the mapping, which is read-only: a process must not be killed because code of
 * its parent reads a word there. As long as the child has it, the descriptor is open, and pins stay
 * that no process can end, if the parent closes it or executes another program: a library that may
 * be forked maps other memory there in the child.
 */
int pdn_state_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct pdn_file *file = filp->private_data;

	if (!pdn_is_owner(file))
		return -EPERM;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EACCES;
	if (vma->vm_pgoff >= STATE_PAGES || vma_pages(vma) > STATE_PAGES - vma->vm_pgoff)
		return -EINVAL;
	pdn_vm_flags_change(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE | VM_MAYEXEC);
	vma->vm_private_data = file;
	vma->vm_ops = &state_vm_ops;
	return 0;
}
