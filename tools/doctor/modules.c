// SPDX-License-Identifier: MIT
/* pindown doctor: checks pindown.ko, the peer-memory modules and device files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/base/memory.h"
#include "kmod/pindown_ioctl.h"

/* ---- pindown.ko ----------------------------------------------------------------------------- */

static char *parameters_of(const char *module)
{
	struct texts names = tree_list("sys/module/%s/parameters", module);
	char *all = NULL;

	for (unsigned i = 0; i < names.count; i++) {
		char *value = tree_read("sys/module/%s/parameters/%s", module, names.list[i]);
		char *both = text_of("%s=%s", names.list[i], value ? value : "?");

		all = text_listed(all, both);
		release(both);
		release(value);
	}
	texts_free(&names);
	return all;
}

#define NEEDS_OPEN "it needs the open kernel modules of driver 535.146.02, 550.40.07 or newer"

static const char *advice_for(int error)
{
	switch (error) {
	case ENOENT:
		return "in a container, add --device=/dev/pindown";
	case ENODEV:
		return "load nvidia.ko; if that fails, the kernel log (dmesg) says why";
	default:
		return "check its permissions; see 70-pindown.rules in pindown(4)";
	}
}

static void ask_device(struct doctor *doctor)
{
	struct pindown_version version = {.size = sizeof(version)};
	int fd = open(PINDOWN_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		found(doctor, PROBLEM, "pindown.ko", advice_for(errno), "loaded, but %s: %s",
		      PINDOWN_DEVICE, strerror(errno));
		return;
	}
	if (ioctl(fd, PINDOWN_IOC_VERSION, &version) != 0)
		found(doctor, PROBLEM, "pindown.ko", "load the module of this pindown's version",
		      "%s does not understand this pindown: %s", PINDOWN_DEVICE, strerror(errno));
	else if (version.abi != PINDOWN_ABI)
		found(doctor, PROBLEM, "pindown.ko", "load the module of this pindown's version",
		      "%s has version %u of the interface, and this pindown uses %u: nothing is "
		      "pinned by it",
		      PINDOWN_DEVICE, version.abi, PINDOWN_ABI);
	else if (version.capabilities & PINDOWN_CAP_SIMULATED)
		found(doctor, NOTE, "pindown.ko", "use it in tests only",
		      "built to accept a simulated driver");
	else if (!(version.capabilities & PINDOWN_CAP_PERSISTENT))
		found(doctor, NOTE, "pindown.ko", NULL,
		      "this driver has no persistent pins, so a pinned region has no dma-buf");
	close(fd);
}

static void not_loaded(struct doctor *doctor)
{
	const struct version *driver = &doctor->driver;

	if (doctor->is_wsl)
		found(doctor, NOTE, "pindown.ko", NULL, "not loaded, and of no use in WSL");
	else if (!doctor->has_driver && !has_gpu(doctor))
		found(doctor, NOTE, "pindown.ko", NULL,
		      "not loaded, and there is no NVIDIA GPU that needs it");
	else if (!doctor->has_driver && doctor->cuda.state != CUDA_THERE)
		found(doctor, NOTE, "pindown.ko", NULL,
		      "not loaded, and it needs the NVIDIA driver first");
	else if (!doctor->has_driver || doctor->exports_for_gpl)
		found(doctor, NOTE, "pindown.ko",
		      "modprobe pindown: the kernel then reports frees that no preload sees",
		      "not loaded: memory is pinned by the driver's dma-buf export");
	else if (!doctor->is_open)
		found(doctor, NOTE, "pindown.ko", NEEDS_OPEN,
		      "not loaded: memory is pinned by the driver's dma-buf export");
	else
		found(doctor, NOTE, "pindown.ko", NEEDS_OPEN,
		      "not loaded: driver %u.%02u.%02u does not export its symbols with "
		      "EXPORT_SYMBOL_GPL, and pindown.ko can't use others",
		      driver->part[0], driver->part[1], driver->part[2]);
}

static void about_pindown(struct doctor *doctor)
{
	char *version, *parameters;

	if (!tree_has("sys/module/pindown")) {
		not_loaded(doctor);
		return;
	}
	version = tree_read("sys/module/pindown/version");
	parameters = parameters_of("pindown");
	found(doctor, GOOD, "pindown.ko", NULL, "%s%s%s", version ? version : "loaded",
	      parameters ? ", " : "", parameters ? parameters : "");
	release(version);
	release(parameters);
	if (tree_is_live())
		ask_device(doctor);
}

/* ---- peer memory (§3.7) --------------------------------------------------------------------- */

#define REMOVE_OLD                                                                  \
	"service nv_peer_mem stop; rmmod nv_peer_mem; remove its package (dpkg -P " \
	"nvidia-peer-memory nvidia-peer-memory-dkms, or rpm -e nvidia_peer_memory)"

static bool has_rdma(void)
{
	struct texts names = tree_list("sys/class/infiniband");
	bool has = names.count != 0;

	texts_free(&names);
	return has;
}

static void about_peermem(struct doctor *doctor)
{
	bool new = tree_has("sys/module/nvidia_peermem"), old = tree_has("sys/module/nv_peer_mem");

	doctor->has_peermem = new || old;
	if (new &&old)
		found(doctor, PROBLEM, "peer memory", REMOVE_OLD,
		      "nvidia-peermem and nv_peer_mem are both loaded, but only one can work");
	else if (old)
		found(doctor, PROBLEM, "peer memory", REMOVE_OLD "; then modprobe nvidia-peermem",
		      "nv_peer_mem is loaded, but nvidia-peermem has replaced it");
	else if (new && !tree_has("sys/kernel/mm/memory_peers"))
		found(doctor, NOTE, "peer memory",
		      "if registrations fail: install the GPU driver again after MLNX_OFED, so "
		      "that it is built with the interface of MLNX_OFED",
		      "nvidia-peermem is loaded, but the RDMA drivers list no peer-memory client");
	else if (new)
		found(doctor, GOOD, "peer memory", NULL, "nvidia-peermem is loaded");
	else if (doctor->has_rdma)
		found(doctor, NOTE, "peer memory",
		      "libraries that register by address, not by dma-buf, need it: modprobe "
		      "nvidia-peermem",
		      "neither nvidia-peermem nor nv_peer_mem is loaded");
	else
		found(doctor, NOTE, "peer memory", NULL,
		      "not loaded, and there is no RDMA device that needs it");
}

/* ---- device files, which a container may lack ----------------------------------------------- */

static void about_device_files(struct doctor *doctor)
{
	struct texts verbs = tree_list("sys/class/infiniband_verbs");
	unsigned there = 0, all = 0;

	if (!tree_has("dev")) {
		texts_free(&verbs);
		return;
	}
	for (unsigned i = 0; i < verbs.count; i++) {
		if (strncmp(verbs.list[i], "uverbs", 6) != 0)
			continue;
		all++;
		there += tree_has("dev/infiniband/%s", verbs.list[i]);
	}
	doctor->lacks_verbs = all && !there;
	if (all && there < all)
		found(doctor, PROBLEM, "RDMA devices",
		      "in a container, add --device=/dev/infiniband; else load ib_uverbs",
		      "/dev/infiniband has %u of %u", there, all);
	else if (all)
		found(doctor, GOOD, "RDMA devices", NULL, "%u in /dev/infiniband", all);
	else
		found(doctor, NOTE, "RDMA devices", NULL, "none");
	if (doctor->has_driver && !tree_has("dev/nvidiactl"))
		found(doctor, PROBLEM, "GPU devices",
		      "in a container, add --gpus all; else run nvidia-modprobe -u -c 0",
		      "/dev/nvidiactl is missing");
	texts_free(&verbs);
}

void examine_modules(struct doctor *doctor)
{
	doctor->has_rdma = has_rdma();
	about_pindown(doctor);
	about_peermem(doctor);
	examine_cards(doctor);
	about_device_files(doctor);
}
