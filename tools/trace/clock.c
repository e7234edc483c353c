// SPDX-License-Identifier: MIT
/* Converts a trace's ticks to nanoseconds, by the moments at which both clocks were read. */
#include "tools/base/memory.h"
#include "tools/trace/file.h"

void trace_file_moment(struct trace_file *file, const struct pdn_trace_clock *clock)
{
	file->moments = grow(file->moments, &file->moment_capacity, file->moment_count,
			     sizeof(*file->moments));
	file->moments[file->moment_count].ticks = clock->ticks;
	file->moments[file->moment_count].ns = clock->monotonic;
	file->moment_count++;
}

static int compare_moments(const void *a, const void *b)
{
	const struct moment *one = a, *other = b;

	return (one->ticks > other->ticks) - (one->ticks < other->ticks);
}

static uint64_t slope_between(const struct moment *from, const struct moment *to)
{
	uint64_t ticks = to->ticks - from->ticks, ns = to->ns - from->ns;

	/* No clock is slower than 4 MHz. */
	if (!ticks || ns / ticks >= 1u << (64 - SLOPE_SHIFT))
		return 1ull << SLOPE_SHIFT;
	return (uint64_t)(((__uint128_t)ns << SLOPE_SHIFT) / ticks);
}

/*
 * The two clocks of a moment are read some ten ns apart, so a line between moments that are close
 * together has the wrong slope. Keep moments that are a tenth of a second apart, and the last.
 */
void trace_file_clock(struct trace_file *file)
{
	struct moment *moments = file->moments;
	unsigned kept = 1;

	sort(moments, file->moment_count, sizeof(*moments), compare_moments);
	for (unsigned i = 1; i < file->moment_count; i++) {
		bool last = i + 1 == file->moment_count;

		if (moments[i].ns <= moments[kept - 1].ns ||
		    moments[i].ticks == moments[kept - 1].ticks)
			continue;
		if (moments[i].ns - moments[kept - 1].ns >= 100000000u)
			moments[kept++] = moments[i];
		else if (last && kept > 1)
			moments[kept - 1] = moments[i];
		else if (last)
			moments[kept++] = moments[i];
	}
	file->moment_count = kept;
	for (unsigned i = 0; i + 1 < kept; i++)
		moments[i].slope = slope_between(&moments[i], &moments[i + 1]);
	/* Beyond the last moment, the slope of the whole is the best guess. */
	moments[kept - 1].slope =
		kept > 1 ? slope_between(&moments[0], &moments[kept - 1]) : 1ull << SLOPE_SHIFT;
}

static bool is_between(const struct trace_file *file, unsigned i, uint64_t ticks)
{
	return ticks >= file->moments[i].ticks &&
	       (i + 1 == file->moment_count || ticks < file->moments[i + 1].ticks);
}

/* The last moment that is not after `ticks`; the first if all are. */
static unsigned last_before(const struct trace_file *file, uint64_t ticks)
{
	unsigned low = 0, high = file->moment_count;

	while (high - low > 1) {
		unsigned middle = low + (high - low) / 2;

		if (file->moments[middle].ticks <= ticks)
			low = middle;
		else
			high = middle;
	}
	return low;
}

uint64_t trace_file_ns(const struct trace_file *file, uint64_t ticks, unsigned *hint)
{
	const struct moment *moments = file->moments;
	unsigned i = *hint;
	int64_t delta;
	uint64_t ns;

	if (!is_between(file, i, ticks)) {
		i = i + 1 < file->moment_count && is_between(file, i + 1, ticks)
			    ? i + 1
			    : last_before(file, ticks);
		*hint = i;
	}
	delta = (int64_t)(ticks - moments[i].ticks);
	ns = (uint64_t)((__uint128_t)(delta < 0 ? -(uint64_t)delta : (uint64_t)delta) *
				moments[i].slope >>
			SLOPE_SHIFT);
	if (delta < 0)
		return ns < moments[i].ns ? moments[i].ns - ns : 0;
	return moments[i].ns + ns;
}
