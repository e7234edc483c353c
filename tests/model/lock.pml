/* SPDX-License-Identifier: MIT */
/*
 * The lock of cache/base/thread/lock.c, for the model checker spin: threads take it, let it go, and
 * sleep while another has it. tests/model/check-protocol runs the model as it is, and with one step
 * left out or misplaced (-D...).
 *
 * The faults: two threads have the lock at once, or one sleeps for ever (`sleeping`).
 */

#define THREADS 3
#define ROUNDS	2

#define FREE	0
#define TAKEN	1
#define AWAITED 2

byte lock;
bool asleep[THREADS];
byte sleeping; /* so many are */
byte holders;

inline has_it() {
	taken = true;
	holders++;
	assert(holders == 1)
}

inline wake_any() {
	if
	:: asleep[0] -> asleep[0] = false; sleeping--
	:: asleep[1] -> asleep[1] = false; sleeping--
	:: asleep[2] -> asleep[2] = false; sleeping--
	:: else
	fi
}

/* A locked instruction, whether it succeeds or not. */
inline take_if_free() {
	atomic {
		if
		:: lock == FREE -> lock = TAKEN; has_it()
		:: else
		fi
	}
}

inline take_as_awaited() {
#ifdef NOT_SAID
	take_if_free()
#else
#ifdef NOT_PASSED_ON
	take_if_free();
	if
	:: !taken ->
		atomic {
			if
			:: lock == FREE
			:: else -> lock = AWAITED
			fi
		}
	:: else
	fi
#else
	atomic {
		if
		:: lock == FREE -> has_it()
		:: else
		fi;
		lock = AWAITED
	}
#endif
#endif
}

inline sleep_while(p) {
	/* The kernel compares and enqueues in one step. */
	atomic {
		if
#ifdef NOT_COMPARED
		:: true -> asleep[p] = true; sleeping++
#else
#ifdef NOT_SAID
		:: lock == TAKEN -> asleep[p] = true; sleeping++
#else
		:: lock == AWAITED -> asleep[p] = true; sleeping++
#endif
		:: else
#endif
		fi
	};
	!asleep[p]
}

inline take(p) {
	taken = false;
	take_if_free();
	do
	:: taken -> break
	:: else ->
		take_as_awaited();
		if
		:: !taken -> sleep_while(p)
		:: else
		fi
	od
}

inline let_go(p) {
#ifdef IN_TWO_STEPS
	found = lock;
	atomic { holders--; lock = FREE };
#else
	atomic { holders--; found = lock; lock = FREE };
#endif
	if
	:: found == AWAITED -> atomic { wake_any() }
	:: else
	fi
}

active [THREADS] proctype thread() {
	byte round, found;
	bool taken;

	for (round : 1 .. ROUNDS) {
		take(_pid);
		let_go(_pid)
	}
}

/* When nothing can happen any more, nobody may be asleep. */
active proctype end() {
	timeout -> assert(sleeping == 0)
}
