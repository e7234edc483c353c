/* SPDX-License-Identifier: MIT */
/*
 * A library that patches code, as UCX's hooks do: it looks functions of the driver up, moves their
 * first instructions away and writes a jump to its own functions in their place. It prints the
 * calls that it sees.
 *
 * PATCHER_ASKS is the way to look them up. itself: a handle of its own file, as UCX 1.22; next,
 * default: these pseudo handles; driver: a handle of libcuda; linked: the address that it is linked
 * to. PATCHER_CALLS=1: it patches nothing, but calls the function that it has found.
 */
#define _GNU_SOURCE
#include "app.h"
#include "say.h"

#include <dlfcn.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#define MOVED 15 /* bytes: three loads of a constant */
#define JUMP  12
#else
#define MOVED 16 /* a mark for indirect calls (bti c), and three loads of a constant */
#define JUMP  16
#endif

static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);
static CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream);
static CUresult (*release_async)(CUdeviceptr, CUstream);

static CUresult patched_alloc(CUdeviceptr *at, size_t size)
{
	say("patcher sees an allocation of %zu", size);
	return alloc(at, size);
}

static CUresult patched_release(CUdeviceptr at)
{
	say("patcher sees a free");
	return release(at);
}

static CUresult patched_alloc_async(CUdeviceptr *at, size_t size, CUstream stream)
{
	say("patcher sees an allocation of %zu on a stream", size);
	return alloc_async(at, size, stream);
}

static CUresult patched_release_async(CUdeviceptr at, CUstream stream)
{
	say("patcher sees a free on a stream");
	return release_async(at, stream);
}

static const struct patch {
	const char *name;
	void *linked, *replacement, **original;
} patches[] = {
	{"cuMemAlloc_v2", cuMemAlloc_v2, patched_alloc, (void **)&alloc},
	{"cuMemFree_v2", cuMemFree_v2, patched_release, (void **)&release},
	{"cuMemAllocAsync", cuMemAllocAsync, patched_alloc_async, (void **)&alloc_async},
	{"cuMemFreeAsync", cuMemFreeAsync, patched_release_async, (void **)&release_async},
};

static void *look_up(const struct patch *patch, const char *where)
{
	Dl_info info;

	if (!strcmp(where, "itself") && dladdr((void *)look_up, &info) != 0)
		return dlsym(dlopen(info.dli_fname, RTLD_LAZY), patch->name);
	if (!strcmp(where, "next"))
		return dlsym(RTLD_NEXT, patch->name);
	if (!strcmp(where, "default"))
		return dlsym(RTLD_DEFAULT, patch->name);
	if (!strcmp(where, "driver"))
		return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), patch->name);
	return patch->linked;
}

#if defined(__x86_64__)
static void write_jump(unsigned char *at, const void *to)
{
	memcpy(at, "\x48\xb8", 2); /* movabs $to, %rax; jmp *%rax */
	memcpy(at + 2, &to, sizeof(to));
	memcpy(at + 10, "\xff\xe0", 2);
}

static bool can_be_moved(const unsigned char *code)
{
	return code[0] == 0xb8 && code[5] == 0xb8 && code[10] == 0xb8;
}
#else
static void write_jump(unsigned char *at, const void *to)
{
	static const uint32_t jump[] = {0x58000051, 0xd61f0220}; /* ldr x17, .+8; br x17 */

	memcpy(at, jump, sizeof(jump));
	memcpy(at + sizeof(jump), &to, sizeof(to));
	__builtin___clear_cache((char *)at, (char *)at + JUMP);
}

static bool can_be_moved(const unsigned char *code)
{
	static const uint32_t whole[] = {0xd503245f, 0x52800010, 0x52800010, 0x52800010};

	return memcmp(code, whole, sizeof(whole)) == 0;
}
#endif

static bool write_to(void *at, size_t length, int protection)
{
	uintptr_t page = (uintptr_t)at & -(uintptr_t)sysconf(_SC_PAGESIZE);

	return mprotect((void *)page, (uintptr_t)at + length - page, protection) == 0;
}

/* The moved instructions, and a jump to the instruction after them. */
static void *make_original(unsigned char *code)
{
	unsigned char *moved = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (moved == MAP_FAILED)
		return NULL;
	memcpy(moved, code, MOVED);
	__builtin___clear_cache((char *)moved, (char *)moved + MOVED);
	write_jump(moved + MOVED, code + MOVED);
	return moved;
}

static void apply(const struct patch *patch, unsigned char *code)
{
	if (!can_be_moved(code)) {
		say("patcher can't patch %s", patch->name);
		return;
	}
	*patch->original = make_original(code);
	if (*patch->original == NULL || !write_to(code, JUMP, PROT_READ | PROT_WRITE | PROT_EXEC))
		_exit(123);
	write_jump(code, patch->replacement);
	write_to(code, JUMP, PROT_READ | PROT_EXEC);
}

__attribute__((constructor)) static void patch_all(void)
{
	const char *where = getenv("PATCHER_ASKS");
	unsigned i;

	for (i = 0; where != NULL && i < sizeof(patches) / sizeof(patches[0]); i++) {
		unsigned char *code = look_up(&patches[i], where);

		if (code == NULL)
			say("patcher does not find %s: %s", patches[i].name, dlerror());
		else if (getenv("PATCHER_CALLS") == NULL)
			apply(&patches[i], code);
		else if (!strcmp(patches[i].name, "cuMemFree_v2"))
			say("patcher frees nothing: %d", ((CUresult(*)(CUdeviceptr))code)(0));
	}
}
