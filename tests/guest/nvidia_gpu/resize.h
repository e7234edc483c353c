/* SPDX-License-Identifier: MIT */
/*
 * Included before each source of nvidia.ko, if the kernel's pci_resize_resource() has an argument
 * that they do not know: the BARs that must not be touched. They call it only for GPUs with
 * resizable BARs.
 *
 * The driver's own probes of the kernel are compiled without this name.
 */
#ifdef __KBUILD_MODNAME
#include <linux/pci.h>
#define pci_resize_resource(device, bar, size) pci_resize_resource(device, bar, size, 0)
#endif
