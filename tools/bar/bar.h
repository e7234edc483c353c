/* SPDX-License-Identifier: MIT */
/* Declarations that the parts of `pindown bar` share. */
#ifndef BAR_H
#define BAR_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/texts.h"

/* ---- pindown.ko (module.c) ------------------------------------------------------------------- */

/* The pins of one process on one GPU. */
struct module_pin {
	uint32_t pid;
	uint64_t bytes, regions;
	char uuid[40]; /* without "GPU-" */
};

struct module_pins {
	struct module_pin *list;
	unsigned count, capacity;
	bool is_loaded, is_told; /* is_told: the list could be read */
};

/* Reads the module's list in debugfs, which only root can read. */
void module_pins_read(struct module_pins *pins);

/* ---- a trace (sites.c) ------------------------------------------------------------------------ */

/* A place in the program, and the memory pinned from there that still is pinned. */
struct site {
	const char *name;
	uint64_t bytes, regions;
};

struct sites {
	struct site *list; /* most bytes first */
	unsigned count, capacity;
};

/* False, after a line for each file, when no file can be read. */
bool sites_read(struct sites *sites, const struct texts *traces);

#endif
