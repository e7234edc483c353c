// SPDX-License-Identifier: MIT
/* pindown doctor: checks the NVIDIA driver, CUDA, and their support for GPUDirect RDMA. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "tools/doctor/doctor.h"
#include "tools/base/memory.h"

static bool version_parse(const char *text, struct version *version)
{
	*version = (struct version){{0}};
	return text && sscanf(text, "%u.%u.%u", &version->part[0], &version->part[1],
			      &version->part[2]) >= 2;
}

bool version_before(const struct version *version, unsigned major, unsigned minor, unsigned patch)
{
	const unsigned other[3] = {major, minor, patch};

	for (unsigned i = 0; i < 3; i++)
		if (version->part[i] != other[i])
			return version->part[i] < other[i];
	return false;
}

/* ---- the kernel's part ---------------------------------------------------------------------- */

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..." */
static const char *find_version(const char *line)
{
	for (; *line; line++) {
		size_t digits = strspn(line, "0123456789");

		if (digits >= 3 && line[digits] == '.' && isdigit((unsigned char)line[digits + 1]))
			return line;
		line += digits ? digits - 1 : 0;
	}
	return NULL;
}

static bool lacks_persistent_pins(const struct version *driver)
{
	if (driver->part[0] == 525)
		return version_before(driver, 525, 105, 17);
	return version_before(driver, 535, 14, 0);
}

/* Whether it uses EXPORT_SYMBOL_GPL: symbol_get() gives a module no other symbols. */
static bool exports_for_gpl(const struct version *driver)
{
	/* 535.43 is a separate branch for developers. */
	if (driver->part[0] == 535 && driver->part[1] == 43)
		return !version_before(driver, 535, 43, 24);
	if (driver->part[0] == 535)
		return !version_before(driver, 535, 146, 2);
	return !version_before(driver, 550, 40, 7);
}

static void about_driver(struct doctor *doctor, const char *text)
{
	const char *version = find_version(text);
	int length = version ? (int)strspn(version, "0123456789.") : 0;

	doctor->has_driver = true;
	doctor->is_open = strstr(text, "Open Kernel Module") != NULL;
	doctor->exports_for_gpl = doctor->is_open && (!version_parse(version, &doctor->driver) ||
						      exports_for_gpl(&doctor->driver));
	if (doctor->is_open)
		found(doctor, GOOD, "NVIDIA driver", NULL, "%.*s, open kernel module", length,
		      version);
	else
		found(doctor, PROBLEM, "NVIDIA driver",
		      "install the open kernel modules (nvidia-open): dma-buf export and "
		      "pindown.ko need them",
		      "%.*s, proprietary kernel module", length, version ? version : "");
	if (version && doctor->driver.part[0] >= 515 && lacks_persistent_pins(&doctor->driver))
		found(doctor, PROBLEM, "NVIDIA driver",
		      "install 525.105.17, 535.14 or newer: older drivers have no persistent pins, "
		      "and an unpin that races with a free can crash the kernel",
		      "%.*s has a race between put_pages and the free callback", length, version);
}

static void no_driver(struct doctor *doctor)
{
	if (doctor->is_wsl)
		found(doctor, PROBLEM, "NVIDIA driver",
		      "use Linux itself, or a virtual machine that is given the GPU",
		      "Windows has it: this is WSL, which has no GPUDirect RDMA");
	else if (pci_count(&doctor->pci, PCI_GPU))
		found(doctor, PROBLEM, "NVIDIA driver",
		      "install NVIDIA's driver with the open kernel modules, and load it: modprobe "
		      "nvidia",
		      "there is a GPU, but no driver is loaded");
	else if (doctor->pci.taken.count)
		found(doctor, NOTE, "NVIDIA driver", NULL, "none is loaded");
	else
		found(doctor, NOTE, "NVIDIA driver", NULL,
		      "none is loaded, and there is no NVIDIA GPU");
}

/* Other drivers' GPUs: a virtual machine's (vfio-pci), or nouveau's. */
static void about_taken(struct doctor *doctor)
{
	char *all = NULL;

	for (unsigned i = 0; i < doctor->pci.taken.count; i++)
		all = text_listed(all, doctor->pci.taken.list[i]);
	if (all)
		found(doctor, NOTE, "other GPUs",
		      "to use them here, give them to the driver nvidia: driverctl set-override, "
		      "or blacklist nouveau",
		      "another driver has them: %s", all);
	release(all);
}

/* ---- CUDA ----------------------------------------------------------------------------------- */

enum {
	WITH_VMM = 110, /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
	RDMA = 116,	/* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED */
	DMA_BUF = 124,	/* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
	COHERENT = 100, /* CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES */
	PCI_DOMAIN = 50,
	PCI_BUS = 33,
	PCI_SLOT = 34,
};

struct cuda {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*count)(int *);
	int (*device)(int *, int);
	int (*attribute)(int *, int, int);
	int (*name)(char *, int, int); /* may be missing */
};

static bool open_cuda(struct cuda *cuda)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		return false;
	*(void **)&cuda->init = dlsym(library, "cuInit");
	*(void **)&cuda->version = dlsym(library, "cuDriverGetVersion");
	*(void **)&cuda->count = dlsym(library, "cuDeviceGetCount");
	*(void **)&cuda->device = dlsym(library, "cuDeviceGet");
	*(void **)&cuda->attribute = dlsym(library, "cuDeviceGetAttribute");
	*(void **)&cuda->name = dlsym(library, "cuDeviceGetName");
	return cuda->init && cuda->version && cuda->count && cuda->device && cuda->attribute;
}

static bool has_attribute(const struct cuda *cuda, int gpu, int attribute)
{
	int device, value = 0;

	return cuda->device(&device, gpu) == 0 && cuda->attribute(&value, attribute, device) == 0 &&
	       value;
}

/* The number of devices that have the attribute. */
static int count_having(const struct cuda *cuda, int devices, int attribute)
{
	int having = 0;

	for (int i = 0; i < devices; i++)
		having += has_attribute(cuda, i, attribute);
	return having;
}

/* Notes which GPUs have their memory in the processor's page tables, as on Grace. */
static void note_coherent(struct cuda_facts *facts, const struct cuda *cuda)
{
	for (int i = 0; i < facts->gpus; i++) {
		int device, value = 0, at[3] = {0};
		char address[16];

		if (cuda->device(&device, i) || cuda->attribute(&value, COHERENT, device) ||
		    !value || cuda->attribute(&at[0], PCI_DOMAIN, device) ||
		    cuda->attribute(&at[1], PCI_BUS, device) ||
		    cuda->attribute(&at[2], PCI_SLOT, device))
			continue;
		snprintf(address, sizeof(address), "%04x:%02x:%02x.0", (unsigned)at[0] & 0xffff,
			 (unsigned)at[1] & 0xff, (unsigned)at[2] & 0x1f);
		texts_add_once(&facts->coherent, address);
	}
}

/* The simulated driver of pindown's tests names its devices so. */
static bool is_simulated(const struct cuda *cuda)
{
	static const char start[] = "pindown simulated GPU";
	char name[100] = "";
	int device;

	return cuda->name && cuda->device(&device, 0) == 0 &&
	       cuda->name(name, sizeof(name), device) == 0 &&
	       strncmp(name, start, sizeof(start) - 1) == 0;
}

static void about_support(struct doctor *doctor, const char *what, int having, int devices,
			  const char *advice)
{
	if (having == devices)
		found(doctor, GOOD, what, NULL, "supported by %s",
		      devices == 1 ? "the GPU" : "all GPUs");
	else
		found(doctor, PROBLEM, what, advice, "supported by %d of %d GPUs", having, devices);
}

/* How many devices claim to export memory, and refused it to --try; `attempt` becomes one. */
static int count_refusing(const struct doctor *doctor, const struct cuda *cuda,
			  struct attempt *attempt)
{
	const struct trials_list *tried = &doctor->trials->list;
	int refusing = 0;

	for (int i = 0; i < tried->gpus; i++) {
		if (!tried->export_error[i] || !has_attribute(cuda, i, DMA_BUF))
			continue;
		refusing++;
		attempt_failed(attempt, FROM_CUDA, tried->export_error[i]);
	}
	return refusing;
}

/* Returns the number of GPUs that export memory, as far as is known. */
static int about_exports(struct doctor *doctor, const struct cuda *cuda, int devices)
{
	int claiming = count_having(cuda, devices, DMA_BUF), refusing = 0;
	struct attempt refused = {.stage = STAGE_EXPORT};
	char *error;

	if (doctor->trials)
		refusing = count_refusing(doctor, cuda, &refused);
	if (!refusing) {
		about_support(doctor, "dma-buf export", claiming, devices,
			      "it needs the open kernel modules and CUDA 11.7 or newer");
		return claiming;
	}
	error = attempt_error(&refused);
	found(doctor, PROBLEM, "dma-buf export",
	      "dmesg may say why; with confidential computing (nvidia-smi conf-compute -f) GPUs "
	      "may export nothing",
	      "claimed by %d of %d GPUs, but refused when tried by %d: %s", claiming, devices,
	      refusing, error);
	release(error);
	return claiming - refusing;
}

/* The file that a function is in, all links resolved; for release(). */
static char *file_of(int (*function)(unsigned))
{
	Dl_info info = {0};
	char *real, *file;

	if (!dladdr(*(void **)&function, &info) || !info.dli_fname)
		return text_of("libcuda.so.1");
	real = realpath(info.dli_fname, NULL);
	file = text_of("%s", real ? real : info.dli_fname);
	free(real);
	return file;
}

/* False, after a line, if there is no GPU for CUDA. */
static bool start_cuda(struct doctor *doctor, const struct cuda *cuda, int *version, int *devices)
{
	int no_version = cuda->version(version), error = cuda->init(0);
	bool counts = !error;
	char *known, *file;

	if (counts)
		error = cuda->count(devices);
	if (!error && *devices)
		return true;
	known = no_version ? text_of("%s", "")
			   : text_of("%d.%d, but ", *version / 1000, *version % 1000 / 10);
	file = file_of(cuda->init);
	about_cuda_error(doctor, known, counts ? "cuDeviceGetCount" : "cuInit", file, error);
	release(known);
	release(file);
	return false;
}

static void ask_cuda(struct doctor *doctor)
{
	int version = 0, devices = 0;
	struct cuda cuda;

	doctor->cuda.state = CUDA_MISSING;
	if (!open_cuda(&cuda)) {
		found(doctor, doctor->has_driver ? PROBLEM : NOTE, "CUDA",
		      doctor->has_driver ? "install the driver's user part, or give it to this "
					   "container (--gpus all)"
					 : NULL,
		      "libcuda.so.1 is missing");
		return;
	}
	doctor->cuda.state = CUDA_NO_GPU;
	if (!start_cuda(doctor, &cuda, &version, &devices))
		return;
	doctor->is_simulated = is_simulated(&cuda);
	doctor->cuda.state = CUDA_THERE;
	doctor->cuda.gpus = devices;
	doctor->cuda.with_rdma = count_having(&cuda, devices, RDMA);
	note_coherent(&doctor->cuda, &cuda);
	found(doctor, doctor->is_simulated ? NOTE : GOOD, "CUDA",
	      "these GPUs are software, for tests: LD_LIBRARY_PATH leads to their driver",
	      "%d.%d, %d %sGPU%s", version / 1000, version % 1000 / 10, devices,
	      doctor->is_simulated ? "simulated " : "", devices == 1 ? "" : "s");
	if (doctor->is_wsl)
		return;
	about_support(doctor, "GPUDirect RDMA", doctor->cuda.with_rdma, devices,
		      "only data center and professional GPUs have it");
	doctor->exports_dmabuf = about_exports(doctor, &cuda, devices) && !doctor->old_kernel;
}

/* For another machine's tree: judges by its versions. */
static void expect_dmabuf(struct doctor *doctor)
{
	if (!doctor->has_driver)
		return;
	if (!doctor->is_open || version_before(&doctor->driver, 515, 0, 0))
		found(doctor, PROBLEM, "dma-buf export",
		      "it needs the open kernel modules, 515 or newer",
		      "not supported by this driver");
	else
		found(doctor, GOOD, "dma-buf export", NULL, "this driver should support it");
	doctor->exports_dmabuf = doctor->is_open && !version_before(&doctor->driver, 515, 0, 0) &&
				 !doctor->old_kernel;
}

static void about_kernel(struct doctor *doctor)
{
	char *name = tree_read("proc/sys/kernel/osrelease");

	doctor->is_wsl = tree_has("dev/dxg") || (name && strcasestr(name, "microsoft-standard"));
	if (version_parse(name, &doctor->kernel)) {
		doctor->old_kernel = version_before(&doctor->kernel, 5, 12, 0);
		if (doctor->old_kernel)
			found(doctor, PROBLEM, "Linux",
			      "use Linux 5.12 or newer: older kernels can't register a dma-buf "
			      "with a network card",
			      "%s", name);
		else
			found(doctor, GOOD, "Linux", NULL, "%s", name);
	}
	release(name);
}

void examine_driver(struct doctor *doctor)
{
	char *text = tree_read("proc/driver/nvidia/version"), *version;

	about_kernel(doctor);
	if (text) {
		text[strcspn(text, "\n")] = '\0';
		about_driver(doctor, text);
	} else if ((version = tree_read("sys/module/nvidia/version"))) {
		/* Some containers show only these files. */
		char *license = tree_read("sys/module/nvidia/license");
		char *line =
			text_of("%s %s", version_parse(version, &doctor->driver) ? version : "",
				license && strstr(license, "GPL") ? "Open Kernel Module" : "");

		about_driver(doctor, line);
		release(line);
		release(license);
		release(version);
	} else {
		no_driver(doctor);
	}
	release(text);
	about_taken(doctor);
	if (tree_is_live())
		ask_cuda(doctor);
	else
		expect_dmabuf(doctor);
}
