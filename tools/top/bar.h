/* SPDX-License-Identifier: MIT */
/* pindown top --bar: how much of each GPU's BAR1 is in use, and what each process has pinned. */
#ifndef BAR_H
#define BAR_H

#include "tools/base/texts.h"
#include "tools/system/nvml.h"
#include "tools/system/processes.h"
#include "tools/top/drawing.h"

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

/*
 * ---- a trace (sites.c) ------------------------------------------------------------------------
 */

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

/*
 * ---- the view (bar.c) -------------------------------------------------------------------------
 */

struct bar {
	const char *no_nvml; /* why NVML can't be used; NULL: it can */
	struct nvml nvml;
	struct module_pins module;
	struct sites sites;
	bool has_traces;
};

/* False, after a line for each file, when no trace can be read. */
bool bar_open(struct bar *bar, const struct texts *traces);
void bar_close(struct bar *bar);
/* Looks at all but the processes again. False when the GPUs can't be queried. */
bool bar_look(struct bar *bar);
void bar_print(const struct bar *bar, const struct processes *processes, struct drawing *drawing);
void bar_print_json(const struct bar *bar, const struct processes *processes);

#endif
