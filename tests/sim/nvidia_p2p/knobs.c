// SPDX-License-Identifier: MIT OR GPL-2.0
/* The controls of tests: counters, delays, failures on demand, gates. */
#include <linux/delay.h>
#include <linux/errno.h>
#include <linux/printk.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/wait.h>

#include "gpu.h"

atomic64_t sim_counters[SIM_GPU_COUNTERS];
static u32 knobs[SIM_GPU_KNOBS];
static atomic_t until_failure[SIM_GPU_KNOBS];

void sim_count(enum sim_gpu_counter counter, long by)
{
	atomic64_add(by, &sim_counters[counter]);
}

/* Counts host memory in use now, and its maximum. */
void sim_count_host_bytes(long bytes)
{
	atomic64_t *max = &sim_counters[SIM_GPU_ROOM_MOST];
	s64 now = atomic64_add_return(bytes, &sim_counters[SIM_GPU_ROOM_BYTES]);
	s64 seen = atomic64_read(max);

	while (now > seen && !atomic64_try_cmpxchg(max, &seen, now))
		;
}

u32 sim_knob(enum sim_gpu_knob knob)
{
	return READ_ONCE(knobs[knob]);
}

/* The knobs that work below nvidia.ko: not its page tables, nor its errors. */
static bool nvidia_can(u32 knob, u32 value)
{
	switch (knob) {
	case SIM_GPU_TABLE_MAJOR:
		return value <= 1; /* before 580 all are of version 1 */
	case SIM_GPU_FAIL_ERROR:
		return !value || value == EIO || value == EINVAL || value == ENOMEM ||
		       value == ENOTSUPP;
	case SIM_GPU_REUSE_TABLES:
	case SIM_GPU_SMALL_PAGES:
	case SIM_GPU_MAPS_NOTHING:
		return !value;
	default:
		return true;
	}
}

int sim_knob_set(u32 knob, u32 value)
{
	if (knob >= SIM_GPU_KNOBS)
		return -EINVAL;
	if (!sim_has_own_api && !nvidia_can(knob, value))
		return -EOPNOTSUPP;
	WRITE_ONCE(knobs[knob], value);
	atomic_set(&until_failure[knob], value);
	return 0;
}

void sim_knobs_reset(void)
{
	u32 knob;

	for (knob = 0; knob < SIM_GPU_KNOBS; knob++)
		sim_knob_set(knob, 0);
	atomic64_set(&sim_counters[SIM_GPU_ROOM_MOST],
		     atomic64_read(&sim_counters[SIM_GPU_ROOM_BYTES]));
}

/* Sleeps for a random time up to the knob's value. */
void sim_delay(enum sim_gpu_knob knob)
{
	u32 max_us = sim_knob(knob), us;

	if (!max_us)
		return;
	us = get_random_u32() % (max_us + 1);
	if (us)
		usleep_range(us, us + 10);
}

/* True for one call, the nth after the knob was set to n. */
bool sim_fails_now(enum sim_gpu_knob knob)
{
	return atomic_add_unless(&until_failure[knob], -1, 0) && !atomic_read(&until_failure[knob]);
}

/* ---- gates ---- */

#define GATE_PATIENCE (20 * HZ)

enum gate_state { GATE_OFF, GATE_ARMED, GATE_STOPPED };

static struct {
	enum gate_state state;
	u32 turn; /* how often it was armed */
} gates[SIM_GPU_GATES];
static DEFINE_SPINLOCK(gates_lock);
static DECLARE_WAIT_QUEUE_HEAD(gates_changed);

static bool gate_is(enum sim_gpu_gate gate, u32 turn, enum gate_state state)
{
	bool is;

	spin_lock(&gates_lock);
	is = gates[gate].turn != turn || gates[gate].state == state;
	spin_unlock(&gates_lock);
	return is;
}

void sim_gate_pass(enum sim_gpu_gate gate)
{
	u32 turn;
	bool stops;

	spin_lock(&gates_lock);
	turn = gates[gate].turn;
	stops = gates[gate].state == GATE_ARMED;
	if (stops)
		gates[gate].state = GATE_STOPPED;
	spin_unlock(&gates_lock);
	if (!stops)
		return;
	wake_up_all(&gates_changed);
	if (wait_event_timeout(gates_changed, gate_is(gate, turn, GATE_OFF), GATE_PATIENCE))
		return;
	sim_count(SIM_GPU_GATES_EXPIRED, 1);
	spin_lock(&gates_lock);
	if (gates[gate].turn == turn)
		gates[gate].state = GATE_OFF;
	spin_unlock(&gates_lock);
}

int sim_gate_op(u32 gate, u32 op)
{
	u32 turn;
	long left;

	if (gate >= SIM_GPU_GATES || op > SIM_GPU_GATE_OPEN)
		return -EINVAL;
	/* This place is in nvidia.ko's own code, which is not replaced. */
	if (!sim_has_own_api && gate == SIM_GPU_GATE_ASKED)
		return -EOPNOTSUPP;
	spin_lock(&gates_lock);
	turn = gates[gate].turn;
	if (op == SIM_GPU_GATE_ARM) {
		gates[gate].turn++;
		gates[gate].state = GATE_ARMED;
	} else if (op == SIM_GPU_GATE_OPEN) {
		gates[gate].state = GATE_OFF;
	}
	spin_unlock(&gates_lock);
	wake_up_all(&gates_changed);
	if (op != SIM_GPU_GATE_AWAIT)
		return 0;
	left = wait_event_interruptible_timeout(gates_changed, gate_is(gate, turn, GATE_STOPPED),
						GATE_PATIENCE);
	return left < 0 ? -EINTR : left ? 0 : -ETIMEDOUT;
}

/* ---- /proc/sim_gpu ---- */

static int counters_show(struct seq_file *file, void *unused)
{
	static const char *const names[] = {SIM_GPU_COUNTER_NAMES};
	int i;

	BUILD_BUG_ON(ARRAY_SIZE(names) != SIM_GPU_COUNTERS);
	for (i = 0; i < SIM_GPU_COUNTERS; i++)
		seq_printf(file, "%s %lld\n", names[i], (s64)atomic64_read(&sim_counters[i]));
	return 0;
}

int sim_counters_show(void)
{
	return proc_create_single("sim_gpu", 0444, NULL, counters_show) ? 0 : -ENOMEM;
}

void sim_counters_hide(void)
{
	remove_proc_entry("sim_gpu", NULL);
}
