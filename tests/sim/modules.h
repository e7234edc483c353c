/* SPDX-License-Identifier: MIT */
/* Code and its global variables. All functions need the API lock. */
#ifndef SIM_MODULES_H
#define SIM_MODULES_H

#include <stdbool.h>
#include <stdint.h>

#include "memory.h"

struct sim_context;
struct sim_library;

struct sim_variable {
	char name[64];
	uint64_t size;
	bool managed;
	struct sim_alloc *alloc;
	struct sim_variable *next;
};

struct sim_function {
	struct sim_module *module;
	char name[128];
	struct sim_function *next;
};

struct sim_module {
	struct sim_context *context;
	struct sim_library *library; /* NULL: the program unloads it */
	struct sim_heap heap;	     /* of the variables */
	struct sim_variable *variables;
	struct sim_function *functions;
	char *text; /* NULL: not text, any function can be found in it */
};

/* image.c: the variables that an image declares; NULL-terminated text is kept in *text. */
CUresult sim_image_read(const void *image, struct sim_variable **variables, char **text);
bool sim_image_has_function(const char *text, const char *name);

CUresult sim_module_load(const void *image, struct sim_module **module);
void sim_module_unload(struct sim_module *module);
struct sim_variable *sim_module_variable(struct sim_module *module, const char *name);
CUresult sim_module_function(struct sim_module *module, const char *name, CUfunction *function);
CUresult sim_read_file(const char *name, char **contents);

/* libraries.c: a context that has a module of a library ends. */
void sim_libraries_module_ended(struct sim_module *module);

#endif
