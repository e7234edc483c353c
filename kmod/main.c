// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * main.c - loading and unloading of pindown.ko, and its device.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "compat.h"
#include "internal.h"

static struct miscdevice pdn_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "pindown",
	.fops = &pdn_fops,
	/* A process can pin only its own GPU memory: see docs/internals/kernel-module.md. */
	.mode = 0666,
};

static int __init pdn_init(void)
{
	bool persistent, maps_dma;
	int ret;

	/* This only checks that there is a driver: each pdn_owner holds it for itself. */
	ret = pdn_provider_take();
	if (ret)
		return ret;
	persistent = pdn_provider_is_persistent();
	maps_dma = persistent && pdn_provider_maps_dma();
	pdn_provider_give_back();
	ret = pdn_regions_init();
	if (ret)
		return ret;
	pdn_debug_init();
	ret = misc_register(&pdn_device);
	if (ret) {
		pr_err("can't make the device: error %d\n", ret);
		goto err_regions;
	}
	pr_info("version %s, persistent pins %s, dma-buf %s\n", PDN_RELEASE,
		persistent ? "yes" : "no", maps_dma ? "yes" : "no");
	return 0;

err_regions:
	pdn_debug_exit();
	pdn_regions_exit();
	return ret;
}

/* Descriptors, dma-bufs and orphans hold the module, so none is left here. */
static void __exit pdn_exit(void)
{
	misc_deregister(&pdn_device);
	pdn_debug_exit();
	pdn_regions_exit();
}

module_init(pdn_init);
module_exit(pdn_exit);

MODULE_DESCRIPTION("Pins GPU memory for third-party devices (GPUDirect RDMA)");
MODULE_VERSION(PDN_RELEASE);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_SOFTDEP("pre: nvidia");
