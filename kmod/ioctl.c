// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ioctl.c - the ioctl calls: all arguments are checked and copied here, and nowhere else.
 */
#include <linux/file.h>
#include <linux/nospec.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "trace.h"

/* The argument of any call. */
union pdn_arg {
	u32 size;
	struct {
		u32 size;
		u32 flags;
	} common;
	struct pindown_version version;
	struct pindown_pin pin;
	struct pindown_unpin unpin;
	struct pindown_export export;
	struct pindown_answer answer;
};

/* One call. Each function writes its own result back, since it must undo its work if that fails. */
struct pdn_call {
	union pdn_arg arg;
	void __user *user;
	size_t size; /* bytes to write back */
};

static int write_back(const struct pdn_call *call)
{
	return copy_to_user(call->user, &call->arg, call->size) ? -EFAULT : 0;
}

static int call_version(struct pdn_file *file, struct pdn_call *call)
{
	struct pindown_version *arg = &call->arg.version;

	if (arg->flags)
		return -EINVAL;
	arg->abi = PINDOWN_ABI;
	arg->granularity = PDN_GRANULARITY;
	arg->capabilities = PINDOWN_CAP_CALLBACK | PINDOWN_CAP_STATE;
	if (pdn_provider_is_persistent()) {
		arg->capabilities |= PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_RECLAIM;
		if (pdn_provider_maps_dma())
			arg->capabilities |= PINDOWN_CAP_DMABUF;
	}
#ifdef PDN_SIMULATED
	arg->capabilities |= PINDOWN_CAP_SIMULATED;
#endif
	arg->max_regions = pdn_budget_regions();
	arg->state_length = pdn_state_length();
	strscpy_pad(arg->release, PDN_RELEASE, sizeof(arg->release));
	return write_back(call);
}

static int call_pin(struct pdn_file *file, struct pdn_call *call)
{
	struct pdn_region *region;
	int ret;

	ret = pdn_region_pin(file, &call->arg.pin, &region);
	if (ret)
		return ret;
	ret = write_back(call);
	if (ret) {
		pdn_region_end(region);
		pdn_region_free_number(file, region->number);
		pdn_region_put(region);
		return ret;
	}
	pdn_region_publish(file, region);
	return 0;
}

static u32 state_shown(struct pdn_region *region)
{
	return pdn_region_is(region, PDN_LIVE) ? PINDOWN_REGION_LIVE : PINDOWN_REGION_REVOKED;
}

static int call_unpin(struct pdn_file *file, struct pdn_call *call)
{
	struct pindown_unpin *arg = &call->arg.unpin;
	struct pdn_region *region;
	u32 exports;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	region = pdn_region_take(file, arg->region);
	if (!region)
		return -ENOENT;
	arg->state = state_shown(region);
	pdn_region_end(region);
	pdn_region_free_number(file, arg->region);
	pdn_exports_count(region, &exports, &arg->importers);
	pdn_region_put(region);
	return write_back(call);
}

static int call_export(struct pdn_file *file, struct pdn_call *call)
{
	struct pindown_export *arg = &call->arg.export;
	struct pdn_region *region;
	struct file *dmabuf;
	int ret, fd;

	if (arg->flags)
		return -EINVAL;
	region = pdn_region_get(file, arg->region);
	if (!region)
		return -ENOENT;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		ret = fd;
		goto out_region;
	}
	ret = pdn_export(region, &dmabuf);
	trace_pindown_export(region, ret);
	if (ret)
		goto out_fd;
	arg->fd = fd;
	arg->length = region->length;
	ret = write_back(call);
	if (ret) {
		fput(dmabuf);
		goto out_fd;
	}
	/* From here on another thread of the process may close it. */
	fd_install(fd, dmabuf);
	pdn_region_put(region);
	return 0;

out_fd:
	put_unused_fd(fd);
out_region:
	pdn_region_put(region);
	return ret;
}

static int call_answer(struct pdn_file *file, struct pdn_call *call)
{
	struct pindown_answer *arg = &call->arg.answer;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	return pdn_wishes_answer(file, arg->wanted);
}

/*
 * Indexed by number; some numbers have no call. `size` is that of the first version, the minimum
 * that a caller may give.
 */
static const struct {
	int (*call)(struct pdn_file *file, struct pdn_call *call);
	u32 size;
	bool for_all; /* other processes than the descriptor's owner may call it, too */
} calls[] = {
	[_IOC_NR(PINDOWN_IOC_VERSION)] = { call_version, sizeof(struct pindown_version), true },
	[_IOC_NR(PINDOWN_IOC_PIN)] = { call_pin, sizeof(struct pindown_pin) },
	[_IOC_NR(PINDOWN_IOC_UNPIN)] = { call_unpin, sizeof(struct pindown_unpin) },
	[_IOC_NR(PINDOWN_IOC_EXPORT)] = { call_export, sizeof(struct pindown_export) },
	[_IOC_NR(PINDOWN_IOC_ANSWER)] = { call_answer, sizeof(struct pindown_answer) },
};

/*
 * The size bits of the command are ignored: `size` in the structure says the same, and also works
 * for a caller that was built with another version.
 */
long pdn_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct pdn_file *file = filp->private_data;
	struct pdn_call call = { .user = (void __user *)arg };
	u32 nr = _IOC_NR(cmd), size;
	int ret;

	if (_IOC_TYPE(cmd) != PINDOWN_IOC_TYPE || nr >= ARRAY_SIZE(calls))
		return -ENOTTY;
	/* Keeps a speculating processor from reading past the table, too. */
	nr = array_index_nospec(nr, ARRAY_SIZE(calls));
	if (!calls[nr].call)
		return -ENOTTY;
	if (!calls[nr].for_all && !pdn_is_owner(file))
		return -EPERM;
	if (get_user(size, (u32 __user *)call.user))
		return -EFAULT;
	if (size < calls[nr].size)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&call.arg, calls[nr].size, call.user, size);
	if (ret)
		return ret;
	/* Another thread may have changed it since get_user(). */
	call.arg.size = size;
	call.size = calls[nr].size;
	if (pdn_is_owner(file))
		pdn_orphans_reap(file->owner);
	return calls[nr].call(file, &call);
}
