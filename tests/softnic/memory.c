/* SPDX-License-Identifier: MIT */
/* Protection domains and memory regions, and each access to memory through a key. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "softnic.h"

#define PAGE 4096ull

/* As libibverbs and its providers have it (driver.h, which isn't installed). */
struct verbs_mr {
	struct ibv_mr ibv; /* must be first */
	uint32_t type;
	int32_t access;
};
enum { TYPE_MR = 0, TYPE_DMABUF = 3 };

struct region {
	struct verbs_mr verbs; /* must be first; what programs write there is not read */
	struct region *next;   /* in its bucket */
	struct ibv_pd *pd;
	uint32_t key;
	int access;
	uint64_t iova, length;
	uint64_t memory;	/* address of its first byte in this process */
	struct gpu_memory *gpu; /* NULL: host memory */
	void *mapping;		/* of a dma-buf of host memory, or NULL */
	size_t mapped;
	unsigned users; /* number of accesses in progress; protected by the lock */
};

enum { BUCKETS = 4096 };

/* All protected by the lock. Keys are used once. */
static struct region *buckets[BUCKETS];
static uint32_t next_key;
static unsigned open_regions, registrations;

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

static void enter(struct region *region)
{
	struct ibv_mr *ibv = &region->verbs.ibv;
	struct region **at;

	lock();
	if (!next_key)
		next_key = getpid() << 12;
	do
		at = place_of(++next_key);
	while (*at || !next_key);
	region->key = ibv->lkey = ibv->rkey = ibv->handle = next_key;
	*at = region;
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
		region->gpu = gpu_describe(region->memory, region->length);
		return region->gpu ? 0 : errno;
	}
	return is_mapped(region->memory, region->length) ? 0 : EFAULT;
}

/*
 * A descriptor doesn't say whose memory it is. A dma-buf of host memory can be mapped. That of a
 * GPU is reached by its address, and all programs known to us give that as the I/O address.
 */
static int find_dmabuf(struct region *region, uint64_t offset, int fd)
{
	uint64_t begin = offset & ~(PAGE - 1);
	void *mapping;

	if (gpu_is_device_memory(region->iova)) {
		region->memory = region->iova;
		region->gpu = gpu_describe(region->iova, region->length);
		return region->gpu ? 0 : errno;
	}
	region->mapped = offset - begin + region->length;
	mapping = mmap(NULL, region->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, begin);
	if (mapping == MAP_FAILED)
		return errno == EBADF ? EBADF : EOPNOTSUPP;
	region->mapping = mapping;
	region->memory = (uintptr_t)mapping + (offset - begin);
	return 0;
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
	};
	return region;
}

static void free_region(struct region *region)
{
	if (region->mapping)
		munmap(region->mapping, region->mapped);
	free(region->gpu);
	free(region);
}

/* fd: -1 for memory at an address. */
static struct ibv_mr *begin_region(struct region *region, uint64_t offset, int fd)
{
	int error = region ? take_place(region->length) : ENOMEM;

	if (!error) {
		error = fd < 0 ? find_memory(region) : find_dmabuf(region, offset, fd);
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
	return begin_region(new_region(pd, addr, length, iova, access, TYPE_MR), 0, -1);
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
	return begin_region(new_region(pd, NULL, length, iova, access, TYPE_DMABUF), offset, fd);
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
	((struct domain *)region->pd)->users--;
	open_regions--;
	unlock();
	checks_count(COUNT_DEREGISTRATIONS);
	free_region(region);
	return 0;
}

/* ---- accesses ------------------------------------------------------------------------------- */

static void refuse(const struct memory_use *use, size_t length, const char *why)
{
	checks_report("refused %s qp 0x%x key 0x%x addr 0x%llx length %zu: %s", use->what,
		      use->qp_num, use->key, (unsigned long long)use->addr, length, why);
}

/* Finds the region and checks the rights; the region is kept until let_go(). NULL: refused. */
static struct region *take(const struct memory_use *use, size_t length)
{
	const char *why = NULL;
	struct region *region;

	lock();
	region = *place_of(use->key);
	if (!region)
		why = "no such key";
	else if (region->pd != use->pd)
		why = "another protection domain";
	else if ((region->access & use->rights) != use->rights)
		why = "no right to it";
	else if (use->addr < region->iova || length > region->length ||
		 use->addr - region->iova > region->length - length)
		why = "outside of the region";
	else
		region->users++;
	unlock();
	if (why)
		refuse(use, length, why);
	return why ? NULL : region;
}

static void let_go(struct region *region)
{
	lock();
	region->users--;
	pthread_cond_broadcast(&softnic_idle);
	unlock();
}

static bool is_current(const struct memory_use *use, const struct region *region, uint64_t addr,
		       size_t length)
{
	struct gpu_change change;

	if (!region->gpu || !length || gpu_is_unchanged(region->gpu, addr, length, &change))
		return true;
	checks_count(COUNT_STALE);
	checks_report("stale %s qp 0x%x key 0x%x addr 0x%llx length %zu: the memory at 0x%llx was "
		      "registered with buffer id %llu, now it is %llu",
		      use->what, use->qp_num, use->key, (unsigned long long)use->addr, length,
		      (unsigned long long)change.addr, change.registered, change.now);
	return false;
}

/* The kernel copies: it returns EFAULT for memory that was unmapped, where we would crash. */
static bool copy_host(uint64_t memory, void *bytes, size_t length, bool writes)
{
	while (length) {
		struct iovec here = {bytes, length}, there = {(void *)memory, length};
		ssize_t done = writes ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
				      : process_vm_readv(getpid(), &here, 1, &there, 1, 0);

		if (done < 0 && (errno == EPERM || errno == ENOSYS)) {
			/* A container may refuse the call. */
			memcpy(writes ? (void *)memory : bytes, writes ? bytes : (void *)memory,
			       length);
			return true;
		}
		if (done <= 0)
			return false;
		memory += done;
		bytes = (char *)bytes + done;
		length -= done;
	}
	return true;
}

static enum access_result copy(const struct memory_use *use, struct region *region, void *bytes,
			       size_t length, bool writes)
{
	uint64_t memory = region->memory + (use->addr - region->iova);
	int error = 0;

	if (!is_current(use, region, memory, length))
		return ACCESS_REFUSED;
	checks_count(COUNT_TRANSFERS);
	if (!region->gpu) {
		if (copy_host(memory, bytes, length, writes))
			return ACCESS_OK;
		checks_count(COUNT_UNMAPPED);
		refuse(use, length, "host memory was unmapped");
		return ACCESS_REFUSED;
	}
	if (length)
		error = writes ? gpu_write(region->gpu, memory, bytes, length)
			       : gpu_read(region->gpu, bytes, memory, length);
	/* It may have been freed during the copy. */
	if (!is_current(use, region, memory, length))
		return ACCESS_REFUSED;
	if (error)
		checks_report("error %d of the driver in %s key 0x%x addr 0x%llx", error, use->what,
			      use->key, (unsigned long long)use->addr);
	return error ? ACCESS_REFUSED : ACCESS_OK;
}

static enum access_result access_memory(const struct memory_use *use, void *bytes, size_t length,
					bool writes)
{
	struct region *region = take(use, length);
	enum access_result result;

	if (!region)
		return ACCESS_REFUSED;
	result = copy(use, region, bytes, length, writes);
	let_go(region);
	return result;
}

enum access_result memory_read(const struct memory_use *use, void *to, size_t length)
{
	return access_memory(use, to, length, false);
}

enum access_result memory_write(const struct memory_use *use, const void *from, size_t length)
{
	return access_memory(use, (void *)from, length, true);
}

enum access_result memory_check(const struct memory_use *use, size_t length)
{
	struct region *region = take(use, length);

	if (region)
		let_go(region);
	return region ? ACCESS_OK : ACCESS_REFUSED;
}

/* ---- lists of pieces ------------------------------------------------------------------------ */

uint64_t pieces_length(const struct ibv_sge *sge, int count)
{
	uint64_t length = 0;

	for (int i = 0; i < count; i++)
		length += sge[i].length;
	return length;
}

static enum access_result access_pieces(const struct pieces *pieces, uint64_t offset,
					uint8_t *bytes, size_t length, bool writes)
{
	for (int i = 0; i < pieces->count && length; i++) {
		const struct ibv_sge *sge = &pieces->sge[i];
		size_t step;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		step = sge->length - offset < length ? sge->length - offset : length;
		struct memory_use use = {
			.pd = pieces->pd,
			.key = sge->lkey,
			.qp_num = pieces->qp_num,
			.addr = sge->addr + offset,
			.rights = writes ? IBV_ACCESS_LOCAL_WRITE : 0,
			.what = writes ? "local write" : "local read",
		};
		if (access_memory(&use, bytes, step, writes) != ACCESS_OK)
			return ACCESS_REFUSED;
		bytes += step;
		length -= step;
		offset = 0;
	}
	return length ? ACCESS_REFUSED : ACCESS_OK;
}

enum access_result pieces_read(const struct pieces *pieces, uint64_t offset, void *to,
			       size_t length)
{
	return access_pieces(pieces, offset, to, length, false);
}

enum access_result pieces_write(const struct pieces *pieces, uint64_t offset, const void *from,
				size_t length)
{
	return access_pieces(pieces, offset, (void *)from, length, true);
}
