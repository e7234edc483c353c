/* SPDX-License-Identifier: MIT */
/* Declarations that the parts of `pindown doctor` share. */
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
	const char *advice; /* what to do, or NULL */
};

struct version {
	unsigned part[3];
};

struct doctor {
	struct finding *list;
	unsigned count, capacity;
	unsigned grades[3];
	struct pci pci;
	struct nvml nvml; /* count is 0 without NVML */
	bool has_driver, is_open;
	bool exports_for_gpl;  /* exports its peer-to-peer calls GPL-only, as pindown.ko needs */
	bool has_rdma;	       /* there is an RDMA device */
	struct version driver; /* zeroes when unknown */
	struct version kernel;
};

/* Adds a line to the result. */
void found(struct doctor *doctor, enum grade grade, const char *topic, const char *advice,
	   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Each checks a part of the machine. The driver is first: the others use its results. */
void examine_driver(struct doctor *doctor);
void examine_modules(struct doctor *doctor);
void examine_pci(struct doctor *doctor);
void examine_process(struct doctor *doctor);

/* The size that NVML reports; without NVML, the size of the BAR's address range. */
uint64_t bar1_size(const struct doctor *doctor, const struct pci_device *gpu);

/* Print the paths between GPUs and other devices (paths.c). */
void print_paths(const struct doctor *doctor);
void print_paths_json(const struct doctor *doctor);

#endif
