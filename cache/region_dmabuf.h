/* SPDX-License-Identifier: MIT */
/*
 * The descriptor of a region's dma-buf, for those who need it for a moment only: to import it. It is closed
 * when the last of them has it no longer, so that regions that were imported take none of the process's
 * descriptors; unless somebody was given it by pindown_region_dmabuf(), who may use it for as long as he
 * holds the region.
 */
#ifndef PD_DMABUF_H
#define PD_DMABUF_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"

/* As pindown_region_dmabuf(), but *fd is good until pd_dmabuf_return(), once for each success. */
int pd_dmabuf_borrow(pindown_region *region, int *fd);
void pd_dmabuf_return(pindown_region *region);

/*
 * A consumer's create has asked pindown_region_dmabuf() for it, and has returned. If it has
 * worked, what was imported holds the buffer.
 */
void pd_dmabuf_create_ended(pindown_region *region, bool worked);

#endif
