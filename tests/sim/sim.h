/* SPDX-License-Identifier: MIT */
/*
 * The simulated CUDA driver, for tests: its functions and options beyond CUDA.
 *
 * Tests reach these functions with dlsym(handle of libcuda.so.1, "sim_..."), or by linking with it.
 * None of them is a driver call: they may be called at any time, from any thread, before cuInit and
 * in a forked child too, and are not counted by sim_calls().
 *
 * Environment, read when the library is loaded; a bad value is reported in one line and ignored:
 *
 *   SIM_PLATFORM=NAME      what docs/manual/platforms.md says of it; each variable below counts for
 *                          more. grace-hopper: coherent, without the PCIe mapping; grace-blackwell:
 *                          coherent, with it; mig: one device; vgpu: devices
 *                          say that they have no dma-bufs and no GPUDirect RDMA; cc: they say that
 *                          they have dma-bufs, and refuse each export
 *   SIM_DEVICES=2          number of devices, 0 to 16
 *   SIM_MEMORY=8G          bytes of each device; only written pages use memory of the host
 *   SIM_ADDRESSES=1T       device addresses for memory, from 16G, which are the host's, too; half
 *                          of them are for the program's reservations, which have 64T more
 *   SIM_LOST_HINTS=0       so many reservations (cuMemAddressReserve) at free addresses land
 *                          elsewhere, as if another thread had been faster to take the place; the
 *                          place is still free then. 1T: in practice all
 *   SIM_PIN_BYTES=N        pin space of each device: an export that would go above it fails with
 *                          CUDA_ERROR_OUT_OF_MEMORY. Closing descriptors (all duplicates, in all
 *                          processes, and mappings of them) frees space again
 *   SIM_OVERLAPS=          allowed: answer also about memory that is inside a free of another
 *                          thread. Else such a call aborts the process, see overlap.h.
 *   SIM_EXPORT_CLOEXEC=1   0: exported descriptors are not close-on-exec
 *   SIM_EXPORT_PCIE=0      1: exports with CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE work.
 *                          0: they fail with CUDA_ERROR_NOT_SUPPORTED, as on x86; 2: with
 *                          CUDA_ERROR_INVALID_VALUE, as by drivers that don't know the flag
 *   SIM_EXPORT_DEFAULT=1   0: exports without this flag fail with CUDA_ERROR_NOT_SUPPORTED
 *   SIM_COHERENT=0         1: devices say that they use the host's page tables, as on Grace
 *   SIM_RDMA_FLAG=0        what gpuDirectRDMACapable means to cuMemCreate. 0: nothing, as on an
 *                          H200; 1: memory without it can't be exported; 2: the driver refuses it
 *                          with CUDA_ERROR_NOT_SUPPORTED; 3: the same, and the device says so
 *   SIM_RDMA_PAGE=2M       the granularity of memory with this flag, a multiple of 2 MiB
 *   SIM_DRIVER_VERSION=13000   what the driver reports, and the attributes that it knows
 *   SIM_CHECKPOINT=0       1: other processes can make checkpoints of this one, as of a real
 *                          driver's: cuInit starts the thread that does the work (checkpoint.c)
 *   SIM_FAIL=RULE,...      NAME:N, NAME:N-M, NAME:N-, NAME:* and optionally =ERROR (a name or a
 *                          number, default CUDA_ERROR_UNKNOWN): these calls of the exported symbol
 *                          NAME fail and have no effect
 *   SIM_DELAY=RULE,...     NAME:MICROSECONDS and optionally :before (the effect, the default),
 *                          :held (after the effect, API lock still held) or :after (the effect)
 *   SIM_LOG=FILE           one line for each call: thread, symbol, result. "-": standard error
 *
 * Calls that the driver makes to itself are neither counted nor made to fail.
 *
 * An exported dma-buf descriptor is a regular file's. It can be read, written and mapped. Its file
 * position is where the exported range begins:
 *
 *   int64_t at = sim_dmabuf_offset(fd);            or lseek(fd, 0, SEEK_CUR)
 *   mmap(NULL, length, prot, MAP_SHARED, fd, at);  or pread(fd, buffer, length, at)
 *
 * It is 0 by chance only. Nobody moves the position, unless a test reads with read() or seeks.
 * A mapping keeps the memory as the descriptor does, also after the descriptor was closed: so does
 * an importer's attachment of a real dma-buf.
 */
#ifndef SIM_H
#define SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls of an exported symbol so far, those that failed included. UINT64_MAX: there is no such
 * symbol. */
uint64_t sim_calls(const char *symbol);
/* Of all symbols together: unchanged means that the driver was not called at all. */
uint64_t sim_calls_all(void);

/* Rules as in SIM_FAIL and SIM_DELAY; calls are counted from now. 0, or -1 and a line on stderr. */
int sim_fail(const char *rules);
int sim_delay(const char *rules);
/* Takes all rules back, also those of the environment. */
void sim_no_faults(void);

/* Exports that somebody still holds, in whatever process; and their bytes. */
unsigned sim_open_exports(int device);
uint64_t sim_open_export_bytes(int device);
/* Where an exported range begins in its descriptor's file. */
int64_t sim_dmabuf_offset(int fd);
/*
 * Was it exported with CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE? O_NONBLOCK of its file says so.
 */
int sim_dmabuf_is_pcie(int fd);
/* From now on: SIM_EXPORT_DEFAULT, SIM_EXPORT_PCIE and SIM_COHERENT. */
void sim_set_mappings(int plain, int pcie, int coherent);

/* From now on: SIM_LOST_HINTS. */
void sim_lose_hints(uint64_t count);
/* Is all of it in one reservation? */
int sim_is_reserved(unsigned long long addr, uint64_t size);

/* Device memory that can't be handed out: allocated, or kept (freed, but still exported). */
uint64_t sim_used_bytes(int device);
uint64_t sim_kept_bytes(int device);
/* Allocations of every kind. */
uint64_t sim_live_allocations(void);

/* cuMemFree on a road that no interposer can watch. Returns what that does. */
int sim_free_unseen(unsigned long long address);
/* And cuMemUnmap. */
int sim_unmap_unseen(unsigned long long address, unsigned long long size);

#ifdef __cplusplus
}
#endif
#endif
