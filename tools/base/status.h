/* SPDX-License-Identifier: MIT */
/* The exit statuses of the command. */
#ifndef STATUS_H
#define STATUS_H

enum {
	STATUS_OK = 0,
	STATUS_DAMAGED = 1, /* a trace could not be read, or only in part */
	STATUS_FOUND = 1,   /* doctor, check or report found a problem */
	STATUS_USAGE = 2,   /* bad options or a bad configuration */
	STATUS_UNFIT = 3,   /* doctor: GPUDirect RDMA can't work on this machine */
	STATUS_UNKNOWN = 3, /* report --check: the trace does not hold the answer */
};

#endif
