// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * nvidia.ko as it was up to 535.129, or as the proprietary one is: it has the peer-to-peer calls,
 * without EXPORT_SYMBOL_GPL. For the guest only: it does not load on a machine other than QEMU's.
 */
#include <linux/dmi.h>
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/string.h>

#include "nv_p2p_abi.h"

int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 uint64_t length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	return -EINVAL;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

static int __init old_init(void)
{
	const char *vendor = dmi_get_system_info(DMI_SYS_VENDOR);

	if (of_machine_is_compatible("linux,dummy-virt"))
		return 0;
	return vendor && !strcmp(vendor, "QEMU") ? 0 : -ENODEV;
}

static void __exit old_exit(void)
{
}

module_init(old_init);
module_exit(old_exit);
#ifdef PROPRIETARY
MODULE_LICENSE("Proprietary");
MODULE_VERSION("550.54.15");
#else
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("535.129.03");
#endif
MODULE_DESCRIPTION("NVIDIA drivers that pindown can't use, for pindown's test guest");
