/* SPDX-License-Identifier: MIT */
/* Reserving addresses, so that the driver hands them out to nobody; and giving them back. */
#include "cache/driver/driver.h"
#include "cache/driver/functions.h"

void pdn_driver_unreserve(uint64_t addr, uint64_t size)
{
	if (HAVE_RARELY(cuMemAddressFree))
		REAL(cuMemAddressFree)(addr, size);
}

uint64_t pdn_driver_allocate(uint64_t size)
{
	CUdeviceptr addr = 0;

	return HAVE_RARELY(cuMemAlloc_v2) && REAL(cuMemAlloc_v2)(&addr, size) == CUDA_SUCCESS ? addr
											      : 0;
}

void pdn_driver_free(uint64_t addr)
{
	if (HAVE_RARELY(cuMemFree_v2))
		REAL(cuMemFree_v2)(addr);
}

/* The driver takes the address for a wish; 0: there is none. */
static bool reserve(uint64_t wanted, uint64_t size, CUdeviceptr *got)
{
	return HAVE_RARELY(cuMemAddressReserve) && HAVE_RARELY(cuMemAddressFree) &&
	       REAL(cuMemAddressReserve)(got, size, 0, wanted, 0) == CUDA_SUCCESS;
}

/*
 * NVIDIA's driver takes the beginning of some other free range that is large enough rather than the
 * wish, if there is any. So what lands elsewhere is kept while the driver is asked again. A free
 * range that begins before the wish is taken as a whole.
 */
enum pdn_reserved pdn_driver_reserve(uint64_t *begin, uint64_t end, unsigned tries)
{
	CUdeviceptr others[PDN_MOST_TRIES], got = 0;
	uint64_t sizes[PDN_MOST_TRIES], size, at = *begin;
	enum pdn_reserved result = PDN_REFUSED;
	unsigned count = 0;

	while (tries-- && reserve(at, size = end - at, &got)) {
		result = got == at ? PDN_RESERVED : PDN_ELSEWHERE;
		if (result == PDN_RESERVED)
			break;
		if (got < at && at < got + size) {
			pdn_driver_unreserve(got, size);
			at = got;
		} else {
			sizes[count] = size;
			others[count++] = got;
		}
	}
	while (count--)
		pdn_driver_unreserve(others[count], sizes[count]);
	if (result == PDN_RESERVED)
		*begin = at;
	return result;
}

enum pdn_reserved pdn_driver_try_to_reserve(uint64_t size)
{
	enum pdn_reserved answer;
	CUdeviceptr got;
	uint64_t first;

	if (!reserve(0, size, &got))
		return PDN_REFUSED;
	first = got;
	pdn_driver_unreserve(first, size);
	answer = pdn_driver_reserve(&first, first + size, PDN_MOST_TRIES);
	if (answer == PDN_RESERVED)
		pdn_driver_unreserve(first, size);
	return answer;
}
