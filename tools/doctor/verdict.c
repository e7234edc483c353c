// SPDX-License-Identifier: MIT
/* pindown doctor: the verdict on the machine, from all that was found. */
#include <string.h>

#include "tools/base/memory.h"
#include "tools/doctor/doctor.h"

bool has_gpu(const struct doctor *doctor)
{
	return pci_count(&doctor->pci, PCI_GPU) || doctor->cuda.state == CUDA_THERE;
}

static const char *why_no_gpu(const struct doctor *doctor)
{
	const struct cuda_facts *cuda = &doctor->cuda;
	bool taken = doctor->pci.taken.count != 0;

	if (doctor->is_wsl)
		return "WSL has none";
	if (doctor->is_simulated)
		return "the CUDA driver is the simulated one";
	if (!doctor->has_driver && cuda->state != CUDA_THERE)
		return has_gpu(doctor) || taken ? "no NVIDIA driver" : "no NVIDIA GPU";
	if (cuda->state == CUDA_UNASKED && doctor->pci.seen && !has_gpu(doctor))
		return taken ? "no GPU of the NVIDIA driver" : "no NVIDIA GPU";
	if (cuda->state == CUDA_MISSING)
		return "no libcuda.so.1";
	if (cuda->state == CUDA_NO_GPU)
		return "no GPU that CUDA can use";
	if (cuda->state == CUDA_THERE && !cuda->with_rdma)
		return "no GPU that supports it";
	if (!doctor->exports_dmabuf && !doctor->has_peermem)
		return "neither dma-buf export nor nvidia-peermem";
	return NULL;
}

static const char *why_no_card(const struct doctor *doctor)
{
	if (!doctor->has_rdma)
		return "no RDMA device";
	if (doctor->no_card)
		return doctor->no_card;
	return doctor->lacks_verbs ? "no RDMA device in /dev/infiniband" : NULL;
}

static void add_problems(const struct doctor *doctor, struct texts *why)
{
	for (unsigned i = 0; i < doctor->count; i++)
		if (doctor->list[i].grade == PROBLEM)
			texts_add_once(why, doctor->list[i].topic);
}

static enum verdict judge_findings(const struct doctor *doctor, struct texts *why)
{
	const char *no_gpu = why_no_gpu(doctor), *no_card = why_no_card(doctor);

	if (no_gpu)
		texts_add_once(why, no_gpu);
	if (no_card)
		texts_add_once(why, no_card);
	if (why->count)
		return UNFIT;
	add_problems(doctor, why);
	return why->count ? LIMITED : FIT;
}

/* The answer of --try is what works, whatever drivers and files claim. */
static enum verdict judge_trials(const struct doctor *doctor, struct texts *why)
{
	const struct trials *trials = doctor->trials;
	unsigned pairs = trials_pairs(trials), working = trials_working(trials);
	char *text;

	if (!trials->list.gpus)
		texts_add_once(why, "no GPU that CUDA can use");
	if (!trials->list.cards)
		texts_add_once(why, "no RDMA device that libibverbs can use");
	if (!pairs)
		return UNFIT;
	text = text_of("bytes moved in %u of %u pairs of a %sGPU and an RDMA device", working,
		       pairs, doctor->is_simulated ? "simulated " : "");
	texts_add_once(why, text);
	release(text);
	if (!working)
		return UNFIT;
	add_problems(doctor, why);
	return working < pairs || why->count > 1 ? LIMITED : FIT;
}

enum verdict judge(const struct doctor *doctor, struct texts *why)
{
	return doctor->trials ? judge_trials(doctor, why) : judge_findings(doctor, why);
}
