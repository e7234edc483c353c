/* SPDX-License-Identifier: MIT */
/*
 * Questions to a CUDA driver. Each answer is one line without addresses or ids, so that the answers
 * of two drivers can be compared: facts.txt beside this file has those of a real GPU, and the
 * simulated driver must give the same.
 *
 * Each group of questions runs in a process of its own, with the driver not initialised.
 */
#ifndef FACTS_H
#define FACTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "hook/cuda/abi.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

/* "QUESTION = CUDA_SUCCESS": the result of a call. */
void answer(const char *question, CUresult result);
#define ASK(call)	      answer(#call, call)
#define ASK_ABOUT(what, call) answer(what, call)
/* "QUESTION = TEXT" */
void say(const char *question, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A call that must succeed for the following questions; ends the group otherwise. */
void need(const char *what, CUresult result);
#define NEED(call) need(#call, call)

/* cuInit and the primary context of device 0, current. */
CUcontext begin(void);

/* The driver's attributes of a pointer: the value of each in words, or its error. */
void describe(const char *what, CUdeviceptr ptr);
uint64_t id_of(CUdeviceptr ptr);
CUresult export_range(CUdeviceptr ptr, uint64_t size);
/* Free device memory, in MiB. */
long free_mib(void);

/* The groups. */
void facts_start(void);
void facts_linear(void);
void facts_export(void);
void facts_kinds(void);
void facts_host(void);
void facts_contexts(void);
void facts_primary(void);
void facts_green(void);
void facts_pools(void);
void facts_pool_exports(void);
void facts_vmm(void);
void facts_graphs(void);
void facts_capture(void);
void facts_modules(void);
void facts_lookup(void);
void facts_ipc(void);
void facts_old(void);
void facts_exit(void);
void facts_fork(void);
void facts_reserved(void);
void facts_reserved_chunks(void);
void facts_reserved_ends(void);
void facts_reserved_capture(void);
void facts_reserved_restore(void);

#endif
