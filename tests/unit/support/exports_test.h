/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the program's own dma-bufs share. A file of the test's own plays the dma-buf of
 * each export; the memory is the scripted driver's.
 */
#ifndef EXPORTS_TEST_H
#define EXPORTS_TEST_H

#include "cache/dmabuf/foreign_dmabufs.h"
#include "tests/unit/support/cache_test.h"

#define SIZE MIB(2)

int a_file(void);
void export_as(int fd, uint64_t addr, uint64_t size);

/* Allocates, and exports all of it. */
int export_new(uint64_t addr);

bool is_known(int fd, uint64_t offset, uint64_t length);
bool any_remembered(void);

/* The first byte of the descriptor is at this address, which lies in this allocation. */
void assert_stands_for(int fd, uint64_t addr, uint64_t base);

#endif
