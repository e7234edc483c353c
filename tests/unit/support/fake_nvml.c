// SPDX-License-Identifier: MIT
/*
 * A libnvidia-ml.so.1 with three GPUs, compiled by check-bar and check-roots. NVML_INIT and
 * NVML_COUNT: the errors that it answers with. NVML_NOTES: a file in which it notes each question.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *what)
{
	const char *name = getenv("NVML_NOTES");
	int fd = name ? open(name, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;

	if (fd < 0)
		return;
	dprintf(fd, "%s\n", what);
	close(fd);
}

static int told(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text ? atoi(text) : otherwise;
}

#define MIB (1ull << 20)
struct memory {
	unsigned long long total, free, used;
};
struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char text[32];
};

int nvmlInit_v2(void)
{
	note("init");
	return told("NVML_INIT", 0);
}
const char *nvmlErrorString(int error)
{
	return error == 9 ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *to, unsigned capacity)
{
	snprintf(to, capacity, "580.159.04");
	return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *to)
{
	*to = 13000;
	return 0;
}
int nvmlDeviceGetCount_v2(unsigned *to)
{
	note("count");
	*to = 3;
	return told("NVML_COUNT", 0);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to)
{
	*to = (void *)(index + 1ul);
	return 0;
}
int nvmlDeviceGetName(void *device, char *to, unsigned capacity)
{
	snprintf(to, capacity, (long)device == 3 ? "NVIDIA T400" : "NVIDIA H200");
	return 0;
}
int nvmlDeviceGetUUID(void *device, char *to, unsigned capacity)
{
	snprintf(to, capacity, "GPU-00000000-1111-2222-3333-44444444444%ld", (long)device);
	return 0;
}
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *to)
{
	memset(to, 0, sizeof(*to));
	snprintf(to->text, sizeof(to->text), "00000000:%lX7:00.0", 9 + (long)device);
	return 0;
}
int nvmlDeviceGetBAR1MemoryInfo(void *device, struct memory *to)
{
	note("bar1");
	if ((long)device == 3)
		return 3; /* NVML_ERROR_NOT_SUPPORTED */
	*to = (struct memory){262144 * MIB, 0, (long)device == 1 ? MIB : 260000 * MIB};
	return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *to)
{
	*to = (struct memory){143771 * MIB + (long)device, 0, 0};
	return 0;
}
