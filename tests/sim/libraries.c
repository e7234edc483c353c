/* SPDX-License-Identifier: MIT */
/* Libraries: code that belongs to no context. Each context that uses one gets a module of it. */
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "modules.h"

struct sim_library {
	void *image;
	struct sim_module *modules[64];
	unsigned count;
};

static struct sim_library *library_of(CUlibrary handle)
{
	return sim_handle(handle, SIM_LIBRARY);
}

/*
 * The part of an image that may be read later: the whole text, or the beginning of another image.
 */
static void *keep_image(const void *image)
{
	struct sim_variable *variables, *next;
	void *copy = NULL;
	char *text;

	if (sim_image_read(image, &variables, &text) == CUDA_SUCCESS)
		copy = text ? strdup(text) : calloc(1, 16);
	for (; variables; variables = next) {
		next = variables->next;
		free(variables);
	}
	free(text);
	return copy;
}

static CUresult load(CUlibrary *handle, const void *code)
{
	struct sim_library *library;

	if (!handle || !code)
		return CUDA_ERROR_INVALID_VALUE;
	library = sim_handle_new(SIM_LIBRARY, sizeof(*library));
	if (!library)
		return CUDA_ERROR_OUT_OF_MEMORY;
	library->image = keep_image(code);
	if (!library->image) {
		sim_handle_delete(library);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = (CUlibrary)library;
	return CUDA_SUCCESS;
}

SIM_CALL(cuLibraryLoadData,
	 (CUlibrary * handle, const void *code, CUjit_option *jit, void **jit_values,
	  unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count),
	 (handle, code, jit, jit_values, jit_count, options, values, count))
{
	if ((jit_count && (!jit || !jit_values)) || (count && !options))
		return CUDA_ERROR_INVALID_VALUE;
	(void)values;
	return load(handle, code);
}

SIM_CALL(cuLibraryLoadFromFile,
	 (CUlibrary * handle, const char *name, CUjit_option *jit, void **jit_values,
	  unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count),
	 (handle, name, jit, jit_values, jit_count, options, values, count))
{
	CUresult result;
	char *contents;

	if ((jit_count && (!jit || !jit_values)) || (count && !options))
		return CUDA_ERROR_INVALID_VALUE;
	(void)values;
	result = sim_read_file(name, &contents);
	if (result != CUDA_SUCCESS)
		return result;
	result = load(handle, contents);
	free(contents);
	return result;
}

void sim_libraries_module_ended(struct sim_module *module)
{
	struct sim_library *library = module->library;
	unsigned i;

	for (i = 0; library->modules[i] != module;)
		i++;
	library->modules[i] = library->modules[--library->count];
}

SIM_CALL(cuLibraryUnload, (CUlibrary handle), (handle))
{
	struct sim_library *library = library_of(handle);

	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	while (library->count)
		sim_module_unload(library->modules[0]);
	free(library->image);
	sim_handle_delete(library);
	return CUDA_SUCCESS;
}

/* The module of the current context, loaded if it has none yet. */
static CUresult module_here(CUlibrary handle, struct sim_module **out)
{
	struct sim_library *library = library_of(handle);
	struct sim_module *module;
	CUresult result;
	unsigned i;

	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	for (i = 0; i < library->count; i++)
		if (library->modules[i]->context == sim_owner()) {
			*out = library->modules[i];
			return CUDA_SUCCESS;
		}
	if (library->count == sizeof(library->modules) / sizeof(library->modules[0]))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_module_load(library->image, &module);
	if (result != CUDA_SUCCESS)
		return result;
	module->library = library;
	library->modules[library->count++] = module;
	*out = module;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (module, library))
{
	struct sim_module *found;
	CUresult result;

	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_here(library, &found);
	if (result == CUDA_SUCCESS)
		*module = (CUmodule)found;
	return result;
}

static CUresult find(CUdeviceptr *ptr, size_t *size, CUlibrary library, const char *name,
		     bool managed)
{
	struct sim_variable *variable;
	struct sim_module *module;
	CUresult result;

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_here(library, &module);
	if (result != CUDA_SUCCESS)
		return result;
	variable = sim_module_variable(module, name);
	if (!variable || (managed && !variable->managed))
		return CUDA_ERROR_NOT_FOUND;
	if (ptr)
		*ptr = variable->alloc->addr;
	if (size)
		*size = variable->size;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuLibraryGetGlobal,
	     (CUdeviceptr * ptr, size_t *size, CUlibrary library, const char *name),
	     (ptr, size, library, name))
{
	return find(ptr, size, library, name, false);
}

SIM_CTX_CALL(cuLibraryGetManaged,
	     (CUdeviceptr * ptr, size_t *size, CUlibrary library, const char *name),
	     (ptr, size, library, name))
{
	return find(ptr, size, library, name, true);
}

/* A kernel is a function of the module here: both have the same handle. */
SIM_CTX_CALL(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name),
	     (kernel, library, name))
{
	struct sim_module *module;
	CUresult result;

	if (!kernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_here(library, &module);
	if (result != CUDA_SUCCESS)
		return result;
	return sim_module_function(module, name, (CUfunction *)kernel);
}

SIM_CTX_CALL(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), (function, kernel))
{
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	*function = sim_handle(kernel, SIM_FUNCTION);
	return *function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
