/* SPDX-License-Identifier: MIT */
/* For tests of a process that has few descriptors, or none. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

/* From now on the numbers of new descriptors are below `max`. */
void allow_descriptors(unsigned max);

/* Opens descriptors until only `left` more can be opened. */
void take_descriptors_but(unsigned left);
void give_descriptors_back(void);

#endif
