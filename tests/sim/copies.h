/* SPDX-License-Identifier: MIT */
#ifndef SIM_COPIES_H
#define SIM_COPIES_H

#include "work.h"

/* The work that a three-dimensional copy means. */
CUresult sim_describe_box(const CUDA_MEMCPY3D *wanted, struct sim_work *work);

#endif
