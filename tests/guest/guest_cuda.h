/* SPDX-License-Identifier: MIT */
/* What the guest's libcuda.so.1 has beside the driver's own calls; see cuda.c. */
#ifndef GUEST_CUDA_H
#define GUEST_CUDA_H

#include "cuda_abi.h"

CUresult guest_free_unseen(CUdeviceptr ptr);

#endif
