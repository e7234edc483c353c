// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bar.h"
#include "memory.h"
#include "pindown_ioctl.h"
#include "tree.h"

#define LIST "sys/kernel/debug/pindown/regions"

static struct module_pin *pin_of(struct module_pins *pins, uint32_t pid, const char *uuid)
{
	struct module_pin *pin;

	for (unsigned i = 0; i < pins->count; i++)
		if (pins->list[i].pid == pid && strcmp(pins->list[i].uuid, uuid) == 0)
			return &pins->list[i];
	pins->list = grow(pins->list, &pins->room, pins->count, sizeof(*pins->list));
	pin = &pins->list[pins->count++];
	*pin = (struct module_pin){.pid = pid};
	snprintf(pin->uuid, sizeof(pin->uuid), "%s", uuid);
	return pin;
}

/* "process region address bytes mode state mappings exports importers gpu", below a line of titles. */
static void take_line(struct module_pins *pins, const char *line)
{
	unsigned long long bytes;
	struct module_pin *pin;
	char state[16], uuid[40];
	unsigned pid;

	if (sscanf(line, "%u %*u %*s %llu %*s %15s %*u %*u %*u %39s", &pid, &bytes, state, uuid) !=
		    4 ||
	    strcmp(state, "revoked") == 0)
		return;
	pin = pin_of(pins, pid, uuid);
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

static void format_uuid(char *text, size_t room, const unsigned char *uuid)
{
	size_t used = 0;

	for (unsigned i = 0; i < 16 && used + 4 < room; i++)
		used += (size_t)snprintf(text + used, room - used, "%s%02x",
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void ask_device(struct module_pins *pins)
{
	struct pindown_stats_all stats;
	uint32_t gpus = 1;
	int fd = open(PINDOWN_DEVICE, O_RDWR | O_CLOEXEC);

	for (uint32_t gpu = 0; fd >= 0 && gpu < gpus; gpu++) {
		struct module_pin *pin;
		char uuid[40];

		memset(&stats, 0, sizeof(stats));
		stats.size = sizeof(stats);
		stats.gpu = gpu;
		if (ioctl(fd, PINDOWN_IOC_STATS, &stats) != 0)
			break;
		gpus = stats.gpus;
		if (gpu >= gpus || !stats.gpu_regions)
			continue;
		format_uuid(uuid, sizeof(uuid), stats.gpu_uuid);
		pin = pin_of(pins, 0, uuid);
		pin->bytes = stats.gpu_bytes;
		pin->regions = stats.gpu_regions;
	}
	if (fd >= 0)
		close(fd);
}

void module_pins_read(struct module_pins *pins)
{
	pins->count = 0;
	pins->by_process = read_list(pins);
	pins->is_loaded = pins->by_process || tree_has("sys/module/pindown");
	if (!pins->by_process && tree_is_live())
		ask_device(pins);
}
