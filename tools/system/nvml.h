/* SPDX-License-Identifier: MIT */
/* Facts about the GPUs from NVIDIA's management library, which is opened at run time. */
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

/* NULL when it worked, else why not. The library stays open, and the text allocated. */
const char *nvml_open(void);

/* Reads all values again; false, after one line on standard error, when it fails. */
bool nvml_read(struct nvml *nvml);

#endif
