/* SPDX-License-Identifier: MIT */
/* Declarations that the parts of `pindown doctor` share. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include "tools/system/nvml.h"
#include "tools/system/pci.h"
#include "tools/system/tree.h"
#include "tools/doctor/try.h"

enum grade { GOOD, NOTE, PROBLEM };

struct finding {
	enum grade grade;
	const char *topic;
	char *text;
	char *advice; /* what to do, or NULL */
};

struct version {
	unsigned part[3];
};

/* What the CUDA driver says of its devices. */
enum cuda_state { CUDA_UNASKED, CUDA_MISSING, CUDA_NO_GPU, CUDA_THERE };

struct cuda_facts {
	enum cuda_state state;
	int gpus, with_rdma;
	struct texts coherent; /* PCI addresses of GPUs whose memory the processor reaches too */
};

enum verdict { FIT, LIMITED, UNFIT };

struct doctor {
	struct finding *list;
	unsigned count, capacity;
	unsigned grades[3];
	struct pci pci;
	struct nvml nvml; /* count is 0 without NVML */
	bool is_wsl;	  /* Windows has the driver and the GPUs */
	bool has_driver, is_open;
	bool is_simulated;   /* libcuda is the simulated driver of pindown's tests */
	bool exports_dmabuf; /* at least one GPU's memory can become a dma-buf */
	bool has_peermem;    /* nvidia-peermem or nv_peer_mem is loaded */
	bool lacks_verbs;    /* /dev/infiniband has none of the RDMA devices */
	struct cuda_facts cuda;
	const struct trials *trials; /* of --try, or NULL */
	bool exports_for_gpl;  /* exports its peer-to-peer calls GPL-only, as pindown.ko needs */
	bool has_rdma;	       /* there is an RDMA device */
	const char *no_card;   /* why no card can be used, or NULL */
	struct version driver; /* zeroes when unknown */
	struct version kernel;
	bool old_kernel; /* can't register a dma-buf */
};

bool version_before(const struct version *version, unsigned major, unsigned minor, unsigned patch);

/* Adds a line to the result. */
void found(struct doctor *doctor, enum grade grade, const char *topic, const char *advice,
	   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Each checks a part of the machine. The driver is first: the others use its results. */
void examine_driver(struct doctor *doctor);
void examine_modules(struct doctor *doctor);
void examine_cards(struct doctor *doctor); /* knows already whether nvidia-peermem is loaded */
void examine_pci(struct doctor *doctor);
void examine_process(struct doctor *doctor);

/*
 * CUDA finds no GPU, by the result of that call into that library; 0: it counts none. `version`:
 * "13.0, but ", or "" (cuda_errors.c).
 */
void about_cuda_error(struct doctor *doctor, const char *version, const char *call,
		      const char *library, int error);

/* Is there an NVIDIA GPU, as far as PCI or CUDA shows it? After examine_driver() (verdict.c). */
bool has_gpu(const struct doctor *doctor);

/* The verdict on the machine; `why` gets what limits or prevents GPUDirect RDMA (verdict.c). */
enum verdict judge(const struct doctor *doctor, struct texts *why);

/* The size that NVML reports; without NVML, the size of the BAR's address range. */
uint64_t bar1_size(const struct doctor *doctor, const struct pci_device *gpu);

/* Which mapping pindown takes for dma-bufs of a GPU, for a card (mapping.c). */
void examine_mapping(struct doctor *doctor);
bool mapping_is_known(const struct doctor *doctor);
const char *mapping_for(const struct doctor *doctor, const struct pci_device *gpu,
			const struct pci_device *card);

/* Print the paths between GPUs and other devices (paths.c). */
void print_paths(const struct doctor *doctor);
void print_paths_json(const struct doctor *doctor);

#endif
