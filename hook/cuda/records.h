/* SPDX-License-Identifier: MIT */
/*
 * What hook/ remembers between calls: a multimap from (kind, key) to two numbers, which can be
 * searched by the first of them too. What a search takes does not grow with how many there are. One
 * mutex, held for the length of a function here and never across a call out; memory comes from
 * mmap.
 */
#ifndef PD_RECORDS_H
#define PD_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

enum pd_kind {
	PD_KIND_NONE,
	/* key: an owner of memory, a: address, b: length. In the order of enum pd_owner. */
	PD_KIND_OWNED_BY_EXTERNAL,
	PD_KIND_OWNED_BY_GRAPHICS,
	PD_KIND_OWNED_BY_GL_BUFFER,
	PD_KIND_OWNED_BY_MODULE,
	PD_KIND_OWNED_BY_LIBRARY,
	PD_KIND_OWNED_BY_EGL,  /* none: its frames have it */
	PD_KIND_MODULE,	       /* key: a library, a: one of its modules */
	PD_KIND_FRAME,	       /* key: an EGL connection, a: one of its frames */
	PD_KIND_MODULE_FOUND,  /* key: a module that a function has led to */
	PD_KIND_CONTEXT,       /* key: a context, a: its usage count */
	PD_KIND_GREEN,	       /* key: a green context, a: its device */
	PD_KIND_GREEN_CONTEXT, /* key: a green context, a: the CUcontext made of it */
	PD_KIND_IPC,	       /* key: a mapping's buffer id, a: how often it is open */
	PD_KIND_MAPPING,       /* key: where it begins, a: its buffer id, b: its length */
	PD_KIND_EXEC,	       /* key: an executable graph, a: an address that its launch frees */
};

struct pd_record {
	uint64_t key, a, b;
	uint32_t next[2]; /* index + 1 of the next in its chains, or of the next free one */
	uint32_t kind;
};

/* Add a record unless there is one with the same kind, key and a. True: it is new. */
bool pd_record_add(enum pd_kind kind, uint64_t key, uint64_t a, uint64_t b);

/* Make this the only record of the key. */
void pd_record_replace(enum pd_kind kind, uint64_t key, uint64_t a, uint64_t b);

/* Copy up to `room` records of this key, after the first `skip` ones; returns how many. */
unsigned pd_record_get(enum pd_kind kind, uint64_t key, unsigned skip, struct pd_record *out,
		       unsigned room);

/* Remove all records of this key; returns how many there were. */
unsigned pd_record_remove(enum pd_kind kind, uint64_t key);

/* Remove the record with this key and this a, if there is one. */
unsigned pd_record_remove_one(enum pd_kind kind, uint64_t key, uint64_t a);

/*
 * Remove the records of any key with this a: of external memory's, of libraries' modules and of
 * connections' frames only.
 */
unsigned pd_record_remove_value(enum pd_kind kind, uint64_t a);

/*
 * For counts: add `change` to a of the only record of this key, and return the new value; where
 * there is no record, PD_NOT_COUNTED. pd_record_begin_count() makes one that counts 0 if there is
 * none; pd_record_end_count() removes it if it has fallen to 0.
 */
#define PD_NOT_COUNTED INT64_MIN
int64_t pd_record_count(enum pd_kind kind, uint64_t key, int change);
void pd_record_begin_count(enum pd_kind kind, uint64_t key);
void pd_record_end_count(enum pd_kind kind, uint64_t key);

void pd_records_fork_child(void);

#endif
