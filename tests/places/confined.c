/* SPDX-License-Identifier: MIT */
/*
 * confined docker|podman refuse|kill PROGRAM ARGUMENT...: runs the program under the filter for
 * system calls that this engine sets for a container without additional capabilities. What the
 * filter does not allow fails as it does there, or kills the process.
 *
 * docker.names and podman.names have what the engines' default profiles allow on x86-64 whatever
 * the arguments are: those of moby/profiles of June 2026, and of containers-common in Debian 12.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned docker[] = {
#include "docker.h"
};
static const unsigned podman[] = {
#include "podman.h"
};

/* What no container may make without CAP_SYS_ADMIN. */
#define NAMESPACES                                                                     \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

static struct sock_filter code[2048];
static unsigned short length;

static void add(unsigned short what, unsigned value, unsigned char yes, unsigned char no)
{
	code[length++] = (struct sock_filter){.code = what, .jt = yes, .jf = no, .k = value};
}

static void load(size_t offset)
{
	add(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

static void answer(unsigned number, unsigned with)
{
	add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
	add(BPF_RET | BPF_K, with, 0, 0);
}

/* A call with an argument: the low half is enough for these. Leaves the number loaded again. */
static void allow_if(unsigned number, unsigned test, unsigned value, bool holds)
{
	add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
	load(offsetof(struct seccomp_data, args));
	add((unsigned short)(BPF_JMP | BPF_K | test), value, holds ? 0 : 1, holds ? 1 : 0);
	add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	load(offsetof(struct seccomp_data, nr));
}

#if defined(__aarch64__)
#define OUR_CALLS AUDIT_ARCH_AARCH64
#else
#define OUR_CALLS AUDIT_ARCH_X86_64
#endif

static void build(const unsigned *allowed, size_t count, bool is_docker, unsigned otherwise)
{
	load(offsetof(struct seccomp_data, arch));
	add(BPF_JMP | BPF_JEQ | BPF_K, OUR_CALLS, 1, 0);
	add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	load(offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < count; i++)
		answer(allowed[i], SECCOMP_RET_ALLOW);
	if (is_docker) {
		answer(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
		allow_if(SYS_clone, BPF_JSET, NAMESPACES, false);
	}
	allow_if(SYS_socket, BPF_JGE, AF_ALG, false);
	allow_if(SYS_socket, BPF_JEQ, AF_NFC, true);
	allow_if(SYS_socket, BPF_JGT, AF_VSOCK, true);
	allow_if(SYS_personality, BPF_JEQ, 0, true);
	allow_if(SYS_personality, BPF_JEQ, 0xffffffff, true);
	add(BPF_RET | BPF_K, otherwise, 0, 0);
}

int main(int argc, char **argv)
{
	struct sock_fprog filter = {.filter = code};
	bool is_docker, kills;

	if (argc < 4)
		return 2;
	is_docker = strcmp(argv[1], "docker") == 0;
	kills = strcmp(argv[2], "kill") == 0;
	if (is_docker)
		build(docker, sizeof(docker) / sizeof(docker[0]), true,
		      kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM);
	else
		build(podman, sizeof(podman) / sizeof(podman[0]), false,
		      kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | ENOSYS);
	filter.len = length;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
		perror("confined");
		return 3;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 127;
}
