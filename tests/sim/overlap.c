/* SPDX-License-Identifier: MIT */
/* Finds calls about memory that is inside a free of another thread. */
#include <execinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contexts.h"
#include "memory.h"
#include "overlap.h"
#include "sim.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_touch *touches;

void sim_touches_fork_child(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	memcpy(&list_lock, &fresh, sizeof(fresh));
	touches = NULL;
}

static void show_stack(const struct sim_touch *touch)
{
	void *frames[64];
	int count = backtrace(frames, 64);

	sim_complain("the stack of %s:", touch->name);
	backtrace_symbols_fd(frames, count, 2);
}

/* `b` is in the list. Once it is over it touches nothing any more, although it has not returned. */
static bool overlap(const struct sim_touch *a, const struct sim_touch *b)
{
	if (a->ends == b->ends || pthread_equal(a->thread, b->thread) ||
	    __atomic_load_n(&b->is_over, __ATOMIC_ACQUIRE))
		return false;
	if (a->context && a->context == b->context)
		return true;
	return a->begin < b->end && b->begin < a->end;
}

/* Both threads show their stacks: the other one does so when its call returns, or not at all. */
static void meet(const struct sim_touch *touch, struct sim_touch *other)
{
	const struct sim_touch *ends = touch->ends ? touch : other;
	const struct sim_touch *asks = touch->ends ? other : touch;

	sim_complain("simulated libcuda: %s of 0x%llx + %llu while another thread is in %s of "
		     "0x%llx + %llu: the real driver may crash (SIM_OVERLAPS=allowed answers)",
		     asks->name, (unsigned long long)asks->begin,
		     (unsigned long long)(asks->end - asks->begin), ends->name,
		     (unsigned long long)ends->begin,
		     (unsigned long long)(ends->end - ends->begin));
	other->is_met = true;
	pthread_mutex_unlock(&list_lock);
	show_stack(touch);
	sim_sleep_us(1000000);
	abort();
}

static void look_up(struct sim_touch *touch)
{
	struct sim_alloc *alloc;

	sim_lock();
	alloc = touch->context ? NULL : sim_alloc_at(touch->begin);
	if (alloc && !touch->ends)
		touch->context = alloc->context;
	else if (alloc && touch->begin == touch->end)
		touch->end = alloc->addr + alloc->size;
	sim_unlock();
}

void sim_touch_begin(struct sim_touch *touch, const char *name)
{
	if (sim_options.overlaps_allowed || !sim_is_alive() || sim_is_in_call())
		return;
	touch->name = name;
	touch->thread = pthread_self();
	look_up(touch);
	pthread_mutex_lock(&list_lock);
	for (struct sim_touch *other = touches; other; other = other->next)
		if (overlap(touch, other))
			meet(touch, other);
	touch->next = touches;
	touches = touch;
	pthread_mutex_unlock(&list_lock);
}

void sim_touch_end(struct sim_touch *touch)
{
	struct sim_touch **at = &touches;

	if (!touch->name)
		return;
	pthread_mutex_lock(&list_lock);
	while (*at && *at != touch)
		at = &(*at)->next;
	if (*at)
		*at = touch->next;
	pthread_mutex_unlock(&list_lock);
	if (touch->is_met)
		show_stack(touch);
}
