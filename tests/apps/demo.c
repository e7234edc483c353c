// SPDX-License-Identifier: MIT
/*
 * The program of make demo and of docs/manual/investigation.md: ordinary CUDA and verbs. It sends a
 * buffer of GPU memory ("hello") over a network card to itself, frees the buffer, allocates another
 * one, and sends that ("goodbye"). It prints one fact a line, as "what: value".
 *
 * Registering memory for a card is slow. So its transport keeps each registration and finds it
 * again by address, as transport libraries do. Nobody tells the transport of a free: that is the
 * fault, and with the argument "fixed" the program tells it. The document names lines.
 *
 *	demo dmabuf|reg_mr [fixed]
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hook/cuda/abi.h"

enum { MIB = 1 << 20, SIZE = 64 * MIB, MESSAGE = 32, MAX_REGISTRATIONS = 8 };

static bool by_dmabuf, fixed;

static void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "demo: %s failed\n", what);
	exit(1);
}

/* ---- the card: a connection of one queue pair to itself ------------------------------------- */

static struct {
	struct ibv_context *device;
	struct ibv_pd *domain;
	struct ibv_cq *completions;
	struct ibv_qp *pair;
	struct ibv_mr *inbox_registration;
} card;
static char inbox[MESSAGE]; /* the card writes here what was sent */

static void connect_pair_to_itself(uint16_t lid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = card.pair->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = lid, .port_num = 1},
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int to_receive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int to_send = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

	must(ibv_modify_qp(card.pair, &attr, to_init) == 0, "ibv_modify_qp to INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(card.pair, &attr, to_receive) == 0, "ibv_modify_qp to RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(card.pair, &attr, to_send) == 0, "ibv_modify_qp to RTS");
}

static void open_card(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_port_attr port;

	must(devices && devices[0], "ibv_get_device_list");
	card.device = ibv_open_device(devices[0]);
	must(card.device && ibv_query_port(card.device, 1, &port) == 0, "ibv_open_device");
	printf("card: %s\n", ibv_get_device_name(devices[0]));
	ibv_free_device_list(devices);
	card.domain = ibv_alloc_pd(card.device);
	card.completions = ibv_create_cq(card.device, 16, NULL, NULL, 0);
	must(card.domain && card.completions, "ibv_create_cq");
	card.inbox_registration = ibv_reg_mr(card.domain, inbox, sizeof(inbox),
					     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	init.send_cq = init.recv_cq = card.completions;
	card.pair = ibv_create_qp(card.domain, &init);
	must(card.inbox_registration && card.pair, "ibv_create_qp");
	connect_pair_to_itself(port.lid);
}

/* The card reads the message through the registration, and writes it into the inbox. */
static enum ibv_wc_status card_sends(CUdeviceptr message, const struct ibv_mr *registration)
{
	struct ibv_sge from = {message, MESSAGE, registration->lkey};
	struct ibv_send_wr *bad,
		work = {
			.sg_list = &from,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)inbox, card.inbox_registration->rkey},
		};
	struct ibv_wc done;
	int count;

	memset(inbox, 0, sizeof(inbox));
	must(ibv_post_send(card.pair, &work, &bad) == 0, "ibv_post_send");
	do
		count = ibv_poll_cq(card.completions, 1, &done);
	while (count == 0);
	must(count == 1, "ibv_poll_cq");
	return done.status;
}

static bool is_connected(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(ibv_query_qp(card.pair, &attr, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
	return attr.qp_state == IBV_QPS_RTS;
}

static void close_card(void)
{
	must(ibv_destroy_qp(card.pair) == 0, "ibv_destroy_qp");
	must(ibv_dereg_mr(card.inbox_registration) == 0, "ibv_dereg_mr of the inbox");
	must(ibv_destroy_cq(card.completions) == 0, "ibv_destroy_cq");
	must(ibv_dealloc_pd(card.domain) == 0, "ibv_dealloc_pd");
	must(ibv_close_device(card.device) == 0, "ibv_close_device");
}

/* ---- the transport, with its registrations -------------------------------------------------- */

static struct registration {
	CUdeviceptr at;
	size_t size;
	struct ibv_mr *mr;
} registrations[MAX_REGISTRATIONS];
static unsigned registered;

static struct ibv_mr *register_memory(CUdeviceptr at, size_t size)
{
	struct ibv_mr *mr;
	int fd;

	if (!by_dmabuf)
		return ibv_reg_mr(card.domain, (void *)(uintptr_t)at, size, IBV_ACCESS_LOCAL_WRITE);
	must(cuMemGetHandleForAddressRange(&fd, at, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) ==
		     CUDA_SUCCESS,
	     "cuMemGetHandleForAddressRange (the export of GPU memory as a dma-buf)");
	mr = ibv_reg_dmabuf_mr(card.domain, 0, size, at, fd, IBV_ACCESS_LOCAL_WRITE);
	close(fd); /* the registration holds the memory */
	return mr;
}

static struct registration *find_registration(CUdeviceptr at, size_t size)
{
	for (unsigned i = 0; i < registered; i++)
		if (registrations[i].at == at && size <= registrations[i].size)
			return &registrations[i];
	return NULL;
}

static void transport_send(const char *which, CUdeviceptr at, size_t size)
{
	struct registration *known = find_registration(at, size);
	enum ibv_wc_status status;

	printf("%s send: %s\n", which, known ? "found in the cache" : "registered now");
	if (!known) {
		must(registered < MAX_REGISTRATIONS, "the transport's cache");
		known = &registrations[registered++];
		*known = (struct registration){at, size, register_memory(at, size)};
		must(known->mr, by_dmabuf ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr");
	}
	status = card_sends(at, known->mr);
	printf("%s status: %s\n", which, ibv_wc_status_str(status));
	printf("%s arrived: %.31s\n", which, status == IBV_WC_SUCCESS ? inbox : "nothing");
}

/* What a transport must be told, and is not: the memory ends. */
static void transport_forget(CUdeviceptr at)
{
	for (unsigned i = registered; i-- > 0;)
		if (registrations[i].at == at) {
			must(ibv_dereg_mr(registrations[i].mr) == 0, "ibv_dereg_mr");
			registrations[i] = registrations[--registered];
		}
}

static void transport_close(void)
{
	while (registered > 0)
		must(ibv_dereg_mr(registrations[--registered].mr) == 0, "ibv_dereg_mr");
}

/* ---- the application ------------------------------------------------------------------------ */

static void open_gpu(void)
{
	char name[128] = "";
	CUcontext context;
	CUdevice device;

	must(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
		     cuDeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS &&
		     cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
		     cuCtxSetCurrent(context) == CUDA_SUCCESS,
	     "the start of CUDA");
	printf("gpu: %s\n", name);
}

static CUdeviceptr allocate_with(const char *text)
{
	char message[MESSAGE] = "";
	CUdeviceptr buffer;

	memcpy(message, text, strlen(text));
	must(cuMemAlloc_v2(&buffer, SIZE) == CUDA_SUCCESS, "cuMemAlloc");
	must(cuMemcpyHtoD_v2(buffer, message, MESSAGE) == CUDA_SUCCESS &&
		     cuCtxSynchronize() == CUDA_SUCCESS,
	     "cuMemcpyHtoD");
	return buffer;
}

static size_t free_memory(void)
{
	size_t available = 0, total;

	must(cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS, "cuMemGetInfo");
	return available;
}

static void free_buffer(CUdeviceptr buffer)
{
	if (fixed)
		transport_forget(buffer);
	must(cuMemFree_v2(buffer) == CUDA_SUCCESS, "cuMemFree");
}

int main(int argc, char **argv)
{
	CUdeviceptr first, second;
	size_t before;

	by_dmabuf = argc > 1 && strcmp(argv[1], "dmabuf") == 0;
	fixed = argc > 2 && strcmp(argv[2], "fixed") == 0;
	if (!by_dmabuf && (argc < 2 || strcmp(argv[1], "reg_mr") != 0)) {
		fprintf(stderr, "usage: demo dmabuf|reg_mr [fixed]\n");
		return 2;
	}
	open_gpu();
	open_card();

	first = allocate_with("hello");
	transport_send("first", first, SIZE);
	transport_send("repeated", first, SIZE);
	before = free_memory();
	free_buffer(first);
	printf("memory back: %zu of %u MiB\n", (free_memory() - before) / MIB, SIZE / MIB);

	second = allocate_with("goodbye");
	printf("address: %s\n", second == first ? "the same" : "another");
	transport_send("second", second, SIZE);
	printf("connection: %s\n", is_connected() ? "up" : "lost");

	free_buffer(second);
	transport_close();
	close_card();
	cuDevicePrimaryCtxRelease_v2(0);
	return 0;
}
