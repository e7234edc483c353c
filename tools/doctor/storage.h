/* SPDX-License-Identifier: MIT */
/*
 * pindown doctor --storage: whether data moves between GPUs and NVMe disks without memory of the
 * host in between. Folders are what the user names: no disk is written to but through them.
 */
#ifndef STORAGE_H
#define STORAGE_H

#include "tools/base/texts.h"
#include "tools/doctor/try.h"

struct doctor;

/* The ways between a GPU and a file. */
enum storage_road {
	STORE_DMABUF, /* direct I/O of a mapped dma-buf */
	STORE_CUFILE, /* NVIDIA's library */
	STORE_HOST,   /* direct I/O of host memory, and copies */
	STORE_ROADS
};

enum { STORED_BYTES = 16 << 20 };

/* A folder, the file system that it is on, and the disk below. What is not known is NULL. */
struct place {
	char *folder;
	char *type;	  /* ext4 */
	char *disk;	  /* nvme0n1p2, or dm-0 */
	char *controller; /* of the first NVMe disk below it: nvme0 */
	char *address;	  /* of that: 0000:14:00.0 */
	bool is_multipath;
	bool is_remote; /* an NVMe disk over a network */
};

struct places {
	struct place *list;
	unsigned count, capacity;
};

/* File systems on NVMe disks, each once, by their mount points (storage_places.c). */
struct places places_mounted(void);
/* What the folder is on. */
struct place place_of_folder(const char *folder);
/* "ext4 on nvme0n1p2 of nvme0, 0000:14:00.0", for release(). */
char *place_described(const struct place *place);
void places_add(struct places *places, struct place place);
void places_free(struct places *places);

/* Adds findings on the prerequisites, and on the folders that could be tried (storage_facts.c). */
void examine_storage(struct doctor *doctor, const struct texts *folders);

/* The trials in folders. */
struct storage {
	struct places places;
	struct attempt *attempts; /* of each GPU, each place, each road; with release() */
};

/* After trials_make(), whose GPUs it takes, and before this process uses CUDA. */
void storage_make(struct storage *storage, const struct trials *trials,
		  const struct texts *folders);
void storage_free(struct storage *storage);
/* How bytes moved, in one sentence; for release(). */
char *storage_verdict(const struct storage *storage, const struct trials *trials,
		      bool is_simulated);
void storage_print(const struct storage *storage, const struct trials *trials);
void storage_print_json(const struct storage *storage, const struct trials *trials);

/* ---- in the child --------------------------------------------------------------------------- */

/* Fills the attempt as it goes, for another process to see (storage_roads.c). */
void try_storage(int gpu, const char *folder, enum storage_road road, struct attempt *attempt);

/* cuFile, opened at run time: from memory at `addr` to a file, and to memory at `back`. */
bool try_cufile(uint64_t addr, uint64_t back, const char *folder, struct attempt *attempt);

/*
 * A temporary file without a name (storage_file.c), with direct I/O unless it is not needed and not
 * offered; -1: the attempt has failed.
 */
int storage_file(const char *folder, bool needs_direct, struct attempt *attempt);
/* One with a name, which storage_unlink() takes: cuFile refuses others. */
int storage_named_file(const char *folder, struct attempt *attempt);
void storage_unlink(const char *folder, struct attempt *attempt);
/* Whether pages of the file are in the page cache: then its I/O was not direct. */
bool storage_is_cached(int fd);
/*
 * Whether the file system promises direct I/O of this file, as it can since Linux 6.1. Others may
 * let the processor copy the bytes into the page cache, and drop them there at once.
 */
bool storage_promises_direct(int fd);

/* ---- words (storage_errors.c) --------------------------------------------------------------- */

const char *storage_road_name(enum storage_road road);
char *storage_text(enum storage_road road, const struct attempt *attempt, unsigned patience);
const char *storage_advice(enum storage_road road, const struct attempt *attempt);
/* "not supported for this file (5008)", for release() (storage_cufile_errors.c). */
char *storage_cufile_error(int number);
/* Never NULL. */
const char *storage_cufile_advice(int number);
/* Whether bytes went to the file and back without host memory in between. */
bool storage_is_direct(const struct attempt *attempt);
bool storage_is_absent(enum storage_road road, const struct attempt *attempt);

#endif
