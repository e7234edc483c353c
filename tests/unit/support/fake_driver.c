/* SPDX-License-Identifier: MIT */
/* The scripted driver's memory and its script: see fake_driver.h. */
#define _GNU_SOURCE
#include "tests/unit/support/fake_state.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_MEMORY 4096

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct memory fake_memory[MAX_MEMORY];
unsigned fake_memories;
uint64_t fake_last_id = 41;

static unsigned counts[FAKE_CALLS + 1];
static struct {
	enum fake_call call;
	unsigned first, times;
	int result;
} failing = {.call = FAKE_CALLS};
static struct {
	enum fake_call call;
	unsigned edges; /* edges that must pass before it runs */
	void (*fn)(void *);
	void *arg;
	bool met;
} edge;
uint64_t fake_space = UINT64_MAX;
unsigned fake_swaps;
bool fake_dmabuf_missing;
uint64_t fake_reserved, fake_reserved_size;
bool fake_hides_pieces;
unsigned fake_pushes;

__thread uint64_t fake_asked_last;
__thread void *fake_current_context = FAKE_CONTEXT;

static void edge_passed(enum fake_call call)
{
	void (*fn)(void *) = NULL;
	void *arg = NULL;

	pthread_mutex_lock(&fake_lock);
	if (edge.fn && (edge.call == call || edge.call == FAKE_CALLS) && edge.edges-- == 0) {
		fn = edge.fn;
		arg = edge.arg;
		edge.fn = NULL;
		edge.met = true;
	}
	pthread_mutex_unlock(&fake_lock);
	if (fn)
		fn(arg);
}

int fake_entered(enum fake_call call)
{
	int result = FAKE_SUCCESS;

	edge_passed(call);
	pthread_mutex_lock(&fake_lock);
	counts[FAKE_CALLS]++;
	unsigned at = counts[call]++;
	if (failing.call == call && at >= failing.first && at - failing.first < failing.times)
		result = failing.result;
	pthread_mutex_unlock(&fake_lock);
	return result;
}

int fake_leaving(enum fake_call call, int result)
{
	edge_passed(call);
	return result;
}

/* ---- questions that meet a free ---- */

static struct fake_question *questions;
static __thread char this_thread; /* its address */

bool fake_overlaps_allowed; /* where a wait of a free is to end by time */

/* Lock held. In a child of fork the other threads are gone, with their questions and frees. */
static void note_fork(void)
{
	static pid_t of_process;

	if (of_process == getpid())
		return;
	of_process = getpid();
	questions = NULL;
	for (unsigned i = 0; i < fake_memories; i++)
		fake_memory[i].ending = NULL;
}

static void meet(uint64_t addr)
{
	if (fake_overlaps_allowed)
		return;
	fprintf(stderr, "fake driver: asked about 0x%llx while another thread frees it\n",
		(unsigned long long)addr);
	abort();
}

int fake_asks(enum fake_call call, struct fake_question *question, uint64_t addr, uint64_t length)
{
	*question = (struct fake_question){addr, addr + length, &this_thread, NULL};
	pthread_mutex_lock(&fake_lock);
	note_fork();
	for (unsigned i = 0; i < fake_memories; i++) {
		const struct memory *m = &fake_memory[i];

		if (m->alive && m->ending && m->ending != &this_thread && m->base < question->end &&
		    question->begin < m->base + m->size)
			meet(addr);
	}
	question->next = questions;
	questions = question;
	pthread_mutex_unlock(&fake_lock);
	return fake_entered(call);
}

int fake_answers(enum fake_call call, struct fake_question *question, int result)
{
	struct fake_question **at = &questions;

	result = fake_leaving(call, result);
	pthread_mutex_lock(&fake_lock);
	while (*at && *at != question)
		at = &(*at)->next;
	if (*at) /* not in a child that was forked meanwhile */
		*at = question->next;
	pthread_mutex_unlock(&fake_lock);
	return result;
}

/* Lock held, and let go for a moment: another thread that asks now is wrong. */
static void end_memory(struct memory *m)
{
	note_fork();
	m->ending = &this_thread;
	for (const struct fake_question *q = questions; q; q = q->next)
		if (q->thread != &this_thread && q->begin < m->base + m->size && m->base < q->end)
			meet(q->begin);
	pthread_mutex_unlock(&fake_lock);
	sched_yield();
	pthread_mutex_lock(&fake_lock);
	m->alive = false;
}

/* ---- the program's side ---- */

void fake_alloc_in(uint64_t base, uint64_t size, enum fake_kind kind, void *context, int device,
		   void *pool)
{
	pthread_mutex_lock(&fake_lock);
	unsigned at = 0;
	while (at < fake_memories && fake_memory[at].alive)
		at++;
	if (at == MAX_MEMORY) {
		fprintf(stderr, "fake driver: more than %d allocations\n", MAX_MEMORY);
		abort();
	}
	if (at == fake_memories)
		fake_memories++;
	fake_memory[at] = (struct memory){base, size,	++fake_last_id, kind, context,
					  pool, device, true,		NULL};
	pthread_mutex_unlock(&fake_lock);
}

void fake_alloc(uint64_t base, uint64_t size, enum fake_kind kind)
{
	bool owned = kind == FAKE_LINEAR || kind == FAKE_MANAGED || kind == FAKE_HOST;
	void *pool = kind == FAKE_POOL ? (void *)0xb0 : NULL;

	fake_alloc_in(base, size, kind, owned ? FAKE_CONTEXT : NULL, 0, pool);
}

struct memory *fake_find(uint64_t addr)
{
	for (unsigned i = 0; i < fake_memories; i++)
		if (fake_memory[i].alive && addr - fake_memory[i].base < fake_memory[i].size)
			return &fake_memory[i];
	return NULL;
}

static int free_memory(uint64_t base, void (*end)(struct memory *m))
{
	pthread_mutex_lock(&fake_lock);
	struct memory *m = fake_find(base);
	bool ok = m && m->base == base;
	if (ok)
		end(m);
	pthread_mutex_unlock(&fake_lock);
	return ok ? FAKE_SUCCESS : FAKE_INVALID_VALUE;
}

int fake_free(uint64_t base)
{
	return free_memory(base, end_memory);
}

static void end_at_once(struct memory *m)
{
	m->alive = false;
}

int fake_free_unseen(uint64_t base)
{
	return free_memory(base, end_at_once);
}

void fake_context_destroy(void *context)
{
	pthread_mutex_lock(&fake_lock);
	for (unsigned i = 0; i < fake_memories; i++)
		if (fake_memory[i].alive && fake_memory[i].context == context)
			end_memory(&fake_memory[i]);
	pthread_mutex_unlock(&fake_lock);
}

void fake_no_current_context(void)
{
	fake_current_context = NULL;
}

uint64_t fake_id(uint64_t addr)
{
	pthread_mutex_lock(&fake_lock);
	struct memory *m = fake_find(addr);
	uint64_t id = m ? m->id : 0;
	pthread_mutex_unlock(&fake_lock);
	return id;
}

/* ---- the script ---- */

unsigned fake_count(enum fake_call call)
{
	pthread_mutex_lock(&fake_lock);
	unsigned n = counts[call];
	pthread_mutex_unlock(&fake_lock);
	return n;
}

void fake_fail(enum fake_call call, unsigned nth, unsigned times, int result)
{
	pthread_mutex_lock(&fake_lock);
	failing.call = call;
	failing.first = counts[call] + nth;
	failing.times = times;
	failing.result = result;
	pthread_mutex_unlock(&fake_lock);
}

void fake_pin_space(uint64_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	fake_space = bytes;
	pthread_mutex_unlock(&fake_lock);
}

void fake_swap_during_export(unsigned times)
{
	pthread_mutex_lock(&fake_lock);
	fake_swaps = times;
	pthread_mutex_unlock(&fake_lock);
}

void fake_no_dmabuf(void)
{
	pthread_mutex_lock(&fake_lock);
	fake_dmabuf_missing = true;
	pthread_mutex_unlock(&fake_lock);
}

void fake_at_edge(enum fake_call call, unsigned nth, void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&fake_lock);
	edge.call = call;
	edge.edges = nth;
	edge.fn = fn;
	edge.arg = arg;
	edge.met = false;
	pthread_mutex_unlock(&fake_lock);
}

bool fake_edge_met(void)
{
	pthread_mutex_lock(&fake_lock);
	bool met = edge.met;
	pthread_mutex_unlock(&fake_lock);
	return met;
}
