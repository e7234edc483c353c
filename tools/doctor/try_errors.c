// SPDX-License-Identifier: MIT
/* pindown doctor --try: what an error means at each step, and what to do about it. */
#include <errno.h>
#include <string.h>

#include "tools/doctor/try.h"
#include "tools/base/memory.h"
#include "tools/ui/names.h"

#ifndef ENOTSUPP
#define ENOTSUPP 524 /* the kernel's own; it should never reach a program, but does */
#endif

enum { CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_SUPPORTED = 801 };

/* Results of completions, as ibv_wc_status has them. */
enum { LOCAL_PROTECTION = 4, REMOTE_ACCESS = 10, REMOTE_OPERATION = 11, RETRIES = 12 };

const char *road_name(enum road road)
{
	static const char *const names[] = {"dma-buf", "dma-buf, pcie", "ibv_reg_mr"};

	return names[road];
}

bool attempt_is_not_offered(enum road road, const struct attempt *attempt)
{
	return road == ROAD_DMABUF_PCIE && attempt->stage == STAGE_EXPORT &&
	       attempt->source == FROM_CUDA &&
	       (attempt->error == CUDA_INVALID_VALUE || attempt->error == CUDA_NOT_SUPPORTED);
}

bool attempt_failed(struct attempt *attempt, enum source source, int error)
{
	attempt->source = source;
	attempt->error = error ? error : EIO;
	attempt->ended = true;
	return false;
}

/* ---- errors --------------------------------------------------------------------------------- */

static char *card_error(int status)
{
	switch (status) {
	case LOCAL_PROTECTION:
		return text_of("local protection error (%d)", status);
	case REMOTE_ACCESS:
		return text_of("remote access error (%d)", status);
	case REMOTE_OPERATION:
		return text_of("remote operation error (%d)", status);
	case RETRIES:
		return text_of("no answer after all retries (%d)", status);
	}
	return text_of("completion status %d", status);
}

char *cuda_error_name(int error)
{
	const char *name = error < 0 ? "the driver lacks the function" : driver_result_name(error);

	return text_of("%s (%d)", name ? name : "CUDA error", error);
}

char *attempt_error(const struct attempt *attempt)
{
	switch (attempt->source) {
	case FROM_CARD:
		return card_error(attempt->error);
	case FROM_CUDA:
		return cuda_error_name(attempt->error);
	case FROM_SYSTEM:
		break;
	}
	if (attempt->error == EBADMSG)
		return text_of("other bytes arrived than were sent");
	if (attempt->error == ENOTSUPP)
		return text_of("Operation is not supported (%d)", ENOTSUPP);
	return text_of("%s (%d)", strerror(attempt->error), attempt->error);
}

static const char *attempt_step(const struct attempt *attempt)
{
	static const char *const steps[] = {
		[STAGE_NONE] = "the begin",
		[STAGE_OPEN] = "the opening of the device",
		[STAGE_ALLOCATE] = "the allocation",
		[STAGE_EXPORT] = "the export",
		[STAGE_REGISTER] = "the registration",
		[STAGE_CONNECT] = "the connection",
		[STAGE_TRANSFER] = "the transfer",
		[STAGE_COMPARE] = "the comparison",
		[STAGE_DONE] = "the end",
	};

	return steps[attempt->stage];
}

/* "hangs: the export did not end within 60 s", for release(); NULL: it ended. */
static char *attempt_stopped(const struct attempt *attempt, unsigned patience)
{
	const char *step = attempt_step(attempt);

	if (attempt->stage == STAGE_DONE)
		return NULL;
	if (attempt->signal < 0)
		return text_of("ends the process at %s", step);
	if (attempt->signal)
		return text_of("crashes at %s, by signal %d (%s)", step, attempt->signal,
			       strsignal(attempt->signal));
	return attempt->ended ? NULL : text_of("hangs: %s did not end within %u s", step, patience);
}

char *attempt_text(enum road road, const struct attempt *attempt, unsigned patience)
{
	char *text = attempt_stopped(attempt, patience), *error;
	double per_gib = (double)attempt->pin_ns / 1e6 * (1 << 30) / TRY_BYTES;

	if (text)
		return text;
	if (attempt->stage == STAGE_DONE)
		return text_of("works; the registration takes %.*f ms/GiB", per_gib < 10 ? 2 : 0,
			       per_gib);
	if (attempt_is_not_offered(road, attempt))
		return text_of("not offered by the driver for this GPU");
	error = attempt_error(attempt);
	text = text_of("%s at %s: %s", attempt->pin_ns ? "registers, but fails" : "fails",
		       attempt_step(attempt), error);
	release(error);
	return text;
}

/* ---- advice --------------------------------------------------------------------------------- */

static const char *about_export(int error)
{
	switch (error) {
	case CUDA_NOT_SUPPORTED:
		return "the driver exports no dma-bufs of this GPU: install the open kernel "
		       "modules, 515 "
		       "or newer, on Linux 5.12 or newer";
	case CUDA_OUT_OF_MEMORY:
		return "BAR1 may be full: pindown bar shows which processes use it";
	case -1:
		return "install driver 515 (CUDA 11.7) or newer";
	}
	return NULL;
}

static const char *about_registration(enum road road, int error)
{
	bool by_address = road == ROAD_ADDRESS;

	switch (error) {
	case EFAULT:
		return by_address ? "no kernel module takes GPU addresses: modprobe "
				    "nvidia-peermem, or "
				    "let programs use dma-bufs (pindown run does)"
				  : "the card's driver could not map the dma-buf: dmesg says why; "
				    "try the "
				    "other mapping (PINDOWN_DMABUF_MAPPING)";
	case EINVAL:
		return by_address ? "the address was refused: nvidia-peermem may not match the GPU "
				    "driver "
				    "or MLNX_OFED; build it again for both"
				  : "the GPU's driver or the card refuses this mapping: try the "
				    "other one "
				    "(PINDOWN_DMABUF_MAPPING), and see dmesg";
	case EPROTONOSUPPORT:
		return "the card's kernel driver can't register dma-bufs (as rxe and siw): use a "
		       "card "
		       "that can, on Linux 5.12 or newer, or nvidia-peermem";
	case EOPNOTSUPP:
		return by_address
			       ? "the card does not take this memory by its address: use dma-bufs"
			       : "rdma-core has no dma-buf registration for this card: install "
				 "rdma-core 34 or newer, or use nvidia-peermem";
	case ENOTSUPP:
		return "the GPU's driver can't map its memory for this card: the IOMMU, or a "
		       "system "
		       "without peer-to-peer, forbids it; dmesg says more";
	case ENOMEM:
		return "no space: BAR1 is full (pindown bar), locked memory is limited (ulimit "
		       "-l), or "
		       "the card holds no more registrations";
	case EPERM:
	case EACCES:
		return "give the process rights for /dev/infiniband";
	}
	return NULL;
}

static const char *about_connection(int error)
{
	switch (error) {
	case ENETDOWN:
		return "no port of the card is active: connect a cable, or set its link up; the "
		       "registration alone is no proof that data moves";
	case EADDRNOTAVAIL:
		return "the port has no GID: give its network interface an address";
	case EOPNOTSUPP:
		return "the card has no RC queue pairs (as EFA), so that no transfer was tried";
	}
	return NULL;
}

const char *attempt_advice(enum road road, const struct attempt *attempt)
{
	if (attempt->stage == STAGE_DONE || attempt_is_not_offered(road, attempt))
		return NULL;
	if (attempt->signal)
		return "the driver or the provider has a fault there: update them, and report it";
	if (!attempt->ended && attempt->stage >= STAGE_TRANSFER)
		return "data does not move in this way, whatever the driver's attributes say: use "
		       "another one; see ACS and IOMMU above";
	if (!attempt->ended)
		return "dmesg may say why";
	if (attempt->stage == STAGE_EXPORT)
		return about_export(attempt->error);
	if (attempt->stage == STAGE_REGISTER)
		return about_registration(road, attempt->error);
	if (attempt->stage == STAGE_CONNECT)
		return about_connection(attempt->error);
	if (attempt->stage >= STAGE_TRANSFER)
		return "data does not move in this way: use another one; see ACS and IOMMU above";
	return NULL;
}
