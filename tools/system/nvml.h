/* SPDX-License-Identifier: MIT */
/* What NVIDIA's management library tells of the GPUs. It is found at run time, never linked. */
#ifndef NVML_H
#define NVML_H

#include <stdbool.h>
#include <stdint.h>

struct nvml_gpu {
	char name[96], uuid[96];
	char address[16]; /* 0000:07:00.0, as in sysfs */
	bool has_bar1;
	uint64_t bar1_total, bar1_used, memory_total;
};

struct nvml {
	struct nvml_gpu *gpus;
	unsigned count;
	char driver[80]; /* 580.159.04 */
	int cuda;	 /* 13000 */
};

/* NULL when it worked, else a sentence's end: why not. What it allocates lives on. */
const char *nvml_open(void);

/* Anew; false, after one line on standard error, when it does not answer any more. */
bool nvml_read(struct nvml *nvml);

#endif
