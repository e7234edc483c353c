/* SPDX-License-Identifier: MIT */
/* cuGetProcAddress: which symbol a name, a version and flags mean. And what else asks for
 * functions. */
#include <string.h>

#include "core.h"

enum flavour { PD_ANY, PD_LEGACY, PD_PER_THREAD };

struct row {
	const char *symbol, *base;
	int version;
	enum flavour flavour;
};

static const struct row rows[] = {
#define X(symbol, base, version, stream, ...) {#symbol, #base, version, stream},
#include "entrypoints.def"
#include "procs.def"
#undef X
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/*
 * The newest symbol of the name that is no newer than the version asked for. Per-thread flavours
 * are chosen by flag; a name that has none is the same for both.
 */
static const struct row *newest(const char *base, int version, enum flavour wanted, bool *known)
{
	const struct row *best = NULL;
	size_t i;

	for (i = 0; i < ROWS; i++) {
		const struct row *row = &rows[i];

		if (strcmp(row->base, base) || row->version > sim_options.driver_version ||
		    (row->flavour != PD_ANY && row->flavour != wanted))
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
		row = newest(base, version, PD_PER_THREAD, known);
	return row ? row : newest(base, version, PD_LEGACY, known);
}

static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *status)
{
	const struct row *row;
	bool known;

	if (!name || !function || version < 2000 ||
	    flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
				  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	row = find(name, version, flags, &known);
	*function = row ? sim_own_export(row->symbol) : NULL;
	if (status)
		*status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known   ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_EARLY_CALL(cuGetProcAddress, (const char *name, void **function, int version, cuuint64_t flags),
	       (name, function, version, flags))
{
	return look_up(name, function, version, flags, NULL);
}

SIM_EARLY_CALL(cuGetProcAddress_v2,
	       (const char *name, void **function, int version, cuuint64_t flags,
		CUdriverProcAddressQueryResult *status),
	       (name, function, version, flags, status))
{
	return look_up(name, function, version, flags, status);
}

/* The tables behind it are NVIDIA's own affair. */
SIM_EARLY_CALL(cuGetExportTable, (const void **table, const CUuuid *id), (table, id))
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}
