// SPDX-License-Identifier: MIT
/* Tests the table of cuFile's errors: each number of NVIDIA's cufile.h has its own meaning. */
#define _GNU_SOURCE
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/suite.h"
#include "tools/base/memory.h"
#include "tools/doctor/storage.h"

/* CUfileOpError as cufile.h has it, and a word of what NVIDIA says there about the error. */
static const struct {
	int number;
	const char *name, *word;
} cufile_errors[] = {
	{5001, "CU_FILE_DRIVER_NOT_INITIALIZED", "nvidia-fs is not loaded"},
	{5002, "CU_FILE_DRIVER_INVALID_PROPS", "property"},
	{5003, "CU_FILE_DRIVER_UNSUPPORTED_LIMIT", "out of range"},
	{5004, "CU_FILE_DRIVER_VERSION_MISMATCH", "do not match"},
	{5005, "CU_FILE_DRIVER_VERSION_READ_ERROR", "read the version"},
	{5006, "CU_FILE_DRIVER_CLOSING", "closed"},
	{5007, "CU_FILE_PLATFORM_NOT_SUPPORTED", "platform"},
	{5008, "CU_FILE_IO_NOT_SUPPORTED", "this file"},
	{5009, "CU_FILE_DEVICE_NOT_SUPPORTED", "this GPU"},
	{5010, "CU_FILE_NVFS_DRIVER_ERROR", "nvidia-fs failed"},
	{5011, "CU_FILE_CUDA_DRIVER_ERROR", "CUDA driver"},
	{5012, "CU_FILE_CUDA_POINTER_INVALID", "pointer"},
	{5013, "CU_FILE_CUDA_MEMORY_TYPE_INVALID", "type of memory"},
	{5014, "CU_FILE_CUDA_POINTER_RANGE_ERROR", "exceeds the allocation"},
	{5015, "CU_FILE_CUDA_CONTEXT_MISMATCH", "another CUDA context"},
	{5016, "CU_FILE_INVALID_MAPPING_SIZE", "can be pinned"},
	{5017, "CU_FILE_INVALID_MAPPING_RANGE", "exceeds the mapping"},
	{5018, "CU_FILE_INVALID_FILE_TYPE", "type of file"},
	{5019, "CU_FILE_INVALID_FILE_OPEN_FLAG", "flags"},
	{5020, "CU_FILE_DIO_NOT_SET", "direct I/O"},
	{5022, "CU_FILE_INVALID_VALUE", "argument"},
	{5023, "CU_FILE_MEMORY_ALREADY_REGISTERED", "memory is already registered"},
	{5024, "CU_FILE_MEMORY_NOT_REGISTERED", "memory is not registered"},
	{5025, "CU_FILE_PERMISSION_DENIED", "denied"},
	{5026, "CU_FILE_DRIVER_ALREADY_OPEN", "already open"},
	{5027, "CU_FILE_HANDLE_NOT_REGISTERED", "file is not registered"},
	{5028, "CU_FILE_HANDLE_ALREADY_REGISTERED", "file is already registered"},
	{5029, "CU_FILE_DEVICE_NOT_FOUND", "find the GPU"},
	{5030, "CU_FILE_INTERNAL_ERROR", "internal error of cuFile"},
	{5031, "CU_FILE_GETNEWFD_FAILED", "file descriptor"},
	{5033, "CU_FILE_NVFS_SETUP_ERROR", "nvidia-fs could not be set up"},
	{5034, "CU_FILE_IO_DISABLED", "cufile.json disables"},
	{5035, "CU_FILE_BATCH_SUBMIT_FAILED", "batch could not be submitted"},
	{5036, "CU_FILE_GPU_MEMORY_PINNING_FAILED", "pin GPU memory"},
	{5037, "CU_FILE_BATCH_FULL", "full"},
	{5038, "CU_FILE_ASYNC_NOT_SUPPORTED", "streams"},
	{5039, "CU_FILE_INTERNAL_BATCH_SETUP_ERROR", "batch could not be set up"},
	{5040, "CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR", "batch could not be submitted inside"},
	{5041, "CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR", "status of a batch"},
	{5042, "CU_FILE_INTERNAL_BATCH_CANCEL_ERROR", "cancelled"},
	{5043, "CU_FILE_NOMEM_ERROR", "no memory"},
	{5044, "CU_FILE_IO_ERROR", "I/O error"},
	{5045, "CU_FILE_INTERNAL_BUF_REGISTER_ERROR", "could not register the memory"},
	{5046, "CU_FILE_HASH_OPR_ERROR", "hash"},
	{5047, "CU_FILE_INVALID_CONTEXT_ERROR", "context"},
	{5048, "CU_FILE_NVFS_INTERNAL_DRIVER_ERROR", "internal error of nvidia-fs"},
	{5049, "CU_FILE_BATCH_NOCOMPAT_ERROR", "compatibility mode"},
};

START_TEST(errors_are_cufiles)
{
	const unsigned known = sizeof(cufile_errors) / sizeof(cufile_errors[0]);
	unsigned at = 0;

	for (int number = 4990; number < 5060; number++) {
		bool is_known = at < known && cufile_errors[at].number == number;
		char *text = storage_cufile_error(number), tail[20];

		if (is_known)
			ck_assert_msg(strstr(text, cufile_errors[at].word), "%s: %s",
				      cufile_errors[at].name, text);
		else
			ck_assert_msg(strncmp(text, "cuFile error (", 14) == 0, "%s", text);
		sprintf(tail, " (%d)", number);
		ck_assert_str_eq(text + strlen(text) - strlen(tail), tail);
		ck_assert_ptr_nonnull(storage_cufile_advice(number));
		release(text);
		at += is_known;
	}
	ck_assert_uint_eq(at, known);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cufile_errors");

	tcase_add_test(suite_case(suite, "table", NULL, NULL), errors_are_cufiles);
	return run_suite(suite);
}
