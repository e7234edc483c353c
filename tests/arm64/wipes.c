/* SPDX-License-Identifier: MIT */
/*
 * Does this system zero pages in children (MADV_WIPEONFORK)? Status 0: it does, or it says that it
 * can't. 1: it says that it does, and does not, as QEMU's user mode before version 8.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

int main(void)
{
	size_t bytes = 1 << 16;
	volatile char *page =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status = 1;
	pid_t child;

	if (page == MAP_FAILED || madvise((void *)page, bytes, MADV_WIPEONFORK) != 0)
		return 0;
	*page = 1;
	child = fork();
	if (child == 0)
		_exit(*page);
	return waitpid(child, &status, 0) != child || status != 0;
}
