/* SPDX-License-Identifier: MIT */
/* The transport of halo.c: a transfer is under way from transport_send() to transport_wait(). */
#ifndef HALO_TRANSPORT_H
#define HALO_TRANSPORT_H

#include <stddef.h>

#include "hook/cuda/abi.h"

struct transfer;

/* NULL, after a line on standard error, when the memory can't be registered. */
struct transfer *transport_send(CUdeviceptr at, size_t size);
void transport_wait(struct transfer *transfer);

#endif
