/* SPDX-License-Identifier: MIT */
/*
 * The descriptor of a region's dma-buf, for users that need it only for a moment: to import it.
 * Where each export maps the memory for cards once more, it stays for the next import, as long as
 * there are descriptors enough. Otherwise it is closed when the last user returns it, so that
 * imported regions take none of the process's descriptors; unless pindown_region_dmabuf() has lent
 * it, to be used for as long as the caller holds the region.
 */
#ifndef PDN_REGION_DMABUF_H
#define PDN_REGION_DMABUF_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/backend/backend.h"
#include "cache/pindown.h"

/*
 * As pindown_region_dmabuf(), but *fd is good until pdn_dmabuf_return(), once for each success.
 * imported: a registration was made from it.
 */
int pdn_dmabuf_borrow(pindown_region *region, int *fd);
void pdn_dmabuf_return(pindown_region *region, bool imported);

/* As pdn_dmabuf_borrow(), if it has, or gets, the default mapping; else PINDOWN_ERR_NO_DMABUF. */
int pdn_dmabuf_borrow_default(pindown_region *region, int *fd);

/*
 * A consumer's create has asked pindown_region_dmabuf() for it, and has returned. If it has worked,
 * the import holds the buffer.
 */
void pdn_dmabuf_create_ended(pindown_region *region, bool worked);

/*
 * The same for a card, whose path in sysfs this is, with the mapping that the card needs. other:
 * the card has refused to import that one: end the loan, and borrow one with the other mapping;
 * false: there is none. End each loan, whatever pdn_dmabuf_lend_other() has answered.
 */
struct pdn_loan {
	int fd;
	bool pcie, tried_other;
	struct pdn_pin own; /* .fd: of an export for this loan only, or -1 */
};
int pdn_dmabuf_lend(pindown_region *region, const char *card, struct pdn_loan *loan);
bool pdn_dmabuf_lend_other(pindown_region *region, struct pdn_loan *loan);
void pdn_dmabuf_end_loan(pindown_region *region, struct pdn_loan *loan, bool imported);

/*
 * Lock not held. Descriptors are short: none stays after an import any more, and those that have
 * stayed are closed. Was there one?
 */
bool pdn_dmabuf_close_kept(void);

#endif
