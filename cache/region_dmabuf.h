/* SPDX-License-Identifier: MIT */
/*
 * The descriptor of a region's dma-buf, for users that need it only for a moment: to import it. It
 * is closed when the last of them returns it, so that imported regions take none of the process's
 * descriptors; unless pindown_region_dmabuf() has lent it, to be used for as long as the caller
 * holds the region.
 */
#ifndef PDN_DMABUF_H
#define PDN_DMABUF_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"

/* As pindown_region_dmabuf(), but *fd is good until pdn_dmabuf_return(), once for each success. */
int pdn_dmabuf_borrow(pindown_region *region, int *fd);
void pdn_dmabuf_return(pindown_region *region);

/*
 * A consumer's create has asked pindown_region_dmabuf() for it, and has returned. If it has worked,
 * the import holds the buffer.
 */
void pdn_dmabuf_create_ended(pindown_region *region, bool worked);

#endif
