/* SPDX-License-Identifier: MIT */
/* What the parts of `pindown doctor` share. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include "tools/system/nvml.h"
#include "tools/system/pci.h"
#include "tools/system/tree.h"

enum grade { GOOD, NOTE, PROBLEM };

struct finding {
	enum grade grade;
	const char *topic;
	char *text;
	const char *advice; /* what to do; NULL: nothing */
};

struct version {
	unsigned part[3];
};

struct doctor {
	struct finding *list;
	unsigned count, capacity;
	unsigned grades[3];
	struct pci pci;
	struct nvml nvml; /* count 0 where there is none */
	bool has_driver, is_open;
	bool exports_for_gpl;  /* its peer-to-peer calls: pindown.ko finds no others */
	bool has_rdma;	       /* there is a device of RDMA */
	struct version driver; /* zeroes where it is not known */
	struct version kernel;
};

/* A line of the result. */
void found(struct doctor *doctor, enum grade grade, const char *topic, const char *advice,
	   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Each looks at a part of the machine. The driver goes first: the others depend on what it has. */
void examine_driver(struct doctor *doctor);
void examine_modules(struct doctor *doctor);
void examine_pci(struct doctor *doctor);
void examine_process(struct doctor *doctor);

/* As the driver says, or, where that can't be asked, by the addresses that the firmware gave it. */
uint64_t bar1_size(const struct doctor *doctor, const struct pci_device *gpu);

/* GPUs that it is worth to print paths between; see paths.c. */
void print_paths(const struct doctor *doctor);
void print_paths_json(const struct doctor *doctor);

#endif
