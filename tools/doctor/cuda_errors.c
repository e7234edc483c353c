// SPDX-License-Identifier: MIT
/* pindown doctor: what it means that cuInit fails, and what to do about it. */
#include "tools/doctor/doctor.h"
#include "tools/base/memory.h"

#define MPS   "check the MPS control daemon (nvidia-cuda-mps-control) and CUDA_MPS_PIPE_DIRECTORY"
#define WHICH "check that /dev/nvidia* exist and that nvidia-smi works"

/* Results that cuInit is known to give; the last row is for all others. */
static const struct meaning {
	int error;
	const char *text, *advice;
} meanings[] = {
	{0, "it finds no GPU", WHICH ", and CUDA_VISIBLE_DEVICES"},
	{100, "it finds no GPU", WHICH ", and CUDA_VISIBLE_DEVICES"},
	{101, "it can't use a GPU that it was given",
	 "check CUDA_VISIBLE_DEVICES; in a container, give it all device files of the GPU or of "
	 "the MIG instance"},
	{2, "it gets too little memory", "check ulimit -v, and the memory limit of the container"},
	{3, "it can't start the driver",
	 "on a machine with NVSwitches, start nvidia-fabricmanager; dmesg may say more"},
	{34, "the library is a stub, for linking programs only",
	 "remove its folder from LD_LIBRARY_PATH and from the loader's configuration, or install "
	 "the driver's user part, whose libcuda.so.1 is the real one"},
	{36, "the driver is older than the library needs", "install a newer driver"},
	{46, "the GPU is busy or unavailable",
	 "another process may have it in exclusive mode (nvidia-smi -q -d COMPUTE); in MIG mode it "
	 "needs an instance (nvidia-smi mig -lgi)"},
	{102, "the GPU has no license", "license the vGPU: nvidia-smi -q shows its state"},
	{214, "the GPU's memory has an error that ECC can't correct",
	 "reset the GPU or boot again; nvidia-smi -q -d ECC,PAGE_RETIREMENT says more"},
	{304, "a call of the operating system fails",
	 "check the permissions of /dev/nvidia*, and that /dev/nvidia-uvm exists: nvidia-modprobe "
	 "-u -c 0"},
	{800, "it is forbidden", "check the permissions of /dev/nvidia*; " MPS},
	{801, "this system or GPU does not support it",
	 "install a driver that supports this GPU; dmesg may say more"},
	{802, "the system is not ready",
	 "on a machine with NVSwitches, start nvidia-fabricmanager, of the driver's own release; "
	 "with confidential computing, nvidia-smi conf-compute -srs 1"},
	{803, "the library and the kernel module are of different releases (a mismatch)",
	 "boot again, or load the new module, after an update of the driver; in a container, "
	 "remove its own libcuda.so"},
	{804, "the library is of a compat package, which this GPU or driver does not support",
	 "remove the package (cuda-compat) or its folder from LD_LIBRARY_PATH, or install a newer "
	 "driver"},
	{805, "it can't connect to MPS", MPS},
	{806, "MPS does not answer", MPS},
	{807, "the server of MPS is not ready", MPS},
	{808, "MPS has no room for another client", "end other clients of MPS"},
	{809, "MPS has no room for another connection", "end other clients of MPS"},
	{810, "MPS has ended this client", MPS},
	{999, "the driver has failed for an unknown reason",
	 "load nvidia-uvm again (rmmod nvidia_uvm; modprobe nvidia_uvm), as after a suspend, or "
	 "boot again; dmesg may say more"},
	{-1, "it fails", WHICH "; dmesg may say more"},
};

static const struct meaning *meaning_of(int error)
{
	const struct meaning *meaning = meanings;

	while (meaning->error != error && meaning->error != -1)
		meaning++;
	return meaning;
}

void about_cuda_error(struct doctor *doctor, const char *version, const char *call,
		      const char *library, int error)
{
	const struct meaning *meaning = meaning_of(error);
	char *name = cuda_error_name(error);
	char *source = error ? text_of(": %s from %s of %s", name, call, library) : NULL;

	/* Without a driver and a GPU there is nothing to repair. */
	found(doctor, doctor->has_driver ? PROBLEM : NOTE, "CUDA",
	      doctor->has_driver || meaning > &meanings[1] ? meaning->advice : NULL, "%s%s%s",
	      version, meaning->text, source ? source : "");
	release(source);
	release(name);
}
