/* SPDX-License-Identifier: MIT */
/* Arrays and mipmapped arrays: opaque memory, that can be copied to and from. */
#include <stdlib.h>

#include "arrays.h"
#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "memory.h"
#include "streams.h"

#define MAX_LEVELS 32

struct mipmap {
	struct sim_context *context;
	unsigned count;
	struct sim_array *levels[MAX_LEVELS];
};

struct sim_array *sim_array_of(CUarray handle)
{
	return sim_handle(handle, SIM_ARRAY);
}

static unsigned bytes_of(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	}
	return 0;
}

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
}

static CUresult new_array(const CUDA_ARRAY3D_DESCRIPTOR *shape, struct sim_array **out)
{
	uint64_t element = bytes_of(shape->Format) * (uint64_t)shape->NumChannels;
	uint64_t rows = at_least_one(shape->Height) * at_least_one(shape->Depth);
	struct sim_context *context = sim_owner();
	struct sim_array *array;
	struct sim_alloc *alloc;

	if (!element ||
	    (shape->NumChannels != 1 && shape->NumChannels != 2 && shape->NumChannels != 4))
		return CUDA_ERROR_INVALID_VALUE;
	if (!shape->Width || shape->Width > 1 << 20 || rows > 1 << 24)
		return CUDA_ERROR_INVALID_VALUE;
	array = sim_handle_new(SIM_ARRAY, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->pitch = (shape->Width * element + 511) & ~511ull;
	array->size = array->pitch * rows;
	alloc = sim_heap_alloc(&context->heap, array->size, SIM_LINEAR);
	if (!alloc) {
		sim_handle_delete(array);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	array->context = context;
	array->shape = *shape;
	array->addr = alloc->addr;
	*out = array;
	return CUDA_SUCCESS;
}

static void delete_array(struct sim_array *array)
{
	sim_heap_free(&array->context->heap, sim_alloc_at(array->addr));
	sim_handle_delete(array);
}

static CUresult create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	struct sim_array *array;
	CUresult result = new_array(shape, &array);

	if (result == CUDA_SUCCESS)
		*handle = (CUarray)array;
	return result;
}

SIM_CTX_CALL(cuArrayCreate_v2, (CUarray * handle, const CUDA_ARRAY_DESCRIPTOR *wanted),
	     (handle, wanted))
{
	if (!handle || !wanted)
		return CUDA_ERROR_INVALID_VALUE;
	return create(handle, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = wanted->Width,
							 .Height = wanted->Height,
							 .Format = wanted->Format,
							 .NumChannels = wanted->NumChannels});
}

SIM_CTX_CALL(cuArrayCreate, (CUarray * handle, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted),
	     (handle, wanted))
{
	if (!handle || !wanted)
		return CUDA_ERROR_INVALID_VALUE;
	return create(handle, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = wanted->Width,
							 .Height = wanted->Height,
							 .Format = wanted->Format,
							 .NumChannels = wanted->NumChannels});
}

SIM_CTX_CALL(cuArray3DCreate_v2, (CUarray * handle, const CUDA_ARRAY3D_DESCRIPTOR *wanted),
	     (handle, wanted))
{
	if (!handle || !wanted)
		return CUDA_ERROR_INVALID_VALUE;
	return create(handle, wanted);
}

SIM_CTX_CALL(cuArray3DCreate, (CUarray * handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted),
	     (handle, wanted))
{
	if (!handle || !wanted)
		return CUDA_ERROR_INVALID_VALUE;
	return create(handle, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = wanted->Width,
							 .Height = wanted->Height,
							 .Depth = wanted->Depth,
							 .Format = wanted->Format,
							 .NumChannels = wanted->NumChannels,
							 .Flags = wanted->Flags});
}

SIM_CTX_CALL(cuArrayDestroy, (CUarray handle), (handle))
{
	struct sim_array *array = sim_array_of(handle);

	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	if (array->level)
		return CUDA_ERROR_INVALID_VALUE;
	delete_array(array);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * shape, CUarray handle),
	     (shape, handle))
{
	struct sim_array *array = sim_array_of(handle);

	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!shape)
		return CUDA_ERROR_INVALID_VALUE;
	*shape = array->shape;
	return CUDA_SUCCESS;
}

/* ---- mipmapped ------------------------------------------------------------------------------ */

static void delete_mipmap(struct mipmap *mipmap)
{
	unsigned i;

	for (i = 0; i < mipmap->count; i++)
		delete_array(mipmap->levels[i]);
	sim_handle_delete(mipmap);
}

static CUresult new_mipmap(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
			   unsigned levels)
{
	CUDA_ARRAY3D_DESCRIPTOR shape;
	struct mipmap *mipmap;

	if (!handle || !wanted || !levels || levels > MAX_LEVELS)
		return CUDA_ERROR_INVALID_VALUE;
	mipmap = sim_handle_new(SIM_MIPMAP, sizeof(*mipmap));
	if (!mipmap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mipmap->context = sim_current();
	for (shape = *wanted; mipmap->count < levels; mipmap->count++) {
		CUresult result = new_array(&shape, &mipmap->levels[mipmap->count]);

		if (result != CUDA_SUCCESS) {
			delete_mipmap(mipmap);
			return result;
		}
		mipmap->levels[mipmap->count]->level = true;
		shape.Width = at_least_one(shape.Width / 2);
		shape.Height /= 2;
		shape.Depth /= 2;
	}
	*handle = (CUmipmappedArray)mipmap;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuMipmappedArrayCreate,
	     (CUmipmappedArray * handle, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
	      unsigned int levels),
	     (handle, wanted, levels))
{
	return new_mipmap(handle, wanted, levels);
}

SIM_CTX_CALL(cuMipmappedArrayDestroy, (CUmipmappedArray handle), (handle))
{
	struct mipmap *mipmap = sim_handle(handle, SIM_MIPMAP);

	if (!mipmap)
		return CUDA_ERROR_INVALID_HANDLE;
	delete_mipmap(mipmap);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuMipmappedArrayGetLevel,
	     (CUarray * array, CUmipmappedArray handle, unsigned int level), (array, handle, level))
{
	struct mipmap *mipmap = sim_handle(handle, SIM_MIPMAP);

	if (!mipmap)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!array || level >= mipmap->count)
		return CUDA_ERROR_INVALID_VALUE;
	*array = (CUarray)mipmap->levels[level];
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuExternalMemoryGetMappedMipmappedArray,
	     (CUmipmappedArray * handle, CUexternalMemory memory,
	      const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *wanted),
	     (handle, memory, wanted))
{
	if (!sim_handle(memory, SIM_EXTERNAL_MEMORY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!wanted)
		return CUDA_ERROR_INVALID_VALUE;
	return new_mipmap(handle, &wanted->arrayDesc, wanted->numLevels);
}

/* The simulated driver has no sparse arrays, so there are no tiles to map. */
static CUresult map_tiles(CUarrayMapInfo *tiles, unsigned count, CUstream stream, bool per_thread)
{
	if (!sim_stream_of(stream, per_thread))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!tiles || !count)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_CTX_CALL(cuMemMapArrayAsync, (CUarrayMapInfo * tiles, unsigned int count, CUstream stream),
	     (tiles, count, stream))
{
	return map_tiles(tiles, count, stream, false);
}

SIM_CTX_CALL(cuMemMapArrayAsync_ptsz, (CUarrayMapInfo * tiles, unsigned int count, CUstream stream),
	     (tiles, count, stream))
{
	return map_tiles(tiles, count, stream, true);
}

void sim_arrays_context_ended(struct sim_context *context)
{
	unsigned long position = 0;
	struct sim_array *array;
	struct mipmap *mipmap;

	while ((mipmap = sim_handle_next(SIM_MIPMAP, &position)))
		if (mipmap->context == context) {
			delete_mipmap(mipmap);
			position = 0;
		}
	position = 0;
	while ((array = sim_handle_next(SIM_ARRAY, &position)))
		if (array->context == context) {
			delete_array(array);
			position = 0;
		}
}
