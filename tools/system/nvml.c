// SPDX-License-Identifier: MIT
/* Asks NVIDIA's management library about the GPUs. */
#define _GNU_SOURCE
#include "tools/system/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"

/* ---- the library's interface, as far as it is used ------------------------------------------ */

typedef int result; /* 0: success */
typedef struct device *device;

struct bar1 {
	unsigned long long total, free, used;
};

struct memory {
	unsigned long long total, free, used;
};

struct address {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char text[32];
};

static struct {
	result (*init)(void);
	const char *(*error)(result);
	result (*driver_version)(char *, unsigned);
	result (*cuda_version)(int *);
	result (*count)(unsigned *);
	result (*by_index)(unsigned, device *);
	result (*name)(device, char *, unsigned);
	result (*uuid)(device, char *, unsigned);
	result (*address)(device, struct address *);
	result (*bar1)(device, struct bar1 *);
	result (*memory)(device, struct memory *);
} call;

static const struct {
	const char *name;
	void *slot;
} functions[] = {
	{"nvmlInit_v2", &call.init},
	{"nvmlErrorString", &call.error},
	{"nvmlSystemGetDriverVersion", &call.driver_version},
	{"nvmlSystemGetCudaDriverVersion_v2", &call.cuda_version},
	{"nvmlDeviceGetCount_v2", &call.count},
	{"nvmlDeviceGetHandleByIndex_v2", &call.by_index},
	{"nvmlDeviceGetName", &call.name},
	{"nvmlDeviceGetUUID", &call.uuid},
	{"nvmlDeviceGetPciInfo_v3", &call.address},
	{"nvmlDeviceGetBAR1MemoryInfo", &call.bar1},
	{"nvmlDeviceGetMemoryInfo", &call.memory},
};

const char *nvml_open(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	result error;

	if (!library)
		return "libnvidia-ml.so.1 is not on this machine: there is no NVIDIA driver, or "
		       "this "
		       "container was not given it";
	for (unsigned i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *found = dlsym(library, functions[i].name);

		if (!found)
			return text_of("libnvidia-ml.so.1 has no %s", functions[i].name);
		memcpy(functions[i].slot, &found, sizeof(found));
	}
	error = call.init();
	return error ? text_of("libnvidia-ml.so.1 says: %s", call.error(error)) : NULL;
}

/* "00000000:07:00.0" as sysfs has it. */
static void short_address(char *to, size_t capacity, const char *from)
{
	size_t length = strlen(from), skip = length > 12 ? length - 12 : 0, i;

	for (i = 0; from[skip + i] && i + 1 < capacity; i++)
		to[i] = (char)tolower((unsigned char)from[skip + i]);
	to[i] = '\0';
}

static void read_gpu(struct nvml_gpu *gpu, device handle)
{
	struct address address = {.domain = 0};
	struct memory memory = {.total = 0};
	struct bar1 bar1 = {.total = 0};

	call.name(handle, gpu->name, sizeof(gpu->name));
	call.uuid(handle, gpu->uuid, sizeof(gpu->uuid));
	if (call.address(handle, &address) == 0)
		short_address(gpu->address, sizeof(gpu->address), address.text);
	gpu->has_bar1 = call.bar1(handle, &bar1) == 0;
	gpu->bar1_total = bar1.total;
	gpu->bar1_used = bar1.used;
	if (call.memory(handle, &memory) == 0)
		gpu->memory_total = memory.total;
}

bool nvml_read(struct nvml *nvml)
{
	result error = call.count(&nvml->count);

	release(nvml->gpus);
	nvml->gpus = NULL;
	if (error) {
		nvml->count = 0;
		complain("libnvidia-ml.so.1 can't count the GPUs: %s", call.error(error));
		return false;
	}
	call.driver_version(nvml->driver, sizeof(nvml->driver));
	call.cuda_version(&nvml->cuda);
	nvml->gpus = allocate((nvml->count + 1) * sizeof(*nvml->gpus));
	for (unsigned i = 0; i < nvml->count; i++) {
		device handle;

		if (call.by_index(i, &handle) == 0)
			read_gpu(&nvml->gpus[i], handle);
	}
	return true;
}
