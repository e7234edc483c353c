/* SPDX-License-Identifier: MIT */
/* Modules, look-ups, and the calls from before CUDA 3.2. */
#include <string.h>

#include "facts.h"

static const char image[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .b8 table[4096];\n"
	".visible .global .align 4 .u32 counter;\n"
	".visible .global .attribute(.managed) .align 4 .b8 shared_table[4096];\n"
	".visible .entry nothing()\n{\n\tret;\n}\n";

void facts_modules(void)
{
	CUdeviceptr table = 0, counter, managed;
	CUfunction function, other;
	CUcontext context;
	CUlibrary library;
	CUmodule module;
	size_t size;
	uint64_t id;

	begin();
	ASK(cuModuleLoadData(&module, NULL));
	ASK_ABOUT("load", cuModuleLoadData(&module, image));
	ASK_ABOUT("variable", cuModuleGetGlobal_v2(&table, &size, module, "table"));
	say("its size", "%zu", size);
	ASK_ABOUT("variable", cuModuleGetGlobal_v2(&counter, &size, module, "counter"));
	say("its size", "%zu", size);
	ASK(cuModuleGetGlobal_v2(&counter, &size, module, "no_such_variable"));
	ASK(cuModuleGetGlobal_v2(NULL, NULL, module, "table"));
	ASK(cuModuleGetGlobal_v2(&counter, &size, module, NULL));
	describe("variable", table);
	NEED(cuModuleGetGlobal_v2(&managed, &size, module, "shared_table"));
	describe("managed variable", managed);
	ASK_ABOUT("cuMemFree of it", cuMemFree_v2(table));
	ASK_ABOUT("function", cuModuleGetFunction(&function, module, "nothing"));
	ASK_ABOUT("no such function", cuModuleGetFunction(&other, module, "no_such_function"));
	ASK_ABOUT("launch", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	NEED(cuCtxSynchronize());
	ASK_ABOUT("unload", cuModuleUnload(module));
	ASK_ABOUT("its variable then",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, table));
	NEED(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	ASK_ABOUT("library's variable", cuLibraryGetGlobal(&table, &size, library, "table"));
	ASK_ABOUT("library's managed variable",
		  cuLibraryGetManaged(&managed, &size, library, "shared_table"));
	ASK(cuLibraryGetGlobal(&counter, &size, library, "shared_table"));
	ASK(cuLibraryGetManaged(&counter, &size, library, "table"));
	NEED(cuLibraryGetModule(&module, library));
	NEED(cuModuleGetGlobal_v2(&counter, &size, module, "table"));
	say("the module's is the same", "%d", counter == table);
	ASK_ABOUT("unload of a library's module", cuModuleUnload(module));
	ASK_ABOUT("unload of the library", cuLibraryUnload(library));
	ASK_ABOUT("its variable then",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, table));
	NEED(cuCtxCreate_v2(&context, 0, 0));
	NEED(cuModuleLoadData(&module, image));
	NEED(cuModuleGetGlobal_v2(&table, &size, module, "table"));
	NEED(cuCtxDestroy_v2(context));
	ASK_ABOUT("variable of a destroyed context",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, table));
}

static void look_up(const char *name, int version, cuuint64_t flags, void *expected,
		    const char *expected_name)
{
	CUdriverProcAddressQueryResult status = 7;
	void *function = (void *)1;
	CUresult result = cuGetProcAddress_v2(name, &function, version, flags, &status);
	char question[128];
	const char *error;

	snprintf(question, sizeof(question), "%s %d, flags %d", name, version, (int)flags);
	cuGetErrorName(result, &error);
	say(question, "%s, status %d, %s", error, (int)status,
	    !function		    ? "NULL"
	    : function == expected  ? expected_name
	    : function == (void *)1 ? "untouched"
				    : "another");
}

static void look_up_without_status(const char *name, int version)
{
	void *function = (void *)1;
	CUresult result = cuGetProcAddress_v2(name, &function, version, 0, NULL);
	char question[128];

	snprintf(question, sizeof(question), "\"%s\" %d without status", name, version);
	answer(question, result);
	say("function", "%s", !function ? "NULL" : function == (void *)1 ? "untouched" : "some");
	function = (void *)1;
	result = cuGetProcAddress(name, &function, version, 0);
	snprintf(question, sizeof(question), "\"%s\" %d by cuGetProcAddress", name, version);
	answer(question, result);
	say("function", "%s", !function ? "NULL" : function == (void *)1 ? "untouched" : "some");
}

void facts_lookup(void)
{
	look_up("cuMemFree", 12000, 0, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemFree", 3020, 0, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemFree", 3019, 0, cuMemFree, "cuMemFree");
	look_up("cuMemFree", 2000, 0, cuMemFree, "cuMemFree");
	look_up("cuMemFree", 1000, 0, cuMemFree, "cuMemFree");
	look_up("cuMemFree", 0, 0, cuMemFree, "cuMemFree");
	look_up("cuMemFree", -1, 0, cuMemFree, "cuMemFree");
	look_up("cuMemFree", 99000, 0, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemFree", 12000, 1, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemFree", 12000, 2, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemFree", 12000, 3, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemFree", 12000, 4, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemFreeAsync", 12000, 0, cuMemFreeAsync, "cuMemFreeAsync");
	look_up("cuMemFreeAsync", 12000, 1, cuMemFreeAsync, "cuMemFreeAsync");
	look_up("cuMemFreeAsync", 12000, 2, cuMemFreeAsync_ptsz, "cuMemFreeAsync_ptsz");
	look_up("cuMemFreeAsync", 12000, 3, cuMemFreeAsync_ptsz, "cuMemFreeAsync_ptsz");
	look_up("cuMemFreeAsync", 11010, 0, cuMemFreeAsync, "cuMemFreeAsync");
	look_up("cuMemFreeAsync", 11010, 2, cuMemFreeAsync_ptsz, "cuMemFreeAsync_ptsz");
	look_up("cuMemFreeAsync_ptsz", 12000, 0, cuMemFreeAsync_ptsz, "cuMemFreeAsync_ptsz");
	look_up("cuMemFree_v2", 12000, 0, cuMemFree_v2, "cuMemFree_v2");
	look_up("cuMemcpyHtoD", 12000, 2, cuMemcpyHtoD_v2_ptds, "cuMemcpyHtoD_v2_ptds");
	look_up("cuGraphLaunch", 9000, 2, cuGraphLaunch_ptsz, "cuGraphLaunch_ptsz");
	look_up("cuGraphicsMapResources", 5000, 2, cuGraphicsMapResources, "the legacy one");
	look_up("cuGraphicsMapResources", 7000, 2, cuGraphicsMapResources_ptsz, "_ptsz");
	look_up("cuGetProcAddress", 11030, 0, cuGetProcAddress, "cuGetProcAddress");
	look_up("cuGetProcAddress", 12000, 0, cuGetProcAddress_v2, "cuGetProcAddress_v2");
	look_up("cuGetProcAddress_v2", 12000, 0, cuGetProcAddress_v2, "cuGetProcAddress_v2");
	look_up("cuNoSuchCall", 12000, 0, NULL, "");
	look_up("", 12000, 0, NULL, "");
	look_up("cumemfree", 12000, 0, cuMemFree_v2, "cuMemFree_v2");
	look_up_without_status("cuMemFree", 12000);
	look_up_without_status("cuNoSuchCall", 12000);
	look_up_without_status("cuMemFreeAsync", 11010);
	look_up_without_status("", 12000);
}

void facts_old(void)
{
	CUdeviceptr_v1 ptr = 0;
	unsigned left = 0, total = 0, pitch = 0;
	CUcontext context;

	NEED(cuInit(0));
	ASK(cuCtxCreate(&context, 0, 0));
	ASK(cuMemAlloc(&ptr, 4096));
	say("an address", "%d", ptr != 0);
	ASK(cuMemGetInfo(&left, &total));
	say("total", "%d", total != 0);
	if (ptr)
		ASK(cuMemFree(ptr));
	ptr = 0;
	ASK(cuMemAllocPitch(&ptr, &pitch, 100, 100, 4));
	say("pitch", "%u", pitch);
	if (ptr)
		ASK(cuMemFree(ptr));
	ASK(cuMemFree(0));
	ASK(cuCtxDestroy(context));
}
