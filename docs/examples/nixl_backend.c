/* SPDX-License-Identifier: MIT */
/*
 * A backend as NIXL's agent has them, on pindown: registerMem() takes a list of descriptors, all or
 * none, and the list stays registered until deregisterMem(). The descriptors of one allocation
 * share its registration. Before a transfer is posted the backend asks whether the memory is still
 * there. Without pindown each descriptor is registered alone, and nobody can tell.
 *
 *	cc nixl_backend.c -lcuda -ldl -o nixl_backend && pindown run ./nixl_backend
 */
#include <cuda.h>
#include <pindown_dl.h>
#include <stdio.h>

enum { MOST = 8 };

static struct pindown_dl pindown;
static int consumer;
static unsigned registered, left; /* by the card; a registration is a number here */

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	uint64_t base = pindown.region_pin_base(what->region), offset;
	int fd, result = pindown.region_dmabuf(what->region, base, &fd, &offset);

	(void)arg;
	if (result != PINDOWN_OK)
		return result;
	*data = (void *)(uintptr_t)++registered; /* ibv_reg_dmabuf_mr() of the whole pin is here */
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

/* ---- the backend ----------------------------------------------------------------------------- */

struct memory {
	size_t count;
	pindown_object *object[MOST]; /* NULL: registered without pindown */
};

static void deregister_mem(struct memory *memory)
{
	while (memory->count)
		if (consumer)
			pindown.detach(memory->object[--memory->count]);
		else
			memory->count--, left--;
}

/* Regions that are held: so no memory of the list is found to be missing halfway. */
static int attach_all(pindown_region **region, const struct pindown_range *list, size_t count,
		      struct memory *memory)
{
	static const struct pindown_key key = {.owner = 1};
	int result = PINDOWN_OK;

	for (size_t i = 0; i < count && result == PINDOWN_OK; i++) {
		result = pindown.attach_region(consumer, region[i], list[i].addr, list[i].length, 0,
					       &key, NULL, &memory->object[i]);
		memory->count += result == PINDOWN_OK;
	}
	if (result != PINDOWN_OK)
		deregister_mem(memory);
	return result;
}

/* At most MOST descriptors. *failed: the one that could not be registered. */
static int register_mem(const struct pindown_range *list, size_t count, struct memory *memory,
			size_t *failed)
{
	pindown_region *region[MOST];
	int result;

	*memory = (struct memory){0};
	if (!consumer) {
		registered += count;
		left += count;
		memory->count = count;
		return PINDOWN_OK;
	}
	result = pindown.getv(list, count, 0, region, failed);
	if (result != PINDOWN_OK)
		return result;
	result = attach_all(region, list, count, memory);
	pindown.putv(region, count);
	return result;
}

static int post_transfer(const struct memory *memory, size_t which)
{
	return !consumer || pindown.object_is_live(memory->object[which]) ? 0 : -1;
}

/* ---- a program that uses it ------------------------------------------------------------------ */

int main(void)
{
	static const struct pindown_consumer ops = {
		.name = "nixl", .create = create, .destroy = destroy};
	struct pindown_range list[MOST];
	struct memory memory;
	CUdeviceptr block[2];
	CUcontext context;
	size_t failed = 0;

	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
	    cuMemAlloc(&block[0], 1 << 20) || cuMemAlloc(&block[1], 1 << 20))
		return 1;
	if (pindown_dl_load(&pindown))
		consumer = pindown.consumer_add(&ops, sizeof(ops));
	for (size_t i = 0; i < MOST; i++) /* tensors in two allocations */
		list[i] = (struct pindown_range){block[i / 4] + (i << 16), 4096};
	if (consumer) {
		list[5].length = 1 << 21; /* one is too long */
		printf("a list with a fault: %s\n",
		       pindown.strerror(register_mem(list, MOST, &memory, &failed)));
		printf("descriptor %zu; registered: %u\n", failed, registered);
		list[5].length = 4096;
	}
	if (register_mem(list, MOST, &memory, &failed) != PINDOWN_OK)
		return 1;
	printf("8 descriptors: %u registrations\n", registered);
	cuMemFree(block[1]); /* under its descriptors */
	printf("transfers: %s, %s\n", post_transfer(&memory, 0) ? "refused" : "posted",
	       post_transfer(&memory, 4) ? "refused" : "posted");
	deregister_mem(&memory);
	cuMemFree(block[0]);
	printf("left: %u\n", left);
	return 0;
}
