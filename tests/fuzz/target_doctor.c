// SPDX-License-Identifier: MIT
/*
 * For fuzz.c: pindown doctor on a machine that an input invents. This file stands in the place of
 * tools/system/tree.c: each question about /sys, /proc or /dev is answered by what the kernel might
 * write there, or by a piece of the input, as the input's bytes and the question's path decide. The
 * same question has the same answer throughout an input.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/dice.h"
#include "tests/fuzz/fuzz.h"
#include "tools/base/memory.h"
#include "tools/command.h"
#include "tools/system/tree.h"

static const unsigned char *bytes;
static size_t byte_count;

/* What files hold, by the last part of their path; "" fits every file. */
static const struct {
	const char *name, *text;
} contents[] = {
	{"vendor", "0x10de"},
	{"vendor", "0x15b3"},
	{"vendor", "0x144d"},
	{"vendor", "0x8086"},
	{"class", "0x030200"},
	{"class", "0x020700"},
	{"class", "0x010802"},
	{"class", "0x060400"},
	{"device", "0x2330"},
	{"numa_node", "-1"},
	{"numa_node", "1"},
	{"type", "DMA"},
	{"type", "identity"},
	{"cpulist", "0-3,8"},
	{"physical_package_id", "0"},
	{"resource", "0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n"
		     "0x0000004000000000 0x0000007fffffffff 0x000000000014220c"},
	{"license", "NVIDIA"},
	{"license", "Dual MIT/GPL"},
	{"version", "550.163.01"},
	{"version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release"},
	{"osrelease", "6.1.0-28-amd64"},
	{"cmdline", "quiet iommu=pt pci=realloc"},
	{"params", "EnableMSI: 1\nRegistryDwords: \"PeerMappingOverride=1\"\nOpenRmEnable: 1"},
	{"limits", "Limit                     Soft Limit           Hard Limit           Units\n"
		   "Max locked memory         8388608              unlimited            bytes"},
	{"maps", "7f0000000000-7f0000001000 r-xp 00000000 08:01 42   /usr/lib/libcuda.so.1"},
	{"mountinfo", "36 35 259:1 / /data rw,noatime shared:1 - ext4 /dev/nvme0n1p1 rw\n"
		      "37 35 0:40 / /net rw - nfs4 server:/ rw,proto=rdma"},
	{"kallsyms", "ffffffffc0000000 T nvidia_p2p_get_pages\t[nvidia]"},
	{"ld.so.preload", "/usr/lib/libpindown.so"},
	{"transport", "pcie"},
	{"transport", "rdma"},
	{"address", "0000:41:00.0"},
	{"", ""},
	{"", "1"},
	{"", "0"},
	{"", "-1"},
	{"", "0x"},
	{"", "99999999999999999999"},
	{"", "Y"},
};

/* What folders hold. */
static const char *const names[] = {
	"0000:00:01.0",
	"0000:01:00.0",
	"0000:41:00.0",
	"0001:00:00.0",
	"mlx5_0",
	"mlx5_bond_0",
	"ib0",
	"nvme0n1",
	"nvme0n1p1",
	"md0",
	"cpu0",
	"cpu1",
	"node0",
	"1",
	"2",
	"self",
	"nvidia0",
	"nvidiactl",
	"pindown",
	"uverbs0",
	"sda",
	"4294967296",
	"a:b:c.d",
	"cpu",
	"0000:ff:1f.7",
	"iommu_group",
	"state",
};

/* A source of numbers for a question: it follows from the input and the path. */
static uint64_t state_of(const char *kind, const char *path)
{
	uint64_t state = 1469598103934665603u;

	for (const char *at = kind; *at; at++)
		state = (state ^ (unsigned char)*at) * 1099511628211u;
	for (const char *at = path; *at; at++)
		state = (state ^ (unsigned char)*at) * 1099511628211u;
	for (size_t i = 0; i < byte_count && i < 64; i++)
		state = (state ^ bytes[i]) * 1099511628211u;
	return state;
}

/* A piece of the input. */
static char *piece(uint64_t *state)
{
	size_t from = byte_count ? below(state, byte_count) : 0, length = below(state, 80);
	char *text;

	length = length < byte_count - from ? length : byte_count - from;
	text = allocate(length + 1);
	memcpy(text, bytes + from, length);
	text[length] = '\0';
	return text;
}

/* One of the contents for that file, changed in one place now and then. */
static char *usual(uint64_t *state, const char *path)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *text = "1";
	unsigned fitting = 0;
	char *answer;

	for (unsigned i = 0; i < sizeof(contents) / sizeof(*contents); i++)
		if (strcmp(contents[i].name, name) == 0 && !below(state, ++fitting))
			text = contents[i].text;
	for (unsigned i = 0; !fitting && i < sizeof(contents) / sizeof(*contents); i++)
		if (!contents[i].name[0] && !below(state, i + 1))
			text = contents[i].text;
	answer = allocate(strlen(text) + 1);
	strcpy(answer, text);
	if (text[0] && !below(state, 4))
		answer[below(state, strlen(text))] = (char)below(state, 256);
	return answer;
}

static char *text_at(const char *path)
{
	uint64_t state = state_of("text", path);

	switch (below(&state, 8)) {
	case 0:
		return NULL;
	case 1:
		return piece(&state);
	default:
		return usual(&state, path);
	}
}

#define PATH_FROM(path, format)                                   \
	char path[4096];                                          \
	do {                                                      \
		va_list arguments;                                \
		va_start(arguments, format);                      \
		vsnprintf(path, sizeof(path), format, arguments); \
		va_end(arguments);                                \
	} while (0)

bool tree_set_root(const char *folder)
{
	return folder != NULL;
}

bool tree_is_live(void)
{
	return false;
}

char *tree_read(const char *format, ...)
{
	PATH_FROM(path, format);
	return text_at(path);
}

bool tree_number(int64_t *value, const char *format, ...)
{
	char *text, *end = NULL;

	PATH_FROM(path, format);
	text = text_at(path);
	*value = text ? strtoll(text, &end, 0) : 0;
	end = text && end != text ? end : NULL;
	release(text);
	return end;
}

size_t tree_bytes(void *at, size_t capacity, const char *format, ...)
{
	uint64_t state;
	size_t length;

	PATH_FROM(path, format);
	state = state_of("bytes", path);
	if (capacity > 4096)
		capacity = 4096;
	length = below(&state, 4) ? capacity : below(&state, capacity + 1);
	for (size_t i = 0; i < length; i++)
		((char *)at)[i] = (char)(below(&state, 3) ? below(&state, 256) : 0);
	return length;
}

bool tree_has(const char *format, ...)
{
	uint64_t state;

	PATH_FROM(path, format);
	state = state_of("has", path);
	return below(&state, 4) || strcmp(path, "sys") == 0;
}

struct texts tree_list(const char *format, ...)
{
	struct texts list = {0};
	uint64_t state;

	PATH_FROM(path, format);
	state = state_of("list", path);
	for (uint64_t left = below(&state, 8); left; left--) {
		const char *name = names[below(&state, sizeof(names) / sizeof(*names))];

		if (below(&state, 12)) {
			texts_add(&list, name, strlen(name));
		} else {
			char *own = piece(&state);

			texts_add(&list, own, strlen(own));
			release(own);
		}
	}
	texts_sort(&list);
	return list;
}

char *tree_resolve(const char *format, ...)
{
	uint64_t state;
	char *text;
	size_t used;

	PATH_FROM(path, format);
	state = state_of("resolve", path);
	if (!below(&state, 6))
		return NULL;
	text = allocate(512);
	used = (size_t)sprintf(text, "%s", below(&state, 5) ? "sys/devices/pci0000:00" : "sys");
	for (uint64_t left = below(&state, 6); left; left--)
		used += (size_t)sprintf(text + used, "/%s",
					names[below(&state, sizeof(names) / sizeof(*names))]);
	if (below(&state, 2) && strrchr(path, '/'))
		snprintf(text + used, 512 - used, "%.200s", strrchr(path, '/'));
	return text;
}

char *tree_link(const char *format, ...)
{
	uint64_t state;

	PATH_FROM(path, format);
	state = state_of("link", path);
	return below(&state, 3)
		       ? text_of("%s", names[below(&state, sizeof(names) / sizeof(*names))])
		       : NULL;
}

static void run_doctor(const unsigned char *data, size_t size)
{
	static char doctor[] = "doctor", sysfs[] = "--sysfs=x", json[] = "--json";
	char *words[] = {doctor, sysfs, json, NULL};

	bytes = data;
	byte_count = size;
	command_start(&command_doctor, 2, words);
	command_start(&command_doctor, 3, words);
}

const struct target target_doctor = {
	.name = "doctor",
	.first = "0000:01:00.0 0x10de numa 3",
	.run = run_doctor,
};
