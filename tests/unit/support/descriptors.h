/* SPDX-License-Identifier: MIT */
/* For tests of a process that has few descriptors, or none. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

/* From now on their numbers are below `most`. */
void allow_descriptors(unsigned most);

/* Takes all that are free, but so many. */
void take_descriptors_but(unsigned left);
void give_descriptors_back(void);

#endif
