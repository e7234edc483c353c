/* SPDX-License-Identifier: MIT */
/* Modules: loaded from any image, with their variables, until they are unloaded. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "modules.h"
#include "work.h"

static struct sim_module *module_of(CUmodule handle)
{
	return sim_handle(handle, SIM_MODULE);
}

static bool give_memory(struct sim_module *module, struct sim_variable *variable)
{
	uint64_t span = (variable->size + SIM_PAGE - 1) & ~(SIM_PAGE - 1), base;

	if (!variable->managed) {
		variable->alloc = sim_heap_alloc(&module->heap, variable->size, SIM_GLOBAL);
	} else {
		base = sim_addresses_take(span, 0);
		if (!base || !sim_addresses_open(base, span))
			return false;
		variable->alloc = sim_alloc_whole(SIM_MANAGED, variable->size,
						  module->context->device, NULL, base);
	}
	if (!variable->alloc)
		return false;
	if (variable->managed)
		variable->alloc->sync_memops = true;
	else
		sim_alloc_to_context(variable->alloc, module->context);
	return true;
}

static void delete_variables(struct sim_module *module)
{
	while (module->variables) {
		struct sim_variable *variable = module->variables;

		module->variables = variable->next;
		if (variable->alloc && variable->managed)
			sim_free_whole(variable->alloc);
		else if (variable->alloc)
			sim_heap_free(&module->heap, variable->alloc);
		free(variable);
	}
}

void sim_module_unload(struct sim_module *module)
{
	if (module->library)
		sim_libraries_module_ended(module);
	delete_variables(module);
	while (module->functions) {
		struct sim_function *function = module->functions;

		module->functions = function->next;
		sim_handle_delete(function);
	}
	free(module->text);
	sim_handle_delete(module);
}

CUresult sim_module_load(const void *image, struct sim_module **out)
{
	struct sim_variable *variable;
	struct sim_module *module;
	CUresult result;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	module = sim_handle_new(SIM_MODULE, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->context = sim_owner();
	module->heap.hidden = true;
	module->heap.device = module->context->device;
	result = sim_image_read(image, &module->variables, &module->text);
	for (variable = module->variables; variable && result == CUDA_SUCCESS;
	     variable = variable->next)
		if (!give_memory(module, variable))
			result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		sim_module_unload(module);
		return result;
	}
	*out = module;
	return CUDA_SUCCESS;
}

static CUresult load(CUmodule *handle, const void *image)
{
	struct sim_module *module;
	CUresult result;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_module_load(image, &module);
	if (result == CUDA_SUCCESS)
		*handle = (CUmodule)module;
	return result;
}

SIM_UNSAFE_CALL(cuModuleLoadData, (CUmodule * handle, const void *image), (handle, image))
{
	return load(handle, image);
}

SIM_UNSAFE_CALL(cuModuleLoadDataEx,
		(CUmodule * handle, const void *image, unsigned int count, CUjit_option *options,
		 void **values),
		(handle, image, count, options, values))
{
	if (count && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	return load(handle, image);
}

SIM_UNSAFE_CALL(cuModuleLoadFatBinary, (CUmodule * handle, const void *image), (handle, image))
{
	return load(handle, image);
}

CUresult sim_read_file(const char *name, char **contents)
{
	CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
	struct stat stat;
	int fd;

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (fstat(fd, &stat))
		goto no_size;
	*contents = calloc(1, stat.st_size +
				      16); /* text ends with 0, an image has 8 bytes to look at */
	if (!*contents) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto no_size;
	}
	if (read(fd, *contents, stat.st_size) == stat.st_size)
		result = CUDA_SUCCESS;
	else
		free(*contents);
no_size:
	close(fd);
	return result;
}

SIM_UNSAFE_CALL(cuModuleLoad, (CUmodule * handle, const char *name), (handle, name))
{
	CUresult result;
	char *contents;

	result = sim_read_file(name, &contents);
	if (result != CUDA_SUCCESS)
		return result;
	result = load(handle, contents);
	free(contents);
	return result;
}

SIM_UNSAFE_CALL(cuModuleUnload, (CUmodule handle), (handle))
{
	struct sim_module *module = module_of(handle);

	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (module->library)
		return CUDA_ERROR_NOT_PERMITTED;
	sim_module_unload(module);
	return CUDA_SUCCESS;
}

void sim_modules_context_ended(struct sim_context *context)
{
	unsigned long position = 0;
	struct sim_module *module;

	while ((module = sim_handle_next(SIM_MODULE, &position)))
		if (module->context == context) {
			sim_module_unload(module);
			position = 0;
		}
}

/* ---- variables ------------------------------------------------------------------------------ */

struct sim_variable *sim_module_variable(struct sim_module *module, const char *name)
{
	struct sim_variable *variable = module->variables;

	while (variable && strcmp(variable->name, name))
		variable = variable->next;
	return variable;
}

static CUresult find_global(CUmodule handle, const char *name, struct sim_variable **variable)
{
	struct sim_module *module = module_of(handle);

	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*variable = sim_module_variable(module, name);
	return *variable ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_CTX_CALL(cuModuleGetGlobal_v2,
	     (CUdeviceptr * ptr, size_t *size, CUmodule module, const char *name),
	     (ptr, size, module, name))
{
	struct sim_variable *variable;
	CUresult result =
		ptr || size ? find_global(module, name, &variable) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (ptr)
		*ptr = variable->alloc->addr;
	if (size)
		*size = variable->size;
	return CUDA_SUCCESS;
}

/* 32 bits can't hold an address above 4 GiB. */
SIM_CTX_CALL(cuModuleGetGlobal,
	     (CUdeviceptr_v1 * ptr, unsigned int *size, CUmodule module, const char *name),
	     (ptr, size, module, name))
{
	struct sim_variable *variable;
	CUresult result =
		ptr || size ? find_global(module, name, &variable) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (ptr && variable->alloc->addr > UINT32_MAX)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (ptr)
		*ptr = (CUdeviceptr_v1)variable->alloc->addr;
	if (size)
		*size = (unsigned)variable->size;
	return CUDA_SUCCESS;
}

/* ---- functions ------------------------------------------------------------------------------ */

CUresult sim_module_function(struct sim_module *module, const char *name, CUfunction *handle)
{
	struct sim_function *function = module->functions;

	if (!*name || strlen(name) >= sizeof(function->name) ||
	    (module->text && !sim_image_has_function(module->text, name)))
		return CUDA_ERROR_NOT_FOUND;
	while (function && strcmp(function->name, name))
		function = function->next;
	if (!function) {
		function = sim_handle_new(SIM_FUNCTION, sizeof(*function));
		if (!function)
			return CUDA_ERROR_OUT_OF_MEMORY;
		strcpy(function->name, name);
		function->module = module;
		function->next = module->functions;
		module->functions = function;
	}
	*handle = (CUfunction)function;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuModuleGetFunction, (CUfunction * function, CUmodule handle, const char *name),
	     (function, handle, name))
{
	struct sim_module *module = module_of(handle);

	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_module_function(module, name, function);
}

SIM_CALL(cuFuncGetModule, (CUmodule * module, CUfunction handle), (module, handle))
{
	struct sim_function *function = sim_handle(handle, SIM_FUNCTION);

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	*module = (CUmodule)function->module;
	return CUDA_SUCCESS;
}

/* Kernels compute nothing here: a launch is checked, ordered, and does nothing. */
static CUresult launch(CUfunction function, uint64_t blocks, uint64_t threads, CUstream stream,
		       bool per_thread)
{
	struct sim_work work = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = function};

	if (!sim_handle(function, SIM_FUNCTION))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!blocks || !threads || threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_submit(stream, per_thread, &work);
}

SIM_CTX_CALL(cuLaunchKernel,
	     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
	      unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
	      CUstream stream, void **parameters, void **extra),
	     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
	      parameters, extra))
{
	(void)shared;
	(void)parameters;
	(void)extra;
	return launch(function, (uint64_t)grid_x * grid_y * grid_z,
		      (uint64_t)block_x * block_y * block_z, stream, false);
}

SIM_CTX_CALL(cuLaunchKernel_ptsz,
	     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
	      unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
	      CUstream stream, void **parameters, void **extra),
	     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
	      parameters, extra))
{
	(void)shared;
	(void)parameters;
	(void)extra;
	return launch(function, (uint64_t)grid_x * grid_y * grid_z,
		      (uint64_t)block_x * block_y * block_z, stream, true);
}
