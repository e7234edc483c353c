// SPDX-License-Identifier: MIT
/*
 * pindown doctor --try --storage: the errors of cuFile, by their numbers in NVIDIA's
 * cufile.h (CUfileOpError): what each means, and what to do about it.
 */
#define _GNU_SOURCE
#include "tools/base/memory.h"
#include "tools/doctor/storage.h"

enum { FIRST = 5000 };

#define BY_FILE	  "use ext4 or XFS on an NVMe disk"
#define BY_COMPAT "\"allow_compat_mode\": true in cufile.json allows copies through the host"
#define BY_NVFS                                                                     \
	"load nvidia-fs, or set \"use_pci_p2pdma\": true in cufile.json; to allow " \
	"copies through the host: \"allow_compat_mode\": true"
#define BY_BAR	   "BAR1 may be full: pindown bar shows which processes use it"
#define BY_RELEASE "install nvidia-fs and libcufile of one CUDA release"

/* By number. cufile.h leaves 5021 and 5032 out; 5050 and above are not errors of a call. */
static const struct cufile_error {
	const char *text, *advice; /* advice NULL: cuFile's own log says more */
} errors[] = {
	[1] = {"nvidia-fs is not loaded", BY_NVFS},
	[2] = {"cuFile refuses a property of its driver", NULL},
	[3] = {"a property of cuFile's driver is out of range", NULL},
	[4] = {"libcufile and nvidia-fs do not match", BY_RELEASE},
	[5] = {"cuFile can't read the version of nvidia-fs", BY_RELEASE},
	[6] = {"cuFile's driver is being closed", NULL},
	[7] = {"GPUDirect Storage does not support this platform", "see P2PDMA above; " BY_COMPAT},
	[8] = {"GPUDirect Storage does not support this file", BY_FILE},
	[9] = {"GPUDirect Storage does not support this GPU", "see P2PDMA above; " BY_COMPAT},
	[10] = {"a call of nvidia-fs failed", "dmesg may say why; or " BY_RELEASE},
	[11] = {"a call of the CUDA driver failed", NULL},
	[12] = {"cuFile refuses the device pointer", NULL},
	[13] = {"cuFile refuses this type of memory", NULL},
	[14] = {"the range exceeds the allocation", NULL},
	[15] = {"the memory belongs to another CUDA context", NULL},
	[16] = {"the range exceeds the largest size that can be pinned", BY_BAR},
	[17] = {"the range exceeds the mapping", NULL},
	[18] = {"cuFile does not support this type of file", BY_FILE},
	[19] = {"cuFile refuses the flags that the file was opened with", NULL},
	[20] = {"cuFile needs a file with direct I/O", BY_FILE},
	[22] = {"cuFile refuses an argument", NULL},
	[23] = {"the memory is already registered with cuFile", NULL},
	[24] = {"the memory is not registered with cuFile", NULL},
	[25] = {"access to the driver or the file is denied",
		"check that this user may open /dev/nvidia-fs* and the folder"},
	[26] = {"cuFile's driver is already open", NULL},
	[27] = {"the file is not registered with cuFile", NULL},
	[28] = {"the file is already registered with cuFile", NULL},
	[29] = {"cuFile does not find the GPU", NULL},
	[30] = {"internal error of cuFile", NULL},
	[31] = {"cuFile got no new file descriptor", "the limit of open files is low: ulimit -n"},
	[33] = {"nvidia-fs could not be set up", BY_RELEASE},
	[34] = {"cufile.json disables GPUDirect Storage for this file",
		"see \"fs\" and \"denylist\" in cufile.json"},
	[35] = {"a batch could not be submitted", NULL},
	[36] = {"cuFile could not pin GPU memory", BY_BAR},
	[37] = {"the queue for batches is full", NULL},
	[38] = {"cuFile does not support I/O on streams", NULL},
	[39] = {"a batch could not be set up", NULL},
	[40] = {"a batch could not be submitted inside cuFile", NULL},
	[41] = {"the status of a batch could not be read", NULL},
	[42] = {"a batch could not be cancelled", NULL},
	[43] = {"cuFile has no memory left", NULL},
	[44] = {"I/O error of cuFile", NULL},
	[45] = {"cuFile could not register the memory inside", NULL},
	[46] = {"an operation on cuFile's hash table failed", NULL},
	[47] = {"cuFile refuses the CUDA context", NULL},
	[48] = {"internal error of nvidia-fs", "dmesg may say why; or " BY_RELEASE},
	[49] = {"the batch needs cuFile's compatibility mode, which is off", BY_NVFS},
};

static const struct cufile_error *error_of(int number)
{
	unsigned at = (unsigned)number - FIRST;

	return at < sizeof(errors) / sizeof(errors[0]) && errors[at].text ? &errors[at] : NULL;
}

char *storage_cufile_error(int number)
{
	const struct cufile_error *error = error_of(number);

	return text_of("%s (%d)", error ? error->text : "cuFile error", number);
}

const char *storage_cufile_advice(int number)
{
	const struct cufile_error *error = error_of(number);

	return error && error->advice ? error->advice
				      : "cufile.log says more: set CUFILE_LOGFILE_PATH to a file";
}
