/* SPDX-License-Identifier: MIT */
/* Bit maps: runs of bits set, cleared and looked for. */
#ifndef SIM_BITS_H
#define SIM_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool bits_get(const uint64_t *bits, uint64_t n)
{
	return bits[n / 64] >> (n % 64) & 1;
}

static inline void bits_put(uint64_t *bits, uint64_t from, uint64_t count, bool value)
{
	while (count) {
		uint64_t n = 64 - from % 64 < count ? 64 - from % 64 : count;
		uint64_t mask = (n == 64 ? ~0ull : (1ull << n) - 1) << (from % 64);

		if (value)
			bits[from / 64] |= mask;
		else
			bits[from / 64] &= ~mask;
		from += n;
		count -= n;
	}
}

/* The first bit of that value in [from, limit), or limit. */
static inline uint64_t bits_next(const uint64_t *bits, uint64_t from, uint64_t limit, bool value)
{
	while (from < limit) {
		uint64_t word = (value ? bits[from / 64] : ~bits[from / 64]) >> (from % 64);

		if (word) {
			from += __builtin_ctzll(word);
			return from < limit ? from : limit;
		}
		from = (from / 64 + 1) * 64;
	}
	return limit;
}

/* The last set bit at or before n; there must be one, else UINT64_MAX. */
static inline uint64_t bits_last_set(const uint64_t *bits, uint64_t n)
{
	uint64_t word = bits[n / 64] << (63 - n % 64);

	if (word)
		return n - __builtin_clzll(word);
	for (n /= 64; n--;)
		if (bits[n])
			return n * 64 + 63 - __builtin_clzll(bits[n]);
	return UINT64_MAX;
}

static inline bool bits_all_clear(const uint64_t *bits, uint64_t from, uint64_t count)
{
	return bits_next(bits, from, from + count, true) == from + count;
}

/* The lowest run of clear bits in [from, limit) that begins at a multiple of align, or limit. */
static inline uint64_t bits_find_clear(const uint64_t *bits, uint64_t from, uint64_t limit,
				       uint64_t count, uint64_t align)
{
	while (from < limit) {
		uint64_t end;

		from = bits_next(bits, from, limit, false);
		from = (from + align - 1) / align * align;
		if (from >= limit || count > limit - from)
			return limit;
		end = bits_next(bits, from, from + count, true);
		if (end == from + count)
			return from;
		from = end + 1;
	}
	return limit;
}

#endif
