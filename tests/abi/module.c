/* SPDX-License-Identifier: MIT */
/*
 * pindown.ko of some release, for a program that it is preloaded into: /dev/pindown as that
 * release's kmod/pindown_ioctl.h describes it, which this file is compiled with. It takes a
 * caller's structures as the module does (pdn_ioctl() in kmod/ioctl.c), and pins whatever it is
 * asked to. At the end of a program that has opened it, MODULE_LOG has a line: "pins N unpins N
 * refused N".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "kmod/pindown_ioctl.h"
#include "module_area.h" /* beside this file, not in the tree of the release */

enum { GRANULARITY = 65536, MAX_ARGUMENT = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned pins, unpins, refused;

static int call_version(struct pindown_version *arg)
{
	if (arg->flags)
		return EINVAL;
	arg->abi = PINDOWN_ABI;
	arg->granularity = GRANULARITY;
	arg->capabilities = PINDOWN_CAP_CALLBACK | PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_STATE;
	arg->max_regions = AREA_REGIONS - 1;
	arg->state_length = AREA_LENGTH;
	return 0;
}

static int call_pin(struct pindown_pin *arg)
{
	const uint32_t known = PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_NO_RECLAIM;

	if (arg->flags & ~known || arg->reserved || !arg->length ||
	    (arg->address | arg->length) % GRANULARITY)
		return EINVAL;
	if (!area_pin(arg))
		return EMFILE;
	pins++;
	arg->page_size = GRANULARITY;
	arg->page_count = (uint32_t)(arg->length / GRANULARITY);
	return 0;
}

static int call_unpin(struct pindown_unpin *arg)
{
	if (arg->flags)
		return EINVAL;
	if (!area_unpin(arg->region))
		return ENOENT;
	unpins++;
	arg->state = PINDOWN_REGION_LIVE;
	arg->importers = 0;
	return 0;
}

/* A caller may pass a larger structure: the bytes behind ours must be zero. */
static bool is_understood(const uint32_t *from, size_t own)
{
	for (size_t i = own; i < *from; i++)
		if (((const char *)from)[i])
			return false;
	return true;
}

static int answer(unsigned long request, uint32_t *user)
{
	union {
		uint32_t size;
		struct pindown_version version;
		struct pindown_pin pin;
		struct pindown_unpin unpin;
	} arg;
	size_t own;
	int error;

	switch (_IOC_NR(request)) {
	case _IOC_NR(PINDOWN_IOC_VERSION):
		own = sizeof(arg.version);
		break;
	case _IOC_NR(PINDOWN_IOC_PIN):
		own = sizeof(arg.pin);
		break;
	case _IOC_NR(PINDOWN_IOC_UNPIN):
		own = sizeof(arg.unpin);
		break;
	default:
		return ENOTTY;
	}
	if (*user < own)
		return EINVAL;
	if (*user > MAX_ARGUMENT || !is_understood(user, own))
		return E2BIG;
	memcpy(&arg, user, own);
	if (_IOC_NR(request) == _IOC_NR(PINDOWN_IOC_VERSION))
		error = call_version(&arg.version);
	else if (_IOC_NR(request) == _IOC_NR(PINDOWN_IOC_PIN))
		error = call_pin(&arg.pin);
	else
		error = call_unpin(&arg.unpin);
	if (!error)
		memcpy(user, &arg, own);
	return error;
}

static int locked_answer(unsigned long request, uint32_t *user)
{
	int error;

	pthread_mutex_lock(&lock);
	error = answer(request, user);
	refused += error != 0;
	pthread_mutex_unlock(&lock);
	return error;
}

/* ---- the way in ------------------------------------------------------------------------------ */

/* Libraries make system calls of their own: a filter leads them here. It lets this cookie pass. */
enum { COOKIE = 0x70646e };

static long open_file(long folder, const char *path, long flags, long mode)
{
	if (strcmp(path, PINDOWN_DEVICE) == 0)
		return area_open();
	folder = syscall(SYS_openat, folder, path, flags, mode, (long)COOKIE);
	return folder < 0 ? -errno : folder;
}

static long call(long number, const long a[4])
{
	return number == SYS_openat ? open_file(a[0], (const char *)a[1], a[2], a[3])
				    : -locked_answer((unsigned long)a[1], (uint32_t *)a[2]);
}

static void caught(int signal, siginfo_t *info, void *context)
{
	mcontext_t *at = &((ucontext_t *)context)->uc_mcontext;
	int saved = errno;

	(void)signal;
#if defined(__x86_64__)
	const long a[] = {at->gregs[REG_RDI], at->gregs[REG_RSI], at->gregs[REG_RDX],
			  at->gregs[REG_R10]};

	at->gregs[REG_RAX] = call(info->si_syscall, a);
#else
	at->regs[0] = (unsigned long)call(info->si_syscall, (const long *)at->regs);
#endif
	errno = saved;
}

#define LOAD(member)	     BPF_STMT(BPF_LD | BPF_ABS, offsetof(struct seccomp_data, member))
#define ELSE_TO(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)

__attribute__((constructor)) static void catch_calls(void)
{
	struct sock_filter filter[] = {
		LOAD(nr),
		ELSE_TO(SYS_openat, 4),
		LOAD(args[4]),
		ELSE_TO(COOKIE, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		ELSE_TO(SYS_ioctl, 4),
		LOAD(args[1]),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00),
		ELSE_TO(PINDOWN_IOC_TYPE << 8, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_NODEFER};

	if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		abort();
}

__attribute__((destructor)) static void say(void)
{
	const char *path = getenv("MODULE_LOG");
	FILE *log = area && path ? fopen(path, "w") : NULL;

	if (log) {
		fprintf(log, "pins %u unpins %u refused %u\n", pins, unpins, refused);
		fclose(log);
	}
}
