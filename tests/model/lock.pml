/* SPDX-License-Identifier: MIT */
/*
 * A lock that is let go with a plain store (cache/base/lock.c), for the model checker spin: threads
 * take it, let it go, and sleep while another has it. tests/model/check-protocol runs the model as
 * it is, and with one step left out or misplaced (-D...).
 *
 * The faults: two threads have the lock at once, or one sleeps for ever (`sleeping`).
 *
 * With -DLATE the store that lets go stays in its thread's store buffer for any time, until that
 * thread's next locked instruction at most; and a sleeper may look again at any time, as it does
 * after a millisecond. Without, a sleeper is woken or sleeps for ever.
 */

#ifdef NEVER_LOOKS_AGAIN
#define LATE
#endif

#define THREADS 3
#define ROUNDS	2
#define NONE	255

bool lock, awaited;
byte turns;
bool late[THREADS];	/* has let go, but the store is not in memory yet */
bool asleep[THREADS];
byte sleeping;		/* so many are */
byte holders;

inline drain(p) {
	if
	:: late[p] -> late[p] = false; lock = false
	:: else
	fi
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
inline try_to_take(p) {
	atomic {
		drain(p);
		if
		:: !lock -> lock = true; taken = true; holders++; assert(holders == 1)
		:: else
		fi
	}
}

inline sleep_while(p) {
	/* The kernel compares and enqueues in one step. */
	atomic {
		if
		:: turns == turn -> asleep[p] = true; sleeping++
		:: else
		fi
	};
	if
	:: !asleep[p]
#if defined(LATE) && !defined(NEVER_LOOKS_AGAIN)
	:: atomic { asleep[p] -> asleep[p] = false; sleeping-- }
#endif
	fi
}

inline say_so(p) {
	atomic { drain(p); awaited = true }
}

/* Before it falls asleep again, or when it has the lock: others may sleep. */
inline after_waking(p) {
	try_to_take(p);
#ifndef NOT_PASSED_ON
	if
	:: taken -> say_so(p)
	:: else
	fi
#endif
}

inline take(p) {
	taken = false;
	try_to_take(p);
#ifdef SAID_ONCE
	if
	:: !taken -> say_so(p)
	:: else
	fi;
#endif
	do
	:: taken -> break
	:: else ->
#ifdef TURN_READ_LATE
		say_so(p);
		try_to_take(p);
		turn = turns;
#else
		turn = turns;
#ifdef LOOKED_FIRST
		try_to_take(p);
#endif
#ifndef SAID_ONCE
		say_so(p);
#endif
#ifndef LOOKED_FIRST
		try_to_take(p);
#endif
#endif
		if
		:: !taken ->
			sleep_while(p);
			/* One that was not woken need not try here. */
			if
			:: after_waking(p)
			:: skip
			fi
		:: else
		fi
	od
}

inline let_go(p) {
	atomic {
		holders--;
#ifdef LATE
		late[p] = true
#else
		lock = false
#endif
	};
	if
	:: awaited ->
#ifdef CLEARED_FIRST
		awaited = false;
#endif
		if
		:: lock && !late[p] /* another thread has it again, and will look at awaited, too */
		:: else ->
#ifndef CLEARED_LAST
			awaited = false;
#endif
#ifdef NO_TURN
			atomic { drain(p) };
#else
			atomic { drain(p); turns++ };
#endif
			atomic { wake_any() };
#ifdef CLEARED_LAST
			awaited = false
#endif
		fi
	:: else
	fi
}

active [THREADS] proctype thread() {
	byte round, turn;
	bool taken;

	for (round : 1 .. ROUNDS) {
		take(_pid);
		let_go(_pid)
	}
}

/* Store buffers empty at any time; and when nothing can happen any more, nobody may be asleep. */
active proctype processor() {
	do
	:: atomic { late[0] -> drain(0) }
	:: atomic { late[1] -> drain(1) }
	:: atomic { late[2] -> drain(2) }
	:: timeout -> assert(sleeping == 0); break
	od
}
