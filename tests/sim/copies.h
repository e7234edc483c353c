/* SPDX-License-Identifier: MIT */
/* Copies of the simulated driver. */
#ifndef SIM_COPIES_H
#define SIM_COPIES_H

#include "work.h"

/* Translates a three-dimensional copy into work for a stream. */
CUresult sim_describe_box(const CUDA_MEMCPY3D *wanted, struct sim_work *work);

#endif
