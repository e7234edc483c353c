/* SPDX-License-Identifier: MIT */
/*
 * A cache of memory handles as UCX has one (ucs_rcache), on pindown: an operation gets the handle
 * of its buffer and puts it back. A handle covers the whole allocation. Where there is none with
 * the rights that the operation needs, one with more rights serves. Without pindown each operation
 * registers its buffer, as with UCX_RCACHE_ENABLE=n.
 *
 *	cc ucx_rcache.c -lcuda -ldl -o ucx_rcache && pindown run ./ucx_rcache
 */
#include <cuda.h>
#include <pindown_dl.h>
#include <stdio.h>

enum { READ = 1, WRITE = 2 }; /* what the card may do for this process */

/* Stands for a registration by the card: ibv_reg_dmabuf_mr(), or ibv_reg_mr() without pindown. */
struct memh {
	uint64_t base, length;
	unsigned rights;
};

static unsigned registered, left;

static struct memh *mem_reg(uint64_t base, uint64_t length, int fd, unsigned rights)
{
	struct memh *memh = malloc(sizeof(*memh));

	(void)fd;
	if (!memh)
		return NULL;
	*memh = (struct memh){base, length, rights};
	registered++;
	left++;
	return memh;
}

static void mem_dereg(struct memh *memh)
{
	free(memh);
	left--;
}

/* ---- the cache: what is ucs_rcache_ops_t there ----------------------------------------------- */

static struct pindown_dl pindown;
static int consumer; /* 0: pindown is not in this process */

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	uint64_t base = pindown.region_pin_base(what->region), offset;
	int fd, result = pindown.region_dmabuf(what->region, base, &fd, &offset);

	(void)arg;
	if (result != PINDOWN_OK)
		return result;
	*data = mem_reg(base, pindown.region_pin_length(what->region), fd,
			(unsigned)what->key.word[0]);
	return *data ? PINDOWN_OK : PINDOWN_ERR_NO_MEMORY;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	(void)arg;
	mem_dereg(what->data);
	return 0;
}

struct handle {
	pindown_object *object; /* NULL: the handle is this operation's own */
	struct memh *memh;
};

static int rcache_get(void *md, uint64_t addr, size_t length, unsigned rights,
		      struct handle *handle)
{
	const struct pindown_key key = {.owner = (uintptr_t)md, .word = {rights}};
	int result;

	handle->object = NULL;
	if (!consumer) {
		handle->memh = mem_reg(addr, length, -1, rights);
		return handle->memh ? PINDOWN_OK : PINDOWN_ERR_NO_MEMORY;
	}
	result = pindown.attach(consumer, addr, length, 0, &key, NULL, &handle->object);
	if (result == PINDOWN_OK)
		handle->memh = pindown.object_data(handle->object);
	return result;
}

static void rcache_put(const struct handle *handle)
{
	if (handle->object)
		pindown.detach(handle->object);
	else
		mem_dereg(handle->memh);
}

/* ---- a program that uses it ------------------------------------------------------------------ */

static void transfer(void *md, CUdeviceptr buffer, unsigned rights)
{
	struct handle handle;

	if (rcache_get(md, buffer, 4096, rights, &handle) == PINDOWN_OK)
		rcache_put(&handle);
}

static const char *state_of(const struct handle *handle)
{
	if (!handle->object)
		return "not known";
	if (!pindown.object_data(handle->object))
		return "revoked";
	return pindown.object_is_live(handle->object) ? "live" : "kept until it is put";
}

int main(void)
{
	static const struct pindown_consumer ops = {
		.name = "ucx", .create = create, .destroy = destroy, .rights = READ | WRITE};
	int md; /* its address stands for a memory domain */
	struct handle handle;
	CUdeviceptr buffer;
	CUcontext context;

	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
	    cuMemAlloc(&buffer, 1 << 20))
		return 1;
	if (pindown_dl_load(&pindown))
		consumer = pindown.consumer_add(&ops, sizeof(ops));
	for (unsigned i = 0; i < 1000; i++)
		transfer(&md, buffer + i, i % 2 ? READ : READ | WRITE);
	printf("1000 transfers: %u registrations\n", registered);
	if (rcache_get(&md, buffer, 1, READ, &handle) != PINDOWN_OK)
		return 1;
	cuMemFree(buffer); /* under the handle */
	printf("a handle whose memory was freed: %s\n", state_of(&handle));
	rcache_put(&handle);
	if (consumer)
		pindown.consumer_remove(consumer);
	printf("left: %u\n", left);
	return 0;
}
