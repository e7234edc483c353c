/* SPDX-License-Identifier: MIT */
/* With SIM_CHECKPOINT: the thread that restores, and the device files that the driver has open. */
#ifndef SIM_CHECKPOINT_H
#define SIM_CHECKPOINT_H

/* In cuInit. */
void sim_checkpoint_start(void);

/* In cuCtxCreate: the driver opens a device file in a thread of the program, too, and closes it. */
void sim_checkpoint_use_files(void);

#endif
