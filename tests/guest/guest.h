/* SPDX-License-Identifier: MIT */
/*
 * Declarations for all test programs of the guest: tests, checks, and the devices' calls.
 *
 * A program's tests run one after another, each in a child of its own: everything that it leaves
 * open ends with it. After each test, the GPU driver's counts must have their old values, and it
 * must not have been misused.
 */
#ifndef GUEST_H
#define GUEST_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edu_peer.h"
#include "pindown_ioctl.h"
#include "sim_gpu.h"
#include "tests/unit/support/patience.h"

#define PAGE SIM_GPU_PAGE
/* A page of the CPU: 4 KiB, or on arm64 also 16 or 64. */
#define CPU_PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define KIB	 1024ull
#define MIB	 (1024 * KIB)

/* ---- tests ---- */

struct test {
	const char *name;
	void (*run)(void);
	unsigned seconds; /* it is killed after this time */
	struct test *next;
};
void test_add(struct test *test);

/* TEST(name) { ... }, or TEST(name, .seconds = 60) { ... } */
#define TEST(name_, ...)                                                                 \
	static void name_(void);                                                         \
	static struct test test_##name_ = {.name = #name_, .run = name_, ##__VA_ARGS__}; \
	__attribute__((constructor)) static void add_##name_(void)                       \
	{                                                                                \
		test_add(&test_##name_);                                                 \
	}                                                                                \
	static void name_(void)

/*
 * The factor by which this kernel is slower than the stock kernel: 1, or more if it checks itself.
 */
unsigned slowness(void);

/* Ends the test. */
#define fail(...) test_failed(__FILE__, __LINE__, __VA_ARGS__)
__attribute__((noreturn, format(printf, 3, 4))) void test_failed(const char *file, int line,
								 const char *format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void test_skipped(const char *format, ...);

#define check(what)                                \
	do {                                       \
		if (!(what))                       \
			fail("not so: %s", #what); \
	} while (0)

#define check_equal(is_, should_)                                                             \
	do {                                                                                  \
		unsigned long long is = (unsigned long long)(is_);                            \
		unsigned long long should = (unsigned long long)(should_);                    \
		if (is != should)                                                             \
			fail("%s is %lld (%#llx), not %lld (%#llx)", #is_, (long long)is, is, \
			     (long long)should, should);                                      \
	} while (0)

/*
 * Waits until another process or the kernel has made the condition true. Fails the test otherwise,
 * before the time limit of a test that sets none.
 */
#define wait_until(condition)                                                       \
	do {                                                                        \
		if (!becomes_true(20000000000u * slowness(), condition))            \
			fail("not in %u seconds: %s", 20 * slowness(), #condition); \
	} while (0)

/* A call that returns 0, or -1 with errno. */
#define works(call)                                             \
	do {                                                    \
		if ((call) < 0)                                 \
			fail("%s: %s", #call, strerror(errno)); \
	} while (0)

#define fails_with(call, error)                                                          \
	do {                                                                             \
		if ((call) >= 0)                                                         \
			fail("%s works, and should not", #call);                         \
		if (errno != (error))                                                    \
			fail("%s: %s, not %s", #call, strerror(errno), strerror(error)); \
	} while (0)

/* ---- the GPU: one descriptor for the process ---- */

struct memory {
	uint64_t va, size, handle, map_offset;
};

int gpu(void); /* its descriptor, opened at the first call of each process */
struct memory gpu_alloc(uint64_t size, unsigned flags);
struct memory gpu_alloc_at(uint64_t va, uint64_t size);
void gpu_free(const struct memory *memory);
/* The host's view of the memory. */
void *gpu_view(const struct memory *memory);
void gpu_fill(const struct memory *memory, uint64_t seed);
/* Is the driver NVIDIA's own nvidia.ko, with only the layer below it simulated? */
bool gpu_is_nvidias(void);
uint64_t gpu_count(enum sim_gpu_counter counter);
/* Returns when the condition is true; otherwise the test ends at its time limit. */
void gpu_wait_for(enum sim_gpu_counter counter, uint64_t value);
void gpu_set(enum sim_gpu_knob knob, unsigned value);
void gate_arm(enum sim_gpu_gate gate);
void gate_await(enum sim_gpu_gate gate);
void gate_open(enum sim_gpu_gate gate);

/* A pattern with a different value at each position; seed distinguishes buffers. */
void fill(void *at, size_t size, uint64_t seed);
/* The first difference, or size. */
size_t differs(const void *at, size_t size, uint64_t seed);

/* ---- pindown; fd: a descriptor of /dev/pindown ---- */

int pdn_open(void);
int pdn_pin(int fd, uint64_t address, uint64_t length, unsigned flags, struct pindown_pin *pin);
int pdn_unpin(int fd, unsigned region);
int pdn_export(int fd, unsigned region); /* a dma-buf, or -1 */
/* One of the module's counters, as root sees them in debugfs. */
uint64_t pdn_counter(const char *name);
/* The number at the beginning of a file in /sys. */
unsigned long number_in(const char *path);
const volatile char *pdn_state(int fd);
/* Is the region valid, by its word? */
bool pdn_valid(const volatile char *state, const struct pindown_pin *pin);
/* The same, of a process that does not keep the state area mapped. */
bool pdn_stands(int fd, const struct pindown_pin *pin);

/* A region's line in the module's list, which root sees. False: there is none. */
struct shown {
	uint64_t address, bytes;
	char mode[16], state[16];
	unsigned exports, importers;
};
bool pdn_shown(unsigned region, struct shown *shown);

/* The parameter keeps this value, also in other tests. */
void module_parameter(const char *name, const char *value);
bool kernel_says(const char *text); /* in a message of its log */

/* ---- the peer device ---- */

int peer_open(void);
int peer_import(int fd, int buffer, unsigned flags, struct edu_import *import);
int peer_move(int fd, unsigned call, unsigned id, uint64_t offset, void *data, size_t length);

/* ---- processes and threads ---- */

/* Reads (or writes) one byte. Returns 0, or the signal that the access raises. */
int touch(volatile void *at, bool write);
/* Runs a function in a child; fails the test if it fails there. */
pid_t in_child(void (*run)(void *), void *arg);
void child_ends(pid_t child);
pthread_t in_thread(void *(*run)(void *), void *arg);
void thread_ends(pthread_t thread);
void newest_thread_waits(void); /* returns when the newest thread blocks */
/* Passing a descriptor. */
void send_fd(int socket, int fd);
int receive_fd(int socket);

#endif
