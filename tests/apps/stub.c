/* SPDX-License-Identifier: MIT */
/* A libcuda that does not work: each call answers RESULT. */
int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
	(void)flags;
	return RESULT;
}

#define CALL(name)             \
	int name(void);        \
	int name(void)         \
	{                      \
		return RESULT; \
	}
CALL(cuCtxCreate_v2)
CALL(cuCtxGetCurrent)
CALL(cuDevicePrimaryCtxRetain)
CALL(cuGetExportTable)
CALL(cuGetProcAddress_v2)
CALL(cuMemAlloc_v2)
CALL(cuMemFree_v2)
CALL(cuPointerGetAttribute)
