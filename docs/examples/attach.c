/* SPDX-License-Identifier: MIT */
/*
 * A transport that registers GPU memory with its device once and uses it many times. pindown keeps
 * the registration with the pinned region, and destroys it before the memory is freed.
 *
 *	cc attach.c -lpindown -lcuda -o attach && pindown run ./attach
 */
#include <cuda.h>
#include <pindown.h>
#include <stdio.h>
#include <stdlib.h>

struct card { /* stands for a device; so does a struct ibv_pd for a network card */
	unsigned registrations;
};

/* pindown asks for a registration that it doesn't have yet: here, of the region's dma-buf. */
static int do_register(const struct pindown_object_request *what, void **data, void *arg)
{
	struct card *card = (struct card *)(uintptr_t)what->key.owner;
	uint64_t base = pindown_region_base(what->region), offset;
	int fd, result = pindown_region_dmabuf(what->region, base, &fd, &offset);

	if (result != PINDOWN_OK)
		return result; /* which is then the result of pindown_attach() */
	/*
	 * ibv_reg_dmabuf_mr(pd, offset, length, base, fd, access) would be here. It holds the
	 * memory; pindown closes the descriptor when this function returns.
	 */
	*data = malloc(1);
	printf("registered, %u in all\n", ++card->registrations);
	return *data ? 0 : 12; /* an error of our own: then PINDOWN_CREATE_FAILED(12) is */
}

/* Its memory is about to be freed, or its place is needed. */
static int do_deregister(const struct pindown_object_end *what, void *arg)
{
	struct card *card = (struct card *)(uintptr_t)what->key.owner;

	free(what->data);
	printf("deregistered, %u are left\n", --card->registrations);
	return 0;
}

static int transfer(int consumer, struct card *card, CUdeviceptr address, size_t length)
{
	const struct pindown_key key = {.owner = (uintptr_t)card, .word = {0 /* access flags */}};
	pindown_object *object;
	int result = pindown_attach(consumer, address, length, 0, &key, NULL, &object);

	if (result != 0)
		return result;
	/*
	 * pindown_object_data(object) is the registration: a few nanoseconds after the first time.
	 */
	pindown_detach(object);
	return 0;
}

int main(void)
{
	static const struct pindown_consumer ours = {
		.name = "example", .create = do_register, .destroy = do_deregister};
	int consumer = pindown_consumer_add(&ours, sizeof(ours)), result = 0;
	struct card card = {0};
	CUdevice device;
	CUcontext context;
	CUdeviceptr memory;

	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
	    cuCtxSetCurrent(context) || cuMemAlloc(&memory, 1 << 20))
		return 1;
	for (int i = 0; i < 1000 && result == 0; i++)
		result = transfer(consumer, &card, memory + i, 100);
	printf("1000 transfers: %s\n", pindown_strerror(result));
	cuMemFree(memory);
	pindown_end_owner(consumer, (uintptr_t)&card); /* before the card is closed */
	return result != 0;
}
