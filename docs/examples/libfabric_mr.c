/* SPDX-License-Identifier: MIT */
/*
 * Memory regions as a provider of libfabric hands them out (fi_mr_reg, ofi_mr_cache), on pindown:
 * the program holds each until fi_close(). A registration covers the pages that were asked for; a
 * wider one, or one with more rights of this side, serves too. A thread that makes progress must
 * not wait, so a region that another thread is freeing or pinning is -EAGAIN. A subscriber takes
 * the place of the memory monitor. Without pindown each region is registered alone.
 *
 *	cc libfabric_mr.c -lcuda -ldl -o libfabric_mr && pindown run ./libfabric_mr
 */
#include <cuda.h>
#include <errno.h>
#include <pindown_dl.h>
#include <stdio.h>

enum { SEND = 1, RECV = 2, REMOTE_READ = 4, REMOTE_WRITE = 8 };

static struct pindown_dl pindown;
static int consumer;
static unsigned registered, left; /* by the card; a registration is a number here */

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	uint64_t base = PINDOWN_KEY_RANGE_BASE(what->key.word[1]), offset;
	int fd, result = pindown.region_dmabuf(what->region, base, &fd, &offset);

	(void)arg;
	if (result != PINDOWN_OK)
		return result;
	/* Here is ibv_reg_dmabuf_mr(), from offset, of PINDOWN_KEY_RANGE_LENGTH() bytes. */
	*data = (void *)(uintptr_t)++registered;
	left++;
	return PINDOWN_OK;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	(void)what;
	(void)arg;
	left--;
	return 0;
}

static void memory_ends(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	printf("monitor: %u KiB end, %s\n", (unsigned)(what->length >> 10),
	       what->in_use ? "in use" : "idle");
}

/* ---- what the provider hands out ------------------------------------------------------------- */

struct mr {
	pindown_object *object; /* NULL: registered without pindown */
};

static int mr_reg(void *domain, uint64_t addr, size_t length, unsigned access, struct mr *mr)
{
	const struct pindown_key key = {.owner = (uintptr_t)domain,
					.word = {access, PINDOWN_KEY_RANGE(addr, length)}};
	int result;

	mr->object = NULL;
	if (!consumer) {
		registered++;
		left++;
		return 0;
	}
	result =
		pindown.attach(consumer, addr, length, PINDOWN_GET_NOWAIT, &key, NULL, &mr->object);
	if (result == PINDOWN_ERR_WOULD_WAIT)
		return -EAGAIN;
	if (PINDOWN_CREATE_ERROR(result))
		return -PINDOWN_CREATE_ERROR(result); /* the card's errno, if create returns one */
	return result == PINDOWN_OK ? 0 : -EINVAL;
}

static void mr_close(struct mr *mr)
{
	if (mr->object)
		pindown.detach(mr->object);
	else
		left--;
}

/* Asked before each operation. Without pindown the answer is what libfabric's cache believes. */
static int mr_is_usable(const struct mr *mr)
{
	return !mr->object || pindown.object_is_live(mr->object);
}

/* ---- a program that uses it ------------------------------------------------------------------ */

static int count(const struct pindown_object_info *object, void *arg)
{
	*(unsigned *)arg += object->in_use;
	return 0;
}

int main(void)
{
	static const struct pindown_consumer ops = {.name = "libfabric",
						    .create = create,
						    .destroy = destroy,
						    .rights = SEND | RECV,
						    .flags = PINDOWN_CONSUMER_RANGES};
	const unsigned both = SEND | RECV;
	unsigned in_use = 0;
	CUcontext context;
	CUdeviceptr at;
	struct mr mr[4];
	int domain;

	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
	    cuMemAlloc(&at, 1 << 20))
		return 1;
	if (pindown_dl_load(&pindown)) {
		consumer = pindown.consumer_add(&ops, sizeof(ops));
		pindown.subscribe(memory_ends, NULL);
	}
	if (mr_reg(&domain, at, 512 << 10, both, &mr[0]) ||	/* the first half */
	    mr_reg(&domain, at + 4096, 4096, both, &mr[1]) ||	/* in it */
	    mr_reg(&domain, at + 65536, 65536, SEND, &mr[2]) || /* in it, with fewer rights */
	    mr_reg(&domain, at + (512 << 10), 4096, both | REMOTE_WRITE, &mr[3])) /* behind it */
		return 1;
	printf("4 memory regions: %u registrations\n", registered);
	if (consumer && pindown.each_object(consumer, count, &in_use) > 0)
		printf("in use: %u\n", in_use);
	cuMemFree(at); /* under all four */
	printf("after the free: %s\n", mr_is_usable(&mr[0]) ? "usable, or so it seems" : "ended");
	for (unsigned i = 0; i < 4; i++)
		mr_close(&mr[i]);
	printf("left: %u\n", left);
	return 0;
}
