/* SPDX-License-Identifier: MIT */
/* Opening files whose names come from somebody else: opening a device can have effects. */
#ifndef REGULAR_H
#define REGULAR_H

/*
 * Opens a regular file for reading; -1 and errno if there is none, EINVAL if it is something else.
 * Nothing but a regular file is opened, even if the name changes its meaning meanwhile, unless
 * there is no /proc. `flags`: O_NOFOLLOW, or 0.
 */
int open_regular(const char *path, int flags);

#endif
