/* SPDX-License-Identifier: MIT */
/* The driver's attributes of a pointer, in words that don't depend on its address. */
#include <string.h>
#include <unistd.h>

#include "facts.h"

uint64_t id_of(CUdeviceptr ptr)
{
	uint64_t id = 0;

	return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr) == CUDA_SUCCESS ? id
											       : 0;
}

CUresult export_range(CUdeviceptr ptr, uint64_t size)
{
	int fd = -1;
	CUresult result = cuMemGetHandleForAddressRange(&fd, ptr, size,
							CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	if (result == CUDA_SUCCESS)
		close(fd);
	return result;
}

long free_mib(void)
{
	size_t left = 0, total;

	cuMemGetInfo_v2(&left, &total);
	return (long)(left >> 20);
}

static const struct attribute {
	CUpointer_attribute number;
	const char *name;
	int bytes;
	bool pointer; /* compare with NULL and ptr, don't print */
} attributes[] = {
	{CU_POINTER_ATTRIBUTE_CONTEXT, "context", 8, true},
	{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory type", 4, false},
	{CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "device pointer", 8, true},
	{CU_POINTER_ATTRIBUTE_HOST_POINTER, "host pointer", 8, true},
	{CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync memops", 4, false},
	{CU_POINTER_ATTRIBUTE_BUFFER_ID, "buffer id", 8, true},
	{CU_POINTER_ATTRIBUTE_IS_MANAGED, "is managed", 4, false},
	{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device ordinal", 4, false},
	{CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "legacy ipc capable", 4, false},
	{CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "range start", 8, true},
	{CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range size", 8, false},
	{CU_POINTER_ATTRIBUTE_MAPPED, "mapped", 4, false},
	{CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "allowed handle types", 8, false},
	{CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "rdma capable", 4, false},
	{CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "access flags", 4, false},
	{CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "pool", 8, true},
	{CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "mapping size", 8, false},
	{CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, "mapping base", 8, true},
};

static void describe_value(char *text, size_t capacity, const struct attribute *attribute,
			   uint64_t value, CUdeviceptr ptr)
{
	if (!attribute->pointer)
		snprintf(text, capacity, "%lld",
			 attribute->bytes == 4 ? (long long)(int)value : (long long)value);
	else if (!value)
		snprintf(text, capacity, "none");
	else if (value == ptr)
		snprintf(text, capacity, "itself");
	else
		snprintf(text, capacity, "some");
}

void describe(const char *what, CUdeviceptr ptr)
{
	unsigned on = 1;
	CUdeviceptr base = 0;
	size_t size = 0, i;
	CUresult result;
	char question[128], text[64];
	const char *error;

	for (i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		uint64_t value = 0;

		result = cuPointerGetAttribute(&value, attributes[i].number, ptr);
		describe_value(text, sizeof(text), &attributes[i], value, ptr);
		if (result != CUDA_SUCCESS) {
			cuGetErrorName(result, &error);
			snprintf(text, sizeof(text), "%s", error);
		}
		snprintf(question, sizeof(question), "%s, %s", what, attributes[i].name);
		say(question, "%s", text);
	}
	snprintf(question, sizeof(question), "%s, set sync memops", what);
	answer(question, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	snprintf(question, sizeof(question), "%s, address range", what);
	result = cuMemGetAddressRange_v2(&base, &size, ptr);
	if (result == CUDA_SUCCESS)
		say(question, "%lld before, %zu bytes", (long long)(ptr - base), size);
	else
		answer(question, result);
	snprintf(question, sizeof(question), "%s, export of its 64 KiB page", what);
	answer(question, export_range(ptr & ~(64 * KIB - 1), 64 * KIB));
}
