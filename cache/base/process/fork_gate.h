/* SPDX-License-Identifier: MIT */
/*
 * A fork and the making or closing of a descriptor wait for each other, so that a child knows each
 * descriptor that it inherits.
 */
#ifndef PDN_FORK_GATE_H
#define PDN_FORK_GATE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Around the making of a descriptor, until a pin in the list of flights names it (or until it is
 * closed). The first waits for a fork under way. Lock not held.
 */
void pdn_descriptor_begin(void);
void pdn_descriptor_end(void);

/* The descriptor with this identity (descriptor.h) is about to be closed. */
void pdn_descriptor_note(int fd, uint64_t identity);

/* Before a fork, and in the parent after it. */
void pdn_fork_gate_shut(void);
void pdn_fork_gate_open(void);

/*
 * In a child: are all descriptors that it has inherited still its parent's, so that none may be
 * closed here? Then the parent's closing them is the child's, too.
 */
bool pdn_fork_gate_is_shared(void);

/*
 * In a child: first forget the forks under way; then close the descriptors noted lately, after the
 * pins have closed theirs; at last begin again. Async-signal-safe.
 */
void pdn_fork_gate_forget(void);
void pdn_fork_gate_close_noted(void);
void pdn_fork_gate_child(void);

#endif
