/* SPDX-License-Identifier: MIT */
/*
 * What is in an image of code. PTX is read for the global variables that it declares; of anything
 * else it is assumed that it has these:
 *
 *	sim_global 4096 bytes, sim_small 64 bytes, sim_large 3 MiB, sim_managed 4096 bytes (managed)
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "modules.h"

static bool declare(struct sim_variable **variables, const char *name, size_t length, uint64_t size,
		    bool managed)
{
	struct sim_variable *variable = calloc(1, sizeof(*variable));

	if (!variable)
		return false;
	if (length > sizeof(variable->name) - 1)
		length = sizeof(variable->name) - 1;
	memcpy(variable->name, name, length);
	variable->size = size;
	variable->managed = managed;
	while (*variables)
		variables = &(*variables)->next;
	*variables = variable;
	return true;
}

static bool declare_usual(struct sim_variable **variables)
{
	return declare(variables, "sim_global", 10, 4096, false) &&
	       declare(variables, "sim_small", 9, 64, false) &&
	       declare(variables, "sim_large", 9, 3 << 20, false) &&
	       declare(variables, "sim_managed", 11, 4096, true);
}

/* Bits of a type such as .u32; 0: it is none. */
static unsigned type_bits(const char *at)
{
	return at[0] == '.' && strchr("bsuf", at[1]) && at[1] ? strtoul(at + 2, NULL, 10) : 0;
}

static const char *skip_blanks(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

static const char *skip_word(const char *at)
{
	while (*at && !isspace((unsigned char)*at) && !strchr(";,[=", *at))
		at++;
	return at;
}

/* From after ".global": [.attribute(.managed)] [.align N] .TYPE NAME [ "[N]" ] */
static bool read_declaration(const char *at, struct sim_variable **variables)
{
	bool managed = false;
	unsigned bits = 0;
	const char *end;
	uint64_t size;

	for (at = skip_blanks(at); *at == '.'; at = skip_blanks(skip_word(at))) {
		if (!strncmp(at, ".attribute(.managed)", 20))
			managed = true;
		else if (!strncmp(at, ".align", 6))
			at = skip_blanks(at + 6); /* the next step skips the number as a word */
		else if (type_bits(at))
			bits = type_bits(at);
	}
	end = skip_word(at);
	if (!bits || end == at)
		return true; /* not a variable */
	size = bits / 8;
	if (*end == '[' && strtoull(end + 1, NULL, 0))
		size *= strtoull(end + 1, NULL, 0);
	return declare(variables, at, end - at, size, managed);
}

static bool read_text(const char *text, struct sim_variable **variables)
{
	const char *at = text;

	while ((at = strstr(at, ".global"))) {
		at += 7;
		/* An address space in an instruction (ld.global.u32) is no declaration. */
		if (isspace((unsigned char)*at) && (at - 7 == text || isspace(at[-8])) &&
		    !read_declaration(at, variables))
			return false;
	}
	return true;
}

static bool is_text(const unsigned char *image)
{
	unsigned i;

	for (i = 0; i < 8 && image[i]; i++)
		if (image[i] >= 0x7f || (image[i] < ' ' && !isspace(image[i])))
			return false;
	return i == 8;
}

CUresult sim_image_read(const void *image, struct sim_variable **variables, char **text)
{
	*variables = NULL;
	*text = NULL;
	if (!is_text(image))
		return declare_usual(variables) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	*text = strdup(image);
	if (!*text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (strstr(*text, ".version"))
		return read_text(*text, variables) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	free(*text);
	*text = NULL;
	return declare_usual(variables) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sim_image_has_function(const char *text, const char *name)
{
	const char *at = text;
	size_t length = strlen(name);

	while ((at = strstr(at, ".entry"))) {
		at = skip_blanks(at + 6);
		if (!strncmp(at, name, length) &&
		    (isspace((unsigned char)at[length]) || at[length] == '('))
			return true;
	}
	return false;
}
