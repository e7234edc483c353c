/* SPDX-License-Identifier: MIT */
/*
 * Going through the objects of the process, in the order in which they were loaded.
 *
 * The C library's dl_iterate_phdr() takes a lock. Another thread may hold it while this one forks,
 * and in the child it is then held for ever: fork() gives the child other locks of the loader anew,
 * but this one only since glibc 2.37, and children by _Fork() and clone() get none. What the
 * program calls in the child does without that lock, so we do, too.
 *
 * So a child goes through the loader's list by itself. Another thread of the parent may have been
 * about to change the list: an object is appended when it is complete, but when one is unloaded it
 * stays in the list for a moment after its memory has gone. So each is looked at before it is
 * believed. When the list changes in the child, its lock works, and is taken from then on.
 */
#ifndef PD_OBJECTS_H
#define PD_OBJECTS_H

#include <link.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

typedef int pd_look_at_object(struct dl_phdr_info *info, size_t size, void *arg);

/*
 * As dl_iterate_phdr(), until look() answers other than 0. Of `info` only the address and the
 * program headers are valid; there are none of an object that can't be looked at. Keeps errno.
 */
int pd_each_object(pd_look_at_object *look, void *arg);

#pragma GCC visibility pop

#endif
