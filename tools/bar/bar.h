/* SPDX-License-Identifier: MIT */
/* What the parts of `pindown bar` share. */
#ifndef BAR_H
#define BAR_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/texts.h"

/* ---- pindown.ko (module.c) ------------------------------------------------------------------- */

/* One process on one GPU. */
struct module_pin {
	uint32_t pid;
	uint64_t bytes, regions;
	char uuid[40]; /* without "GPU-" */
};

struct module_pins {
	struct module_pin *list;
	unsigned count, capacity;
	bool is_loaded, is_told; /* is_told: its list could be read */
};

/* From the module's list in debugfs, which root alone can read. */
void module_pins_read(struct module_pins *pins);

/* ---- a trace (sites.c) ------------------------------------------------------------------------ */

/* A place of the program from which memory was pinned that still is. */
struct site {
	const char *name;
	uint64_t bytes, regions;
};

struct sites {
	struct site *list; /* the most bytes first */
	unsigned count, capacity;
};

/* False when no file can be read, which has been said then. */
bool sites_read(struct sites *sites, const struct texts *traces);

#endif
