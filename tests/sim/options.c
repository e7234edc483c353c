/* SPDX-License-Identifier: MIT */
/* The environment variables with the options of the simulation; sim.h lists them. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

struct sim_options sim_options = {
	.devices = 2,
	.memory = 8ull << 30,
	.pin_bytes = UINT64_MAX,
	.export_cloexec = true,
	.export_default = true,
	.dma_buf = true,
	.rdma = true,
	.addresses = 1ull << 40,
	.rdma_page = 2ull << 20,
	.driver_version = 13000,
};

void sim_complain(const char *format, ...)
{
	char line[300];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	if (write(2, line, length) != length)
		return; /* there is no reader */
}

static bool parse_number(const char *text, uint64_t *number)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 0);
	if (errno || end == text || *text == '-')
		return false;
	if (!*end)
		return true;
	suffix = strchr(suffixes, *end);
	if (!suffix || end[1])
		return false;
	*number <<= 10 * (suffix - suffixes + 1);
	return true;
}

/* Refuses a value outside [low, high] in one line, and keeps the default. */
static void read_number(const char *name, uint64_t low, uint64_t high, uint64_t *value)
{
	const char *text = getenv(name);
	uint64_t number;

	if (!text || !*text)
		return;
	if (!parse_number(text, &number) || number < low || number > high) {
		sim_complain("simulated libcuda: %s=%s: a number from %llu to %llu (K, M, G, T) is "
			     "accepted; using %llu",
			     name, text, (unsigned long long)low, (unsigned long long)high,
			     (unsigned long long)*value);
		return;
	}
	*value = number;
}

/* ---- platforms ------------------------------------------------------------------------------ */

/*
 * As docs/manual/platforms.md says, with the sources. What is in no source is the least that may
 * be.
 */
static void be_grace_hopper(void)
{
	sim_options.coherent = true; /* BAR1 is disabled: there is no PCIe mapping */
}

static void be_grace_blackwell(void)
{
	sim_options.coherent = true;
	sim_options.export_pcie = 1;
}

/* A process sees one instance. */
static void be_mig(void)
{
	sim_options.devices = 1;
}

static void be_vgpu(void)
{
	sim_options.dma_buf = sim_options.rdma = false;
}

/* Devices say that they export memory, and refuse each export. */
static void be_confidential(void)
{
	sim_options.rdma = false;
	sim_options.export_default = false;
}

static const struct platform {
	const char *name;
	void (*be)(void);
} platforms[] = {
	{"grace-hopper", be_grace_hopper},
	{"grace-blackwell", be_grace_blackwell},
	{"mig", be_mig},
	{"vgpu", be_vgpu},
	{"cc", be_confidential},
};

static void read_platform(void)
{
	const char *text = getenv("SIM_PLATFORM");

	if (!text || !*text)
		return;
	for (unsigned i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++) {
		if (strcmp(text, platforms[i].name) == 0) {
			platforms[i].be();
			return;
		}
	}
	sim_complain("simulated libcuda: SIM_PLATFORM=%s: grace-hopper, grace-blackwell, mig, vgpu "
		     "or cc is accepted; using none",
		     text);
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Set in the libraries that have one driver's exports: tests/editions/build.mk. */
extern const int sim_edition __attribute__((weak));

/* The variables of single options count for more than the platform. */
static void read_numbers(void)
{
	uint64_t devices = sim_options.devices;
	uint64_t version = &sim_edition ? sim_edition : sim_options.driver_version;
	uint64_t cloexec = sim_options.export_cloexec;
	uint64_t pcie = (uint64_t)sim_options.export_pcie;
	uint64_t plain = sim_options.export_default;
	uint64_t coherent = sim_options.coherent;
	uint64_t rdma_flag = sim_options.rdma_flag;
	uint64_t checkpoint = sim_options.checkpoint;

	read_number("SIM_DEVICES", 0, 16, &devices);
	read_number("SIM_MEMORY", 64ull << 20, 256ull << 30, &sim_options.memory);
	read_number("SIM_ADDRESSES", 16ull << 30, 1ull << 40, &sim_options.addresses);
	read_number("SIM_PIN_BYTES", 0, UINT64_MAX, &sim_options.pin_bytes);
	read_number("SIM_EXPORT_CLOEXEC", 0, 1, &cloexec);
	read_number("SIM_EXPORT_PCIE", 0, 2, &pcie);
	read_number("SIM_EXPORT_DEFAULT", 0, 1, &plain);
	read_number("SIM_COHERENT", 0, 1, &coherent);
	read_number("SIM_RDMA_FLAG", 0, SIM_RDMA_FLAG_UNKNOWN, &rdma_flag);
	read_number("SIM_RDMA_PAGE", 2ull << 20, 1ull << 30, &sim_options.rdma_page);
	read_number("SIM_LOST_HINTS", 0, UINT64_MAX, &sim_options.lost_hints);
	read_number("SIM_DRIVER_VERSION", 11000, 13090, &version);
	read_number("SIM_CHECKPOINT", 0, 1, &checkpoint);
	sim_options.devices = devices;
	sim_options.driver_version = version;
	sim_options.export_cloexec = cloexec;
	sim_options.export_pcie = (int)pcie;
	sim_options.export_default = plain;
	sim_options.coherent = coherent;
	sim_options.rdma_flag = rdma_flag;
	sim_options.checkpoint = checkpoint;
	sim_options.memory &= ~((2ull << 20) - 1);
	sim_options.rdma_page &= ~((2ull << 20) - 1);
}

static void read_overlaps(void)
{
	const char *text = getenv("SIM_OVERLAPS");

	sim_options.overlaps_allowed = text && !strcmp(text, "allowed");
	if (text && *text && !sim_options.overlaps_allowed)
		sim_complain("simulated libcuda: SIM_OVERLAPS=%s: allowed is accepted; aborting "
			     "where a call meets a free of its memory",
			     text);
}

void sim_read_options(void)
{
	read_overlaps();
	read_platform();
	read_numbers();
}
