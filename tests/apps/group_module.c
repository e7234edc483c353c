/* SPDX-License-Identifier: MIT */
/* Global variables of modules and libraries: device memory that an unload ends. */
#include "app.h"

static const char ptx[] = ".version 6.3\n"
			  ".target sm_75\n"
			  ".address_size 64\n"
			  ".visible .global .align 8 .b8 table[65536];\n"
			  ".visible .global .align 8 .b8 small[16];\n"
			  ".visible .global .attribute(.managed) .align 8 .b8 both[4096];\n";

static void module(void)
{
	CUdeviceptr table = 0, small = 0, none = 0;
	CUmodule module = NULL;
	size_t size = 0;

	PLAIN(cuModuleLoadData, &module, ptx);
	WATCHED(table, cuModuleGetGlobal_v2, &table, &size, module, "table");
	app_say("%zu bytes, %s", size, app_write_and_read(table, size, 20));
	WATCHED(small, cuModuleGetGlobal_v2, &small, NULL, module, "small");
	app_say("%s", app_write_and_read(small, 16, 21));
	WATCHED(0, cuModuleGetGlobal_v2, &none, &size, module, "nothing");
	WATCHED(0, cuModuleGetGlobal_v2, NULL, &size, module, "table");
	WATCHED(0, cuMemFree_v2, table);
	WATCHED(0, cuModuleUnload, module);
	PLAIN(cuModuleLoadData, &module, "not a module");
	WATCHED(0, cuModuleUnload, NULL);
}

static void library(void)
{
	CUdeviceptr table = 0, both = 0;
	CUlibrary library = NULL;
	size_t size = 0;

	PLAIN(cuLibraryLoadData, &library, ptx, NULL, NULL, 0, NULL, NULL, 0);
	WATCHED(table, cuLibraryGetGlobal, &table, &size, library, "table");
	app_say("%zu bytes, %s", size, app_write_and_read(table, size, 22));
	WATCHED(both, cuLibraryGetManaged, &both, &size, library, "both");
	WATCHED(0, cuLibraryGetGlobal, &table, &size, library, "nothing");
	WATCHED(0, cuLibraryUnload, library);
}

int app_module(int argc, char **argv)
{
	CUdevice device = app_begin();

	(void)argc, (void)argv;
	module();
	library();
	app_end(device);
	return 0;
}
