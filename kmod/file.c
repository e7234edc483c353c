// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * file.c - open descriptors of /dev/pindown, and the processes that own them.
 *
 * The pins of a descriptor end when its process dies (flush), or when its last reference is dropped
 * (release), whichever comes first. Flush is needed for descriptors that another process still
 * holds: only the dying process itself can put its pins.
 */
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "internal.h"

/* Hashed by struct pid, to which the owner has a reference. owners_lock protects the table. */
static DEFINE_HASHTABLE(owners, 8);
static DEFINE_MUTEX(owners_lock);

/* Not under owners_lock: it allocates, and the free callback takes that lock. */
static struct pdn_owner *owner_new(struct pid *tgid)
{
	struct pdn_owner *owner;
	int ret;

	ret = pdn_provider_take();
	if (ret)
		return ERR_PTR(ret);
	owner = kzalloc(sizeof(*owner), GFP_KERNEL_ACCOUNT);
	if (!owner) {
		pdn_provider_give_back();
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&owner->ref);
	init_rwsem(&owner->puts);
	spin_lock_init(&owner->lock);
	INIT_LIST_HEAD(&owner->orphans);
	owner->tgid = get_pid(tgid);
	return owner;
}

static void owner_free(struct pdn_owner *owner)
{
	pdn_provider_give_back();
	put_pid(owner->tgid);
	kfree(owner);
}

static void owner_release(struct kref *ref)
{
	struct pdn_owner *owner = container_of(ref, struct pdn_owner, ref);

	hash_del(&owner->link);
	mutex_unlock(&owners_lock);
	/* No region or descriptor of this process is left that could call the driver. */
	owner_free(owner);
}

void pdn_owner_put(struct pdn_owner *owner)
{
	kref_put_mutex(&owner->ref, owner_release, &owners_lock);
}

/* With a reference. Needs owners_lock. */
static struct pdn_owner *owner_find(struct pid *tgid)
{
	struct pdn_owner *owner;

	hash_for_each_possible(owners, owner, link, (unsigned long)tgid) {
		if (owner->tgid == tgid) {
			kref_get(&owner->ref);
			return owner;
		}
	}
	return NULL;
}

/* All descriptors of a process share one owner. Another thread may be making it, too. */
static struct pdn_owner *owner_of_current(void)
{
	struct pid *tgid = task_tgid(current);
	struct pdn_owner *owner, *fresh = owner_new(tgid);

	if (IS_ERR(fresh))
		return fresh;
	mutex_lock(&owners_lock);
	owner = owner_find(tgid);
	if (!owner)
		hash_add(owners, &fresh->link, (unsigned long)tgid);
	mutex_unlock(&owners_lock);
	if (!owner)
		return fresh;
	owner_free(fresh);
	return owner;
}

bool pdn_is_owner(const struct pdn_file *file)
{
	return file->owner->tgid == task_tgid(current);
}

static int pdn_open(struct inode *inode, struct file *filp)
{
	struct pdn_file *file;
	int ret;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	ret = pdn_state_init(&file->state);
	if (ret)
		goto err_file;
	file->owner = owner_of_current();
	if (IS_ERR(file->owner)) {
		ret = PTR_ERR(file->owner);
		goto err_state;
	}
	xa_init_flags(&file->regions, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	pdn_files_add(file);
	pdn_size_look();
	filp->private_data = file;
	pdn_orphans_reap(file->owner);
	return nonseekable_open(inode, filp);

err_state:
	pdn_state_free(&file->state);
err_file:
	kfree(file);
	return ret;
}

/* Is the last thread of the process exiting? No other call of the process is under way then. */
static bool process_is_dying(void)
{
	return !atomic_read(&current->signal->live);
}

static int pdn_flush(struct file *filp, fl_owner_t id)
{
	struct pdn_file *file = filp->private_data;

	if (pdn_is_owner(file) && process_is_dying()) {
		pdn_regions_end(file);
		pdn_orphans_reap(file->owner);
	}
	return 0;
}

static int pdn_release(struct inode *inode, struct file *filp)
{
	struct pdn_file *file = filp->private_data;

	pdn_files_remove(file);
	pdn_regions_end(file);
	if (pdn_is_owner(file))
		pdn_orphans_reap(file->owner);
	xa_destroy(&file->regions);
	pdn_state_free(&file->state);
	pdn_owner_put(file->owner);
	kfree(file);
	return 0;
}

static __poll_t pdn_poll(struct file *filp, poll_table *table)
{
	struct pdn_file *file = filp->private_data;

	return pdn_is_owner(file) ? pdn_wishes_poll(file, filp, table) : EPOLLERR;
}

const struct file_operations pdn_fops = {
	.owner = THIS_MODULE,
	.open = pdn_open,
	.flush = pdn_flush,
	.release = pdn_release,
	.poll = pdn_poll,
	.mmap = pdn_state_mmap,
	.unlocked_ioctl = pdn_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};
