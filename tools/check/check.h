/* SPDX-License-Identifier: MIT */
/* What `pindown check` finds out of one program or library. */
#ifndef CHECK_H
#define CHECK_H

#include "tools/check/library_path.h"
#include "tools/check/elf_file.h"

enum verdict {
	SEEN,	 /* every watched call that it makes will be seen */
	PARTLY,	 /* some will not */
	UNSEEN,	 /* none will */
	NO_CUDA, /* nothing in its files leads to the driver */
};

/* An object in the order in which the loader takes them up; the first is what was asked about. */
struct member {
	struct object *object;
	struct needer needer;
	bool opened; /* not needed by anything: opened by that name at run time */
};

struct checked {
	char *asked;  /* as it was given */
	char *script; /* it is a script, and the first member is what runs it; NULL: it is none */
	struct member **members;
	unsigned count, capacity;
	struct texts missing; /* libraries that were not found */
	bool needs_driver;    /* some object needs libcuda.so.1 itself */
	char *driver;	      /* where that is; NULL: not on this machine */
	enum verdict verdict;
	const char *unreachable; /* why no preload gets into it: a sentence's end; NULL: one does */
	struct texts reasons;	 /* sentences: why not all is seen */
	struct texts notes;	 /* what else is worth knowing */
};

/* NULL after one line on standard error when the file can't be looked at. */
struct checked *check_file(const char *name);
void check_free(struct checked *checked);

bool reaches_driver(const struct object *object);
/* How it reaches the driver, for people. */
char *how_it_reaches(const struct object *object);
/* The last part of a path. */
const char *short_name(const char *path);
/* Whether a preload gets into it at all. */
bool is_reached(const struct checked *checked);
/* Whether calls that are bound by the loader, or looked up, will be seen. */
bool linked_is_seen(const struct checked *checked, const char *call);
bool looked_up_is_seen(const struct checked *checked);

#endif
