// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ioctl.c - the ioctl calls: all arguments are checked and copied here, and nowhere else.
 */
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/nospec.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "trace.h"

/* The argument of any call. */
union pd_arg {
	u32 size;
	struct {
		u32 size;
		u32 flags;
	} common;
	struct pindown_version version;
	struct pindown_pin pin;
	struct pindown_unpin unpin;
	struct pindown_query query;
	struct pindown_export export;
	struct pindown_stats_all stats;
	struct pindown_answer answer;
};

/* One call. Each function writes its own result back, since it must undo its work if that fails. */
struct pd_call {
	union pd_arg arg;
	void __user *user;
	size_t size; /* bytes to write back */
};

static int write_back(const struct pd_call *call)
{
	return copy_to_user(call->user, &call->arg, call->size) ? -EFAULT : 0;
}

static int call_version(struct pd_file *file, struct pd_call *call)
{
	struct pindown_version *arg = &call->arg.version;

	if (arg->flags)
		return -EINVAL;
	arg->abi = PINDOWN_ABI;
	arg->granularity = PD_GRANULARITY;
	arg->capabilities = PINDOWN_CAP_CALLBACK | PINDOWN_CAP_MMAP | PINDOWN_CAP_STATE;
	if (pd_provider_is_persistent()) {
		arg->capabilities |= PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_RECLAIM;
		if (pd_provider_maps_dma())
			arg->capabilities |= PINDOWN_CAP_DMABUF;
		if (pd_provider_forces_bar1())
			arg->capabilities |= PINDOWN_CAP_FORCE_BAR1;
	}
#ifdef PD_SIMULATED
	arg->capabilities |= PINDOWN_CAP_SIMULATED;
#endif
	arg->max_regions = pd_budget_regions();
	arg->state_length = pd_state_length();
	strscpy_pad(arg->release, PD_RELEASE, sizeof(arg->release));
	return write_back(call);
}

static int call_pin(struct pd_file *file, struct pd_call *call)
{
	struct pd_region *region;
	int ret;

	ret = pd_region_pin(file, &call->arg.pin, &region);
	if (ret)
		return ret;
	ret = write_back(call);
	if (ret) {
		pd_region_end(region);
		pd_region_free_number(file, region->number);
		pd_region_put(region);
		return ret;
	}
	pd_region_publish(file, region);
	return 0;
}

static u32 state_shown(struct pd_region *region)
{
	return pd_region_is_live(region) ? PINDOWN_REGION_LIVE : PINDOWN_REGION_REVOKED;
}

static int call_unpin(struct pd_file *file, struct pd_call *call)
{
	struct pindown_unpin *arg = &call->arg.unpin;
	struct pd_region *region;
	u32 exports;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	region = pd_region_take(file, arg->region);
	if (!region)
		return -ENOENT;
	arg->state = state_shown(region);
	pd_region_end(region);
	pd_region_free_number(file, arg->region);
	pd_exports_count(region, &exports, &arg->importers);
	pd_region_put(region);
	return write_back(call);
}

static int call_query(struct pd_file *file, struct pd_call *call)
{
	struct pindown_query *arg = &call->arg.query;
	struct pd_region *region;

	if (arg->flags)
		return -EINVAL;
	region = pd_region_get(file, arg->region);
	if (!region)
		return -ENOENT;
	arg->state = state_shown(region);
	arg->address = region->address;
	arg->length = region->length;
	arg->pin_flags = region->flags;
	arg->page_size = region->page_size;
	arg->page_count = region->page_count;
	arg->map_offset = pd_map_offset(region->number);
	memcpy(arg->gpu_uuid, region->gpu_uuid, sizeof(arg->gpu_uuid));
	down_read(&region->lock);
	arg->mappings = region->mappings;
	up_read(&region->lock);
	pd_exports_count(region, &arg->exports, &arg->importers);
	pd_region_put(region);
	return write_back(call);
}

static int call_export(struct pd_file *file, struct pd_call *call)
{
	struct pindown_export *arg = &call->arg.export;
	struct pd_region *region;
	struct file *dmabuf;
	int ret, fd;

	if (arg->flags)
		return -EINVAL;
	region = pd_region_get(file, arg->region);
	if (!region)
		return -ENOENT;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		ret = fd;
		goto out_region;
	}
	ret = pd_export(region, &dmabuf);
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
	pd_region_put(region);
	return 0;

out_fd:
	put_unused_fd(fd);
out_region:
	pd_region_put(region);
	return ret;
}

static int call_stats(struct pd_file *file, struct pd_call *call)
{
	struct pindown_stats_all *arg = &call->arg.stats;

	if (arg->flags)
		return -EINVAL;
	*arg = (struct pindown_stats_all){ .size = arg->size, .gpu = arg->gpu };
	pd_budget_own_stats(file->owner, arg);
	if (capable(CAP_SYS_ADMIN))
		pd_budget_all_stats(arg);
	return write_back(call);
}

static int call_answer(struct pd_file *file, struct pd_call *call)
{
	struct pindown_answer *arg = &call->arg.answer;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	return pd_wishes_answer(file, arg->wanted);
}

/* Indexed by number. `size` is that of the first version, the minimum that a caller may give. */
static const struct {
	int (*call)(struct pd_file *file, struct pd_call *call);
	u32 size;
	bool for_all; /* other processes than the descriptor's owner may call it, too */
} calls[] = {
	[_IOC_NR(PINDOWN_IOC_VERSION)] = { call_version, sizeof(struct pindown_version), true },
	[_IOC_NR(PINDOWN_IOC_PIN)] = { call_pin, sizeof(struct pindown_pin) },
	[_IOC_NR(PINDOWN_IOC_UNPIN)] = { call_unpin, sizeof(struct pindown_unpin) },
	[_IOC_NR(PINDOWN_IOC_QUERY)] = { call_query, sizeof(struct pindown_query) },
	[_IOC_NR(PINDOWN_IOC_EXPORT)] = { call_export, sizeof(struct pindown_export) },
	[_IOC_NR(PINDOWN_IOC_STATS)] = { call_stats, sizeof(struct pindown_stats_all) },
	[_IOC_NR(PINDOWN_IOC_ANSWER)] = { call_answer, sizeof(struct pindown_answer) },
};

/*
 * The size bits of the command are ignored: `size` in the structure says the same, and also works
 * for a caller that was built with another version.
 */
long pd_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct pd_file *file = filp->private_data;
	struct pd_call call = { .user = (void __user *)arg };
	u32 nr = _IOC_NR(cmd), size;
	int ret;

	if (_IOC_TYPE(cmd) != PINDOWN_IOC_TYPE || nr >= ARRAY_SIZE(calls))
		return -ENOTTY;
	/* Keeps a speculating processor from reading past the table, too. */
	nr = array_index_nospec(nr, ARRAY_SIZE(calls));
	if (!calls[nr].for_all && !pd_is_owner(file))
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
	if (pd_is_owner(file))
		pd_orphans_reap(file->owner);
	return calls[nr].call(file, &call);
}
