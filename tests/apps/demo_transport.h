/* SPDX-License-Identifier: MIT */
/*
 * The demo's transport: a library that sends GPU memory through a network card, as an RDMA stack
 * does. The program that uses it knows as little of registrations as a program that calls MPI.
 */
#ifndef DEMO_TRANSPORT_H
#define DEMO_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "hook/cuda/abi.h"

struct demo_sent {
	bool from_cache;      /* true: an earlier registration was used; false: a new one */
	bool right_memory;    /* the registration is of the memory that is now at this address */
	bool readable;	      /* `first_bytes` could be read through the registration */
	char first_bytes[32]; /* the bytes that the card has sent */
};

/* Sends `size` bytes at `at`. On failure it prints a line and returns false. */
bool demo_send(CUdeviceptr at, size_t size, struct demo_sent *sent);

/* Drops all registrations that the transport itself still keeps. */
void demo_close(void);

#endif
