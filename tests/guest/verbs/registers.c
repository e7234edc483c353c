// SPDX-License-Identifier: MIT
/*
 * registers DEVICE TIMES: a program that registers the same buffers of host memory again and again,
 * as some do for each message, and prints the results. It knows nothing of pindown.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE	65536
#define AT_ONCE 200
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static char in_the_program[SIZE];

static struct ibv_pd *open_pd(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (struct ibv_device **device = list; list && *device; device++) {
		if (!strcmp(ibv_get_device_name(*device), name))
			context = ibv_open_device(*device);
	}
	return context ? ibv_alloc_pd(context) : NULL;
}

static bool is_of(const struct ibv_mr *mr, const struct ibv_pd *pd, const void *at, size_t length)
{
	return mr->addr == at && mr->length == length && mr->pd == pd &&
	       mr->context == pd->context && mr->lkey && mr->rkey;
}

/* The number of correct registrations, each deregistered before the next one. */
static unsigned again_and_again(struct ibv_pd *pd, char *buffer, unsigned times)
{
	unsigned good = 0;

	for (unsigned i = 0; i < times; i++) {
		size_t length = SIZE - i % 4096;
		struct ibv_mr *mr = ibv_reg_mr(pd, buffer + i % 4096, length, ACCESS);

		if (!mr)
			break;
		good += is_of(mr, pd, buffer + i % 4096, length);
		if (ibv_dereg_mr(mr))
			break;
	}
	return good;
}

/* The number of simultaneous registrations of one buffer that have a unique key. */
static unsigned at_once(struct ibv_pd *pd, char *buffer)
{
	static struct ibv_mr *mr[AT_ONCE];
	unsigned own = 0;

	for (unsigned i = 0; i < AT_ONCE; i++) {
		mr[i] = ibv_reg_mr(pd, buffer, SIZE, ACCESS);
		if (!mr[i])
			return own;
		own++;
		for (unsigned j = 0; j < i; j++) {
			if (mr[j]->lkey == mr[i]->lkey) {
				own--;
				break;
			}
		}
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		own -= ibv_dereg_mr(mr[i]) != 0;
	return own;
}

static void refused(struct ibv_pd *pd, const char *what, void *at, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, length, access);

	printf("%s: %s\n", what, mr ? "registered" : strerror(errno));
	if (mr)
		ibv_dereg_mr(mr);
}

int main(int argc, char **argv)
{
	struct ibv_pd *pd = argc > 2 ? open_pd(argv[1]) : NULL;
	char *mapped =
		mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *allocated = malloc(2 * SIZE);

	if (!pd || mapped == MAP_FAILED || !allocated) {
		fprintf(stderr, "registers: %s\n", pd ? "no memory" : "no such device");
		return 1;
	}
	printf("allocated: %u good\n", again_and_again(pd, allocated, strtoul(argv[2], NULL, 10)));
	printf("mapped: %u good\n", again_and_again(pd, mapped, strtoul(argv[2], NULL, 10)));
	printf("at once: %u keys\n", at_once(pd, in_the_program));
	munmap(mapped, 2 * SIZE);
	refused(pd, "memory that is gone", mapped, SIZE, ACCESS);
	refused(pd, "remote without local access", allocated, SIZE, IBV_ACCESS_REMOTE_WRITE);
	refused(pd, "nothing", allocated, 0, ACCESS);
	refused(pd, "page faults by the device", allocated, SIZE, ACCESS | IBV_ACCESS_ON_DEMAND);
	refused(pd, "relaxed ordering", allocated, SIZE, ACCESS | IBV_ACCESS_RELAXED_ORDERING);
	refused(pd, "from address 0 on", allocated, SIZE, ACCESS | IBV_ACCESS_ZERO_BASED);
	printf("end of the domain: %d\n", ibv_dealloc_pd(pd));
	return 0;
}
