/* SPDX-License-Identifier: MIT */
/*
 * Included before each source of nvidia.ko, if devices behind an IOMMU have no struct dma_map_ops
 * (Linux 6.11 and later). The releases up to 550 take such a device for one without an IOMMU, and
 * do not map a GPU's memory for it. Here they find what Linux before 6.11 had: they only look
 * whether there is a map_resource, and call dma_map_resource() then.
 *
 * The driver's own probes of the kernel are compiled without this.
 */
#ifdef __KBUILD_MODNAME
#include <linux/dma-map-ops.h>
#include <linux/iommu-dma.h>

static inline const struct dma_map_ops *dma_ops_with_iommu(struct device *dev)
{
	static const struct dma_map_ops iommu = {.map_resource = dma_map_resource};

	return use_dma_iommu(dev) ? &iommu : get_dma_ops(dev);
}
#define get_dma_ops dma_ops_with_iommu
#endif
