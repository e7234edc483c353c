/* SPDX-License-Identifier: MIT */
/*
 * In the test guest the card is a PCI device, which imports the dma-buf and moves the bytes by DMA.
 * Elsewhere this process plays its part: a dma-buf of the simulated driver's can be read, a real
 * one's can't.
 */
#include "demo_card.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/guest/peer/edu_peer.h"

static bool read_by_device(int device, int dmabuf, uint64_t offset, void *bytes, size_t length)
{
	struct edu_import import = {.fd = dmabuf};
	struct edu_transfer transfer = {
		.offset = offset, .length = length, .data = (uintptr_t)bytes};
	bool done;

	if (ioctl(device, EDU_IMPORT, &import) != 0)
		return false;
	transfer.id = import.id;
	done = ioctl(device, EDU_READ, &transfer) == 0;
	ioctl(device, EDU_RELEASE, &import.id);
	return done;
}

/* The file position of the simulated driver's descriptors is the offset of the memory. */
static bool read_as_file(int dmabuf, uint64_t offset, void *bytes, size_t length)
{
	off_t start = lseek(dmabuf, 0, SEEK_CUR);

	if (start < 0)
		start = 0;
	return pread(dmabuf, bytes, length, start + (off_t)offset) == (ssize_t)length;
}

bool demo_card_read(int dmabuf, uint64_t offset, void *bytes, size_t length)
{
	int device = open(EDU_PEER_DEVICE, O_RDWR | O_CLOEXEC);
	bool done;

	if (device < 0)
		return read_as_file(dmabuf, offset, bytes, length);
	done = read_by_device(device, dmabuf, offset, bytes, length);
	close(device);
	return done;
}
