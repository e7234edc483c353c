/* SPDX-License-Identifier: MIT */
/* The findings of `pindown check` about one program or library. */
#ifndef CHECK_H
#define CHECK_H

#include "tools/check/library_path.h"
#include "tools/check/elf_file.h"

enum verdict {
	SEEN,	 /* pindown will see every watched call that it makes */
	PARTLY,	 /* some will not */
	UNSEEN,	 /* none will */
	NO_CUDA, /* nothing in its files leads to the driver */
	UNKNOWN, /* as NO_CUDA, but not all was looked at */
};

/* A program or library, in the order of loading; the first is the one given on the command line. */
struct member {
	struct elf_file *file;
	struct needer needer;
	bool opened; /* opened by name at run time; no file needs it */
};

struct checked {
	char *asked;  /* as given on the command line */
	char *script; /* its path if it is a script, which the first member runs; else NULL */
	struct member **members;
	unsigned count, capacity;
	struct texts missing; /* libraries that were not found */
	struct texts unread;  /* sentences: libraries that could not be read */
	bool needs_driver;    /* some file needs libcuda.so.1 itself */
	char *driver;	      /* path of that library; NULL: not on this machine */
	enum verdict verdict;
	const char *unreachable; /* why a preload can't reach it: a sentence's end; else NULL */
	struct texts reasons;	 /* sentences: why some calls are not seen */
	struct texts notes;	 /* sentences: other facts */
};

/* NULL, after one line on standard error, when the file can't be read. */
struct checked *check_file(const char *name);
void check_free(struct checked *checked);

bool reaches_driver(const struct elf_file *file);
/* How it reaches the driver, for people; the caller frees the text. */
char *how_it_reaches(const struct elf_file *file);
/* The last part of a path. */
const char *short_name(const char *path);
/* Notes what else is in the process that bears on the watch (company.c). */
void note_company(struct checked *checked);
/* Whether a preload reaches the program at all. */
bool is_reached(const struct checked *checked);
/* Whether pindown will see calls that the loader binds, or that the program looks up. */
bool linked_is_seen(const struct checked *checked, const char *call);
bool looked_up_is_seen(const struct checked *checked);

#endif
