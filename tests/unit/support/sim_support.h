/* SPDX-License-Identifier: MIT */
/*
 * For the tests of the simulated driver. Each test runs in a process of its own and loads the
 * library itself, so that it can set the environment variables of the simulation first.
 */
#ifndef SIM_SUPPORT_H
#define SIM_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "hook/cuda/abi.h"
#include "tests/sim/sim.h"
#include "tests/unit/support/suite.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

/* A function of the library, with its type: cu(cuMemFree_v2)(ptr). */
#define cu(name) ((__typeof__(&name))sim_symbol(#name))
void *sim_symbol(const char *name);
void *sim_library(void);

#define ok(call)	    ck_assert_int_eq(call, CUDA_SUCCESS)
#define refused(call, with) ck_assert_int_eq(call, with)

/* Calls cuInit and makes the primary context of device 0 current. */
CUcontext start(void);
CUdeviceptr allocate(uint64_t size);
uint64_t id_of(CUdeviceptr ptr); /* 0: there is none */
int export_of(CUdeviceptr ptr, uint64_t size);
CUresult try_export(CUdeviceptr ptr, uint64_t size);
CUresult set_sync_memops(CUdeviceptr ptr);
uint64_t free_bytes(void);
/* The byte at an offset of an exported range. */
int byte_of(int fd, uint64_t offset);

#endif
