// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * main.c - loading and unloading of pindown.ko, and its device.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "compat.h"
#include "internal.h"

static struct miscdevice pd_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "pindown",
	.fops = &pd_fops,
	.mode = 0666, /* a process can pin only its own GPU memory: see docs/kernel-module.md */
};

static int __init pd_init(void)
{
	bool persistent, maps_dma;
	int ret;

	/* This only checks that there is a driver: each pd_owner holds it for itself. */
	ret = pd_provider_take();
	if (ret)
		return ret;
	persistent = pd_provider_is_persistent();
	maps_dma = persistent && pd_provider_maps_dma();
	pd_provider_give_back();
	ret = pd_regions_init();
	if (ret)
		return ret;
	pd_debug_init();
	ret = misc_register(&pd_device);
	if (ret) {
		pr_err("can't make the device: error %d\n", ret);
		goto err_regions;
	}
	pr_info("version %s, persistent pins %s, dma-buf %s\n", PD_RELEASE,
		persistent ? "yes" : "no", maps_dma ? "yes" : "no");
	return 0;

err_regions:
	pd_debug_exit();
	pd_regions_exit();
	return ret;
}

/* Descriptors, mappings, dma-bufs and orphans hold the module, so none is left here. */
static void __exit pd_exit(void)
{
	misc_deregister(&pd_device);
	pd_debug_exit();
	pd_regions_exit();
	pd_budget_exit();
	pd_map_exit();
}

module_init(pd_init);
module_exit(pd_exit);

MODULE_DESCRIPTION("Pins GPU memory for third-party devices (GPUDirect RDMA)");
MODULE_VERSION(PD_RELEASE);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_SOFTDEP("pre: nvidia");
