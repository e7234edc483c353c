/* SPDX-License-Identifier: MIT */
/* The names of results: cuGetErrorName, cuGetErrorString. */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "errors.h"

static const struct name {
	const char *name;
	int error;
} names[] = {
#define X(name, number) {#name, number},
#include "errors.def"
#undef X
};

static const struct name *find(int error)
{
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].error == error)
			return &names[i];
	return NULL;
}

bool sim_error_by_name(const char *text, size_t length, CUresult *error)
{
	char *end;
	size_t i;
	long number;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strlen(names[i].name) != length || strncmp(names[i].name, text, length))
			continue;
		*error = names[i].error;
		return true;
	}
	number = strtol(text, &end, 10);
	if (end != text + length || number < 1 || number > 999)
		return false;
	*error = number;
	return true;
}

SIM_EARLY_CALL(cuGetErrorName, (CUresult error, const char **text), (error, text))
{
	const struct name *name = find(error);

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = name ? name->name : NULL;
	return name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The real driver has a sentence for each; here it is the name in small letters. */
SIM_EARLY_CALL(cuGetErrorString, (CUresult error, const char **text), (error, text))
{
	static char sentences[sizeof(names) / sizeof(names[0])][64];
	const struct name *name = find(error);
	const char *from;
	char *to;

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = NULL;
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	to = sentences[name - names];
	*text = to;
	if (*to)
		return CUDA_SUCCESS;
	from = name->error ? name->name + strlen("CUDA_ERROR_") : "no error";
	while (*from && to < sentences[name - names] + 63) {
		*to++ = *from == '_' ? ' ' : *from >= 'A' && *from <= 'Z' ? *from + 32 : *from;
		from++;
	}
	return CUDA_SUCCESS;
}
