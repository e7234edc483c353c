/* SPDX-License-Identifier: MIT */
/*
 * A libibverbs.so.1 for check-try, in front of the software card's (NASTY_REAL), with faults that
 * the software card does not have. NASTY says which:
 *
 *	errno=N   ibv_reg_dmabuf_mr fails with this errno
 *	hang      transfers never complete once a dma-buf was registered
 *	crash     the registration of a dma-buf crashes
 *	exit      the registration of a dma-buf ends the process
 *	corrupt   a read brings bytes of another place
 *	down      the port is not active
 *	norc      there are no RC queue pairs
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port

static const char *nasty(void)
{
	const char *fault = getenv("NASTY");

	return fault ? fault : "";
}

void *nasty_real(const char *name);

/* The software card's function of that name. */
void *nasty_real(const char *name)
{
	static void *library;
	void *found;

	if (!library)
		library = dlopen(getenv("NASTY_REAL"), RTLD_NOW);
	found = library ? dlsym(library, name) : NULL;
	if (!found)
		abort();
	return found;
}

static bool has_dmabuf;
static int (*real_post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (strcmp(nasty(), "hang") == 0 && has_dmabuf)
		return 0;
	if (strcmp(nasty(), "corrupt") == 0 && wr->opcode == IBV_WR_RDMA_READ)
		wr->wr.rdma.remote_addr += 4096;
	return real_post(qp, wr, bad);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*call)(struct ibv_device *), *context;

	*(void **)&call = nasty_real("ibv_open_device");
	context = call(device);
	if (context) {
		real_post = context->ops.post_send;
		context->ops.post_send = post;
	}
	return context;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	struct ibv_mr *(*call)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);

	if (strcmp(nasty(), "crash") == 0)
		raise(SIGABRT); /* a sanitizer turns SIGSEGV into an exit */
	if (strcmp(nasty(), "exit") == 0)
		_exit(1);
	if (strncmp(nasty(), "errno=", 6) == 0) {
		errno = atoi(nasty() + 6);
		return NULL;
	}
	*(void **)&call = nasty_real("ibv_reg_dmabuf_mr");
	has_dmabuf = true;
	return call(pd, offset, length, iova, fd, access);
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	int (*call)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *), result;

	*(void **)&call = nasty_real("ibv_query_port");
	result = call(context, port, attr);
	if (!result && strcmp(nasty(), "down") == 0)
		((struct ibv_port_attr *)attr)->state = IBV_PORT_DOWN;
	return result;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *(*call)(struct ibv_pd *, struct ibv_qp_init_attr *);

	if (strcmp(nasty(), "norc") == 0 && init->qp_type == IBV_QPT_RC) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	*(void **)&call = nasty_real("ibv_create_qp");
	return call(pd, init);
}
