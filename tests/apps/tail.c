/* SPDX-License-Identifier: MIT */
/*
 * A callback that the driver calls ends in a jump to a call of the driver: compilers make that of a
 * call in the last line. The call then returns straight into the driver.
 */
#include "app.h"

static CUresult (*volatile free_it)(CUdeviceptr) = cuMemFree_v2;

#if defined(__x86_64__)
__attribute__((used)) static CUresult (*get_free(void))(CUdeviceptr)
{
	return free_it;
}

/* The third parameter is the address; the stack is as it was on entry. */
void tail_callback(CUstream stream, CUresult status, void *data);
__asm__(".pushsection .text\n"
	"tail_callback:\n"
	"pushq %rdx\n"
	"call get_free\n"
	"popq %rdi\n"
	"jmp *%rax\n"
	".popsection\n");
#elif defined(__aarch64__)
__attribute__((used)) static CUresult (*get_free(void))(CUdeviceptr)
{
	return free_it;
}

void tail_callback(CUstream stream, CUresult status, void *data);
__asm__(".pushsection .text\n"
	"tail_callback:\n"
	"hint #34\n" /* bti c */
	"stp x29, x30, [sp, #-32]!\n"
	"str x2, [sp, #16]\n"
	"bl get_free\n"
	"mov x16, x0\n"
	"ldr x0, [sp, #16]\n"
	"ldp x29, x30, [sp], #32\n"
	"br x16\n"
	".popsection\n");
#else
static void tail_callback(CUstream stream, CUresult status, void *data)
{
	(void)stream, (void)status;
	free_it((CUdeviceptr)data);
}
#endif

extern CUresult cuStreamAddCallback(CUstream stream, void (*callback)(CUstream, CUresult, void *),
				    void *data, unsigned flags);

/* Calls of the callback are noted like the program's other calls. */
static void note_free(CUdeviceptr at)
{
	app_after("cuMemFree_v2", CUDA_SUCCESS, 4711, at, true);
}

int main(void)
{
	CUdeviceptr at = 0;
	CUdevice device = app_begin();

	WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
	PLAIN(cuStreamAddCallback, NULL, tail_callback, (void *)(uintptr_t)at, 0);
	note_free(at);
	WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
	WATCHED(at, cuMemFree_v2, at);
	app_end(device);
	return 0;
}
