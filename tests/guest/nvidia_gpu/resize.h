/* SPDX-License-Identifier: MIT */
/*
 * Included before each of nvidia.ko's sources, where the kernel's pci_resize_resource() has an
 * argument more than they know: which BARs not to touch. They call it for GPUs with resizable BARs
 * alone.
 *
 * Not in the driver's tests of what the kernel has, which are compiled without this name.
 */
#ifdef __KBUILD_MODNAME
#include <linux/pci.h>
#define pci_resize_resource(device, bar, size) pci_resize_resource(device, bar, size, 0)
#endif
