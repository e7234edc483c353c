/* SPDX-License-Identifier: MIT */
/* cuGetProcAddress: the symbol for a name, a version and flags; and the other look-ups. */
#include <string.h>

#include "core.h"

enum flavour { PDN_ANY, PDN_LEGACY, PDN_PER_THREAD };

struct row {
	const char *symbol, *base;
	int version;
	enum flavour flavour;
};

static const struct row rows[] = {
#define X(symbol, base, version, stream, ...) {#symbol, #base, version, stream},
#include "hook/cuda/entrypoints.def"
#include "procs.def"
#undef X
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/*
 * The newest symbol of the name that is not newer than the requested version. A flag selects
 * per-thread variants; a name without one has the same symbol for both.
 */
static const struct row *newest(const char *base, int version, enum flavour wanted, bool *known)
{
	const struct row *best = NULL;
	size_t i;

	for (i = 0; i < ROWS; i++) {
		const struct row *row = &rows[i];

		if (strcmp(row->base, base) || row->version > sim_options.driver_version ||
		    (row->flavour != PDN_ANY && row->flavour != wanted))
			continue;
		*known = true;
		if (row->version <= version && (!best || row->version > best->version))
			best = row;
	}
	return best;
}

static const struct row *find(const char *base, int version, cuuint64_t flags, bool *known)
{
	const struct row *row = NULL;

	*known = false;
	if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		row = newest(base, version, PDN_PER_THREAD, known);
	return row || *known ? row : newest(base, version, PDN_LEGACY, known);
}

static CUresult look_up(const char *name, int version, cuuint64_t flags, void **function,
			CUdriverProcAddressQueryResult *status)
{
	const struct row *row;
	bool known;

	if (!name || version > sim_options.driver_version ||
	    flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
				  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	row = find(name, version < 0 ? INT32_MAX : version, flags, &known);
	*function = row ? sim_own_export(row->symbol) : NULL;
	*status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
		  : known   ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
			    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

/* A name that is not found is an error, and leaves *out unchanged. */
SIM_EARLY_CALL(cuGetProcAddress, (const char *name, void **out, int version, cuuint64_t flags),
	       (name, out, version, flags))
{
	CUdriverProcAddressQueryResult status;
	void *function;
	CUresult result;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	result = look_up(name, version, flags, &function, &status);
	if (result != CUDA_SUCCESS)
		return result;
	if (!function)
		return CUDA_ERROR_NOT_FOUND;
	*out = function;
	return CUDA_SUCCESS;
}

/* A name that is not found gives NULL and no error, whether its status is asked for or not. */
SIM_EARLY_CALL(cuGetProcAddress_v2,
	       (const char *name, void **out, int version, cuuint64_t flags,
		CUdriverProcAddressQueryResult *wanted),
	       (name, out, version, flags, wanted))
{
	CUdriverProcAddressQueryResult status;
	void *function;
	CUresult result;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	result = look_up(name, version, flags, &function, &status);
	if (result != CUDA_SUCCESS)
		return result;
	*out = function;
	if (wanted)
		*wanted = status;
	return CUDA_SUCCESS;
}

/* NVIDIA does not document the tables behind it. */
SIM_EARLY_CALL(cuGetExportTable, (const void **table, const CUuuid *id), (table, id))
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}
