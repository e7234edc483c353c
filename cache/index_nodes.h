/* SPDX-License-Identifier: MIT */
/* Memory for the index's nodes: taken from the system, used again, never unmapped. Lock held. */
#ifndef PD_INDEX_NODES_H
#define PD_INDEX_NODES_H

#include "cache/index.h"

/*
 * A list of regions that share a page; 0 is an empty place. Lists are named by number, as regions
 * are.
 */
#define PD_SHARED_PLACES 15
struct pd_shared {
	uint32_t place[PD_SHARED_PLACES];
	uint32_t next;
};
extern struct pd_shared *pd_shared_nodes; /* [0] is never used */

/* All zero, or NULL; a leaf that is given back must be all zero again. */
struct pd_leaf *pd_leaf_new(void);
void pd_leaf_free(struct pd_leaf *leaf);

struct pd_mid *pd_mid_new(void);

/* All its slots are empty: give their memory back. */
void pd_mid_trim(struct pd_mid *mid);

/* 0: no memory. Places of a node that is given back must be zero. */
uint32_t pd_shared_new(void);
void pd_shared_free(uint32_t node);

/* No leaf is in use: give their memory back. */
void pd_leaves_trim(void);

/* In a forked child: forget all of it. */
void pd_nodes_reset(void);

#endif
