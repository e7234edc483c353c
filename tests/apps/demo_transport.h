/* SPDX-License-Identifier: MIT */
/*
 * The demo's transport: a library that sends GPU memory through a network card, as an RDMA stack
 * does. The program that uses it knows of registrations no more than any program that calls MPI.
 */
#ifndef DEMO_TRANSPORT_H
#define DEMO_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "hook/cuda/abi.h"

struct demo_sent {
	bool from_cache; /* an earlier registration served; false: the memory was registered now */
	bool right_memory;    /* the registration is of the memory that is now at this address */
	bool readable;	      /* `first_bytes` could be read through the registration */
	char first_bytes[32]; /* what the card put on the wire */
};

/* Sends `size` bytes at `at`. False, and a line on standard error, when that fails. */
bool demo_send(CUdeviceptr at, size_t size, struct demo_sent *sent);

/* Gives up every registration that the transport itself still keeps. */
void demo_close(void);

#endif
