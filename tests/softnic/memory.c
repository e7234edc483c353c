/* SPDX-License-Identifier: MIT */
/* Protection domains, and memory regions from registration to deregistration. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "region.h"

#define PAGE 4096ull

enum { BUCKETS = 4096, CLASSES = 64, HIGH_DESCRIPTOR = 500 };

/* All protected by the lock. */
static struct region *buckets[BUCKETS];
static uint32_t next_key;
static unsigned open_regions, registrations;

/*
 * The keys of ended regions. The next region of a class gets the newest one unchanged, as from
 * mlx5's cache of keys: stale keys soon are somebody else's. A card that can change all rights of a
 * key has classes by size only, for host memory and dma-bufs alike.
 */
static struct ended_keys {
	uint32_t *keys;
	unsigned count, capacity;
} ended_keys[CLASSES];

/* ---- protection domains --------------------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return NULL;
	domain->ibv.context = context;
	return &domain->ibv;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct domain *domain = (struct domain *)pd;
	bool busy;

	lock();
	busy = domain->users;
	unlock();
	if (busy)
		return EBUSY;
	free(domain);
	return 0;
}

void domain_use(struct ibv_pd *pd)
{
	lock();
	((struct domain *)pd)->users++;
	unlock();
}

void domain_unuse(struct ibv_pd *pd)
{
	lock();
	((struct domain *)pd)->users--;
	unlock();
}

/* ---- the table of keys ---------------------------------------------------------------------- */

static struct region **place_of(uint32_t key)
{
	struct region **at = &buckets[key % BUCKETS];

	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

struct region *region_find(uint32_t key)
{
	return *place_of(key);
}

/* By the power of two of the number of pages. */
static struct ended_keys *class_of(const struct region *region)
{
	uint64_t pages = (region->iova % PAGE + region->length + PAGE - 1) / PAGE;

	return &ended_keys[63 - __builtin_clzll(2 * pages - 1)];
}

static void push_key(const struct region *region)
{
	struct ended_keys *class = class_of(region);

	if (class->count == class->capacity) {
		unsigned capacity = class->capacity * 2 + 16;
		uint32_t *keys = realloc(class->keys, capacity * sizeof(*keys));

		if (!keys)
			return; /* it is not used again */
		class->keys = keys;
		class->capacity = capacity;
	}
	class->keys[class->count++] = region->key;
}

static uint32_t pop_key(const struct region *region)
{
	struct ended_keys *class = class_of(region);

	if (class->count)
		return class->keys[--class->count];
	if (!next_key)
		next_key = getpid() << 12;
	do
		next_key++;
	while (region_find(next_key) || !next_key);
	return next_key;
}

static void enter(struct region *region)
{
	struct ibv_mr *ibv = &region->verbs.ibv;

	lock();
	region->key = ibv->lkey = ibv->rkey = ibv->handle = pop_key(region);
	*place_of(region->key) = region;
	((struct domain *)region->pd)->users++;
	unlock();
	checks_count(COUNT_REGISTRATIONS);
}

/* ---- registration --------------------------------------------------------------------------- */

/* Takes a place for a region, as far as the options leave one. */
static int take_place(uint64_t length)
{
	const struct options *options = softnic_options();
	uint64_t ns = (length + PAGE - 1) / PAGE * options->slow_ns_per_page;
	struct timespec time = {ns / 1000000000, ns % 1000000000};
	int error = 0;

	lock();
	registrations++;
	if ((options->enomem_every && registrations % options->enomem_every == 0) ||
	    (options->max_mr && open_regions >= options->max_mr))
		error = ENOMEM;
	else
		open_regions++;
	unlock();
	if (!error && ns)
		while (nanosleep(&time, &time) && errno == EINTR)
			;
	return error;
}

static void leave_place(void)
{
	lock();
	open_regions--;
	unlock();
}

static bool is_mapped(uint64_t addr, uint64_t length)
{
	unsigned char present[4096];
	uint64_t end = (addr + length + PAGE - 1) & ~(PAGE - 1);

	for (uint64_t at = addr & ~(PAGE - 1); at < end;) {
		uint64_t step = end - at;

		if (step > sizeof(present) * PAGE)
			step = sizeof(present) * PAGE;
		if (mincore((void *)at, step, present))
			return false;
		at += step;
	}
	return true;
}

static int find_memory(struct region *region)
{
	if (gpu_is_device_memory(region->memory)) {
		if (softnic_options()->no_peermem)
			return EFAULT;
		region->gpu = gpu_describe(region->memory, region->length, false);
		return region->gpu ? 0 : errno;
	}
	return is_mapped(region->memory, region->length) ? 0 : EFAULT;
}

/*
 * The simulated driver's dma-bufs can be read and written, and the file position says where their
 * memory begins. A GPU's can't: their memory is reached by its address. No descriptor says which
 * that is; the I/O address is taken for it.
 */
static int find_dmabuf(struct region *region, int fd, uint64_t offset)
{
	off_t start = lseek(fd, 0, SEEK_CUR);
	char byte;

	/* Holds the memory also when the program has closed its descriptor, as the kernel does. */
	region->dmabuf = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
	if (region->dmabuf < 0 && errno == EINVAL) /* the process has a lower limit */
		region->dmabuf = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (region->dmabuf < 0)
		return errno;
	if (start >= 0 && pread(fd, &byte, 1, start + (off_t)offset) == 1)
		region->file_at = start + (off_t)offset;
	region->memory = region->iova;
	region->gpu = gpu_describe(region->iova, region->length, true);
	return region->gpu || region->file_at >= 0 ? 0 : errno;
}

static int check_access(uint64_t addr, uint64_t length, unsigned access)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			       IBV_ACCESS_RELAXED_ORDERING;
	const unsigned remote_writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (access & ~(known | IBV_ACCESS_OPTIONAL_RANGE))
		return EOPNOTSUPP;
	if ((access & remote_writes) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return !length || addr + length < addr ? EINVAL : 0;
}

static struct region *new_region(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 int access, uint32_t type)
{
	struct region *region = calloc(1, sizeof(*region));

	if (!region)
		return NULL;
	*region = (struct region){
		.verbs = {.ibv = {pd->context, pd, addr, length, 0, 0, 0}, type, access},
		.pd = pd,
		.access = access,
		.iova = iova,
		.length = length,
		.memory = (uintptr_t)addr,
		.dmabuf = -1,
		.file_at = -1,
	};
	return region;
}

static void free_region(struct region *region)
{
	if (region->dmabuf >= 0)
		close(region->dmabuf);
	free(region->gpu);
	free(region);
}

/* fd: -1 for memory at an address. */
static struct ibv_mr *begin_region(struct region *region, int fd, uint64_t offset)
{
	int error = region ? take_place(region->length) : ENOMEM;

	if (!error) {
		error = fd < 0 ? find_memory(region) : find_dmabuf(region, fd, offset);
		if (error)
			leave_place();
	}
	if (error) {
		if (region)
			free_region(region);
		errno = error;
		return NULL;
	}
	enter(region);
	return &region->verbs.ibv;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned access)
{
	int error = check_access((uintptr_t)addr, length, access);

	if (!error)
		error = check_access(iova, length, access);
	if (error) {
		errno = error;
		return NULL;
	}
	return begin_region(new_region(pd, addr, length, iova, access, TYPE_MR), -1, 0);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	int error = check_access(iova, length, access);

	if (softnic_options()->no_dmabuf)
		error = EOPNOTSUPP;
	else if (!error && fd < 0)
		error = EBADF;
	/* The kernel requires it, too. */
	else if (!error && (offset & (PAGE - 1)) != (iova & (PAGE - 1)))
		error = EINVAL;
	if (error) {
		errno = error;
		return NULL;
	}
	return begin_region(new_region(pd, NULL, length, iova, access, TYPE_DMABUF), fd, offset);
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
			int access)
{
	(void)mr, (void)flags, (void)pd, (void)addr, (void)length, (void)access;
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}

/* Waits for accesses in progress, as a card does. */
EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct region *region = (struct region *)mr, **at;

	lock();
	at = place_of(region->key);
	if (*at != region) {
		unlock();
		return EINVAL;
	}
	*at = region->next;
	while (region->users)
		pthread_cond_wait(&softnic_idle, &softnic_lock);
	push_key(region);
	((struct domain *)region->pd)->users--;
	open_regions--;
	unlock();
	checks_count(COUNT_DEREGISTRATIONS);
	free_region(region);
	return 0;
}
