// SPDX-License-Identifier: MIT
/* Reads the list of regions that pindown.ko has pinned. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tools/top/bar.h"
#include "tools/base/memory.h"
#include "tools/system/tree.h"

#define LIST "sys/kernel/debug/pindown/regions"

static struct module_pin *pin_of(struct module_pins *pins, uint32_t pid, const char *uuid)
{
	struct module_pin *pin;

	for (unsigned i = 0; i < pins->count; i++)
		if (pins->list[i].pid == pid && strcmp(pins->list[i].uuid, uuid) == 0)
			return &pins->list[i];
	pins->list = grow(pins->list, &pins->capacity, pins->count, sizeof(*pins->list));
	pin = &pins->list[pins->count++];
	*pin = (struct module_pin){.pid = pid};
	snprintf(pin->uuid, sizeof(pin->uuid), "%s", uuid);
	return pin;
}

/*
 * A line of "process region address bytes mode state ... gpu"; the first line of the list has these
 * titles. Modules differ in the figures between the state and the GPU.
 */
static void take_line(struct module_pins *pins, const char *line)
{
	const char *uuid = strrchr(line, ' ');
	unsigned long long bytes;
	struct module_pin *pin;
	char state[16];
	unsigned pid;

	if (!uuid || sscanf(line, "%u %*u %*s %llu %*s %15s", &pid, &bytes, state) != 3 ||
	    strcmp(state, "revoked") == 0)
		return;
	pin = pin_of(pins, pid, uuid + 1);
	pin->bytes += bytes;
	pin->regions++;
}

static bool read_list(struct module_pins *pins)
{
	char *text = tree_read(LIST), *rest = text, *line;

	if (!text)
		return false;
	while ((line = strsep(&rest, "\n")))
		take_line(pins, line);
	release(text);
	return true;
}

void module_pins_read(struct module_pins *pins)
{
	pins->count = 0;
	pins->is_told = read_list(pins);
	pins->is_loaded = pins->is_told || tree_has("sys/module/pindown");
}
