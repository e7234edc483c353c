/* SPDX-License-Identifier: MIT */
/* Memory for the index's nodes: taken from the system, used again, never unmapped. Lock held. */
#ifndef PDN_INDEX_NODES_H
#define PDN_INDEX_NODES_H

#include "cache/hit/index.h"

/*
 * A list of regions that share a page; 0 is an empty place. Lists are named by number, as regions
 * are.
 */
#define PDN_SHARED_PLACES 15
struct pdn_shared {
	uint32_t place[PDN_SHARED_PLACES];
	uint32_t next;
};
extern struct pdn_shared *pdn_shared_nodes; /* [0] is never used */

/* All zero, or NULL; a leaf that is given back must be all zero again. */
struct pdn_leaf *pdn_leaf_new(void);
void pdn_leaf_free(struct pdn_leaf *leaf);

struct pdn_mid *pdn_mid_new(void);

/* All its slots are empty: give their memory back. */
void pdn_mid_trim(struct pdn_mid *mid);

/* 0: no memory. Places of a node that is given back must be zero. */
uint32_t pdn_shared_new(void);
void pdn_shared_free(uint32_t node);

/* No leaf is in use: give their memory back. */
void pdn_leaves_trim(void);

/* In a forked child: forget all of it. */
void pdn_nodes_reset(void);

#endif
