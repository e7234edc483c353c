/* SPDX-License-Identifier: MIT */
/*
 * The protocol of get, put, pin and free, for the model checker spin. Two threads hit, one pins,
 * and one frees and allocates again at the same address. With -DSECOND the last thread also ends
 * the second memory, by the end of a context that only this memory belongs to.
 * tests/model/check-protocol runs the model as it is, and with one step left out (-D...), which the
 * model checker must find; one thread that hits is enough for that.
 *
 * Faults that the model can show:
 *	stale_hit	a get returns a region whose memory had ended before the get began, or a
 *			region that is unpinned while it is held
 *	lost_unpin	memory has ended, no thread uses it, and it is still pinned
 *	double_unpin	memory is unpinned that is not pinned
 *	asked_in_free	the driver is asked about memory, or pins it, while it frees it
 *
 * Memory order. Plain stores that other threads must see (pdn_store_unfenced() of announced, hold
 * counts and guards) go into a store buffer of the thread, first in first out, and reach memory at
 * any later time; membarrier empties the buffers of all threads one after another. A fence empties
 * the thread's own buffer, and so does taking the lock, but not with -DWEAK. Everything else is in
 * order, since the code makes it so on every processor: these stores are releases, so they keep
 * their order among each other; loads after them are acquire loads or stronger, so they keep
 * theirs; and a hold is stored only after the state that allows it was read (a store waits for the
 * branch that it depends on).
 * So the only reordering left to a processor is a late store.
 */

#ifdef KNOWN_TOO_EARLY
#define SECOND
#endif
#if defined(TAKEN_LATE) || defined(GIVEN_BACK_EARLY)
#define COME_AND_GO
#endif
#if defined(REFUSAL_IGNORED) || defined(NO_GRACE) || defined(GRACE_AT_ONCE) || \
	defined(FENCE_AS_SEEN)
#define REFUSED
#endif
#ifdef CHANGE_IS_NO_FENCE
#define WEAK
#define FENCES
#endif
#if defined(NO_FENCE) || defined(PUT_WITHOUT_FENCE) || defined(REFUSED)
#define FENCES
#endif

/* Threads, hold counts and store buffers by number: 0 and 1 hit. */
#define PINNER	2
#define FREER	3
#define THREADS 4
#define RECORDS 2	/* 1 and 2; the index and announced have 0 for none */
#ifdef WEAK
#define DEEP	6	/* capacity of a store buffer: the maximum that one thread uses */
#else
#define DEEP	4
#endif

/* States of a record. */
#define FREE  0
#define LIVE  1
#define DYING 2
#define KEPT  3

/* The driver's memory, and the pins, by buffer id: 1 at first, 2 after the free. */
byte memory = 1;
byte pins[3];
bool ended[3];
#define ALL_ENDED (ended[1] + 2 * ended[2])	/* one bit each */

/* The scope of an end: all memory at the address, or that of the context, by its buffer id. */
#define RANGE	1	/* ends memory 1 */
#define CONTEXT 2
#define COVERS(scope, id) ((scope) == RANGE || ((scope) == CONTEXT && (id) == 2))

/*
 * The side that pays for the order of stores and loads, see cache/base/thread/barrier.h. FENCES:
 * there may be no membarrier. REFUSED: it may be refused at any time, in one thread and not in
 * another.
 */
#define MEMBARRIER 0
#define LOSING_MEMBARRIER 1
#define FENCE_FOR_GOOD 2
byte fence_mode;

/* The cache. */
byte index, state[RECORDS + 1], id_of[RECORDS + 1], pin_of[RECORDS + 1];
byte busy, sequence;
bool lock;
byte guard;	/* 0: none is up */
byte announced[THREADS];	/* by record */
/*
 * The records of threads (cache/base/thread/thread_records.c): whether a thread owns it. With
 * COME_AND_GO, a thread that hits takes the lower one that is free, at any time, and gives it back
 * when it ends; so the second may get that of the first while an end walks over them. The thread
 * that frees is alone when the others have ended. Else each has one, by its number, all the time.
 */
bool taken[THREADS];
byte place[THREADS];
#define ALONE(p)	     (!taken[0] && !taken[1] && ((p) == PINNER || !taken[PINNER]) && \
			      ((p) == FREER || !taken[FREER]))
#define PASSES(which, record) (!taken[which] || announced[which] != record)
short hold[(RECORDS + 1) * THREADS];
#ifdef WEAK
short own; /* for count_holds() */
#endif
bool flight, lost;
byte says;	/* the buffer id that the flight has announced; 0: none yet */
#ifdef KNOWN_TOO_EARLY
#define TOUCHES(scope) (flight && COVERS(scope, says))
#else
#define TOUCHES(scope) (flight && (says == 0 || COVERS(scope, says)))
#endif
byte dying; /* unpins by a last put */
bool in_driver;	/* the driver frees */
bool asked_in_free;

/* The verdict. */
bool stale_hit, lost_unpin, double_unpin;
byte users;	/* hits that have begun, and regions that a pin returned, until they are put */

/* ---- store buffers ---- */

#define TO_ANNOUNCED 0
#define TO_GUARD   9	/* any other number: the hold count of that record */
#define TO_LOCK	   10	/* WEAK: the lock is let go */
#define TO_FLIGHT  11	/* WEAK: a flight begins */

byte buffered_to[THREADS * DEEP];
short buffered[THREADS * DEEP];
byte fill[THREADS];

inline commit(p) {
	d_step {
#ifdef TAKEN_LATE
		taken[place[p]] = true;
#endif
		if
		:: buffered_to[p * DEEP] == TO_ANNOUNCED -> announced[place[p]] = buffered[p * DEEP]
		:: buffered_to[p * DEEP] == TO_GUARD -> guard = buffered[p * DEEP]
#ifdef WEAK
		:: buffered_to[p * DEEP] == TO_LOCK -> lock = false
		:: buffered_to[p * DEEP] == TO_FLIGHT -> flight = true
#endif
		:: else -> hold[buffered_to[p * DEEP] * THREADS + p] = buffered[p * DEEP]
		fi;
		buffered_to[p * DEEP] = buffered_to[p * DEEP + 1];
		buffered[p * DEEP] = buffered[p * DEEP + 1];
		buffered_to[p * DEEP + 1] = buffered_to[p * DEEP + 2];
		buffered[p * DEEP + 1] = buffered[p * DEEP + 2];
		buffered_to[p * DEEP + 2] = buffered_to[p * DEEP + 3];
		buffered[p * DEEP + 2] = buffered[p * DEEP + 3];
#ifdef WEAK
		buffered_to[p * DEEP + 3] = buffered_to[p * DEEP + 4];
		buffered[p * DEEP + 3] = buffered[p * DEEP + 4];
		buffered_to[p * DEEP + 4] = buffered_to[p * DEEP + 5];
		buffered[p * DEEP + 4] = buffered[p * DEEP + 5];
#endif
		buffered_to[p * DEEP + DEEP - 1] = 0;
		buffered[p * DEEP + DEEP - 1] = 0;
		fill[p]--
	}
}

inline drain(p) {
	do
	:: fill[p] > 0 -> commit(p)
	:: else -> break
	od
}

inline publish(p, to, value) {
	atomic {
		assert(fill[p] < DEEP);
		buffered_to[p * DEEP + fill[p]] = to;
		buffered[p * DEEP + fill[p]] = value;
		fill[p]++
	}
}

/* A processor empties its store buffer at some time. */
proctype Processor(byte p) {
end:	do
	:: atomic { fill[p] > 0 -> commit(p) }
	od
}

/* The fence of a thread that stores late, before it loads. */
inline fence(p) {
#if defined(FENCES) && !defined(NO_FENCE)
	if
	:: fence_mode != MEMBARRIER -> atomic { drain(p) }
	:: else
	fi
#else
	skip
#endif
}

/* The same, when the thread has read `fence_mode` before it stored. */
inline fence_as_seen(p, seen_fence_mode) {
	if
	:: seen_fence_mode != MEMBARRIER -> atomic { drain(p) }
	:: else
	fi
}

inline membarrier() {
	atomic { drain(0) };
	atomic { drain(1) };
	atomic { drain(2) };
	atomic { drain(3) }
}

/*
 * Each buffer has been empty once, as after a membarrier, but each at a time of its own.
 */
inline grace_period() {
	membarrier()
}

/* do_without() */
inline be_refused() {
#ifndef REFUSAL_IGNORED
	if
	:: atomic { fence_mode == FENCE_FOR_GOOD }
	:: atomic { fence_mode != FENCE_FOR_GOOD -> fence_mode = LOSING_MEMBARRIER };
#ifdef NO_GRACE
		fence_mode = FENCE_FOR_GOOD
#else
#ifdef GRACE_AT_ONCE
		fence_mode = FENCE_FOR_GOOD;
		grace_period()
#else
		grace_period();
		fence_mode = FENCE_FOR_GOOD
#endif
#endif
	fi
#else
	skip
#endif
}

/* The stores of the rare side are in memory already, as all stores except late ones are. */
inline heavy_barrier(p) {
#ifdef NO_BARRIER
	skip
#else
	atomic { drain(p) };
	barrier_without_fence(p)
#endif
}

inline barrier_without_fence(p) {
	if
	:: ALONE(p) -> skip
	:: else ->
#ifdef FENCES
	if
	:: fence_mode == FENCE_FOR_GOOD
	:: fence_mode != FENCE_FOR_GOOD -> membarrier()
#ifdef REFUSED
	:: fence_mode != FENCE_FOR_GOOD -> be_refused()
#endif
	fi
#else
	membarrier()
#endif
	fi
}

/*
 * On x86 the lock is taken and let go by locked instructions, and both empty the store buffer. With
 * WEAK, as on arm64, neither does: to take it is an acquire, which later loads do not overtake; to
 * let it go is a release, a store that comes behind the thread's earlier ones, and that its later
 * loads may overtake.
 */
#ifdef WEAK
inline take_lock(p) {
	atomic { !lock -> lock = true }
}
inline release_lock(p) {
	publish(p, TO_LOCK, 0)
}
#else
inline take_lock(p) {
	atomic { !lock -> lock = true; drain(p) }
}
inline release_lock(p) {
	lock = false
}
#endif

/* ---- pins ---- */

inline do_unpin(what) {
	d_step {
		if
		:: pins[what] == 0 -> double_unpin = true
		:: else -> pins[what]--
		fi;
		assert(!double_unpin)
	}
}

/*
 * In one step: no thread adds to a stripe any more when holds are counted, so that reading one
 * stripe after another can only give more than there are at the end; and then a put is still to
 * come that takes the lock.
 */
#define SEE_OWN(p, record, i) \
	if \
	:: fill[p] > i && buffered_to[p * DEEP + i] == record -> own = buffered[p * DEEP + i] \
	:: else \
	fi
inline count_holds(p, record, sum) {
	d_step {
		sum = hold[record * THREADS] + hold[record * THREADS + 1] +
		      hold[record * THREADS + 2] + hold[record * THREADS + 3];
#ifdef WEAK
		/* A thread sees its own stores, the latest one of a count. */
		own = hold[record * THREADS + p];
		sum = sum - own;
		SEE_OWN(p, record, 0);
		SEE_OWN(p, record, 1);
		SEE_OWN(p, record, 2);
		SEE_OWN(p, record, 3);
		SEE_OWN(p, record, 4);
		sum = sum + own;
		own = 0
#endif
	}
}

/* cache/end/kept.c, unpin(): the record is DYING, and this thread made it so. */
inline unpin_record(p, record) {
	do_unpin(pin_of[record]);
	atomic {
		!lock;
		drain(p);
		state[record] = FREE;
		id_of[record] = 0;
		pin_of[record] = 0;
		busy--
	}
}

/* A region that a get has returned is judged, used, and put. */
inline judge_hit(record, id, ended_before) {
	d_step {
		id = id_of[record];
		if
		:: id == 0 || (ended_before & id) || pins[id] == 0 -> stale_hit = true
		:: else
		fi;
		assert(!stale_hit)
	}
}

inline judge_use(record, id) {
	d_step {
		if
		:: id_of[record] != id || pins[id] == 0 -> stale_hit = true
		:: else
		fi;
		assert(!stale_hit)
	};
	id = 0
}

/* ---- put ---- */

inline put(p, record, id, sum) {
#ifdef PUT_LOOKS_FIRST
	sum = state[record];
	atomic { judge_use(record, id); publish(p, record, 0) };
	if
	:: sum == LIVE
#else
	atomic { judge_use(record, id); publish(p, record, 0) };
#ifndef PUT_WITHOUT_FENCE
	fence(p);
#endif
	if
	:: state[record] == LIVE
#endif
	:: else ->
		take_lock(p);
		count_holds(p, record, sum);
#ifdef TWO_LASTS
		if
		:: (state[record] == KEPT || state[record] == DYING) && sum == 0 ->
#else
		if
		:: state[record] == KEPT && sum == 0 ->
#endif
			state[record] = DYING;
			/*
			 * pdn_region_take_kept(): under the same lock, or a free would not wait for
			 * the unpin
			 */
			dying++;
			busy++;
			release_lock(p);
			unpin_record(p, record);
			dying--
		:: else -> release_lock(p)
		fi
	fi;
	sum = 0
}

/* ---- two threads that hit ---- */

proctype Reader(byte p) {
#ifdef FENCE_AS_SEEN
	byte seen_fence_mode;
#endif
	byte record, id;
	short sum;
	byte ended_before;
	bool ok;

#ifdef COME_AND_GO
	/* pdn_thread_attach(): a locked instruction, at which nothing is in the buffer */
	atomic {
		place[p] = (taken[0] -> 1 : 0);
#ifndef TAKEN_LATE
		taken[place[p]] = true
#endif
	};
#endif
	atomic { users++; ended_before = ALL_ENDED };
	record = index;
	if
	:: record == 0 -> users--
	:: else ->
#ifdef FENCE_AS_SEEN
		seen_fence_mode = fence_mode;
		publish(p, TO_ANNOUNCED, record);
		fence_as_seen(p, seen_fence_mode);
#else
#ifndef NO_PROBE
		publish(p, TO_ANNOUNCED, record);
		fence(p);
#endif
#endif
		ok = state[record] == LIVE;
		atomic {
			if
#ifdef HELD_LATE
			:: ok -> publish(p, TO_ANNOUNCED, 0); publish(p, record, 1)
			:: else -> publish(p, TO_ANNOUNCED, 0)
			fi
#else
			:: ok -> publish(p, record, 1)
			:: else
			fi;
#ifndef NO_PROBE
			publish(p, TO_ANNOUNCED, 0)
#endif
#endif
		};
		if
		:: ok ->
			judge_hit(record, id, ended_before);
			put(p, record, id, sum)
		:: else
		fi;
		atomic { users--; record = 0; ok = false }
	fi;
#ifdef COME_AND_GO
	/* end_record(): a release; all that the thread has stored is in memory before */
#ifdef GIVEN_BACK_EARLY
	taken[place[p]] = false
#else
	atomic { fill[p] == 0 -> taken[place[p]] = false; place[p] = 0 }
#endif
#else
	skip
#endif
}

/* ---- one that pins ---- */

inline land(p) {
	atomic {
		!lock; drain(p);
		flight = false; lost = false; says = 0
	}
}

inline ask(what) {
	d_step {
		what = memory;
		asked_in_free = in_driver;
		assert(!asked_in_free)
	}
}

proctype Pinner() {
	byte id, record, pinned, tries, ended_before;
	short sum;
	bool again;

	ended_before = ALL_ENDED;
	do
	:: tries == 2 -> break
	:: else ->
		tries++;
		/* pdn_flight_begin(): without the lock */
#ifdef WEAK
		publish(PINNER, TO_FLIGHT, 1);
#else
#ifndef SAYS_LATE
		flight = true;
#endif
#endif
#ifdef CHANGE_IS_NO_FENCE
		barrier_without_fence(PINNER);
#else
		heavy_barrier(PINNER);
#endif
		/* which memory it is, and so whose, is not known yet */
#ifndef NO_GUARD
		again = guard != 0;
#endif
#ifdef CHANGE_IS_NO_FENCE
		atomic { drain(PINNER) };
#endif
#ifdef SAYS_LATE
		flight = true;
#endif
		if
		:: again ->
			land(PINNER);
			again = false;
			guard == 0; /* pdn_flight_wait() */
			goto next
		:: else
		fi;
		/* ask the driver for the allocation */
		ask(id);
		if
		:: id == 0 -> land(PINNER); break
		:: else
		fi;
		/* announce the allocation */
		take_lock(PINNER);
		if
		:: index != 0 ->
			atomic {
				record = index;
				hold[record * THREADS + PINNER] = 1;
				users++;
				flight = false;
				lost = false;
				release_lock(PINNER)
			};
			goto got
		:: else ->
			atomic { says = id; release_lock(PINNER) }
		fi;
		/*
		 * The backend pins the memory that is at the address now. The id is read again
		 * behind that for memory that is freed unseen, which the model does not have.
		 */
		ask(pinned);
		if
		:: pinned -> pins[pinned]++
		:: else -> land(PINNER); id = 0; goto next
		fi;
		/* commit the region */
		take_lock(PINNER);
#ifndef NO_LAST_LOOK
		again = lost;
#endif
		if
		:: !again ->
			record = (state[1] == FREE -> 1 : 2);
			assert(state[record] == FREE);
			atomic {
				id_of[record] = id; /* as it was described */
				pin_of[record] = pinned;
				users++;
				sequence = 1 - sequence
			};
			index = record;
			hold[record * THREADS + PINNER] = 1;
			state[record] = LIVE;
			atomic {
				flight = false;
				says = 0;
				release_lock(PINNER)
			};
			goto got
		:: else -> release_lock(PINNER)
		fi;
		/* retry: the pin is discarded, and the flight ends only after its unpin */
#ifdef LANDS_FIRST
		land(PINNER);
		do_unpin(pinned);
#else
		do_unpin(pinned);
		land(PINNER);
#endif
		id = 0; pinned = 0; again = false;
next:		skip
	od;
	goto out;
got:	judge_hit(record, id, ended_before);
	put(PINNER, record, id, sum);
	users--;
out:
#ifdef COME_AND_GO
	atomic { fill[PINNER] == 0 -> taken[PINNER] = false }
#else
	skip
#endif
}

/* ---- one that frees ---- */

proctype Freer() {
	byte scope, record, i, seen;
	short sum;
	bool wait;

	scope = RANGE;
	/* pdn_end_range(); then pdn_end_context() */
end_it:
#ifndef NO_GUARD_UP
	publish(FREER, TO_GUARD, scope);
	fence(FREER);
#endif
	seen = sequence;
#ifdef NO_BUSY
	if
	:: index == 0 && sequence == seen -> goto returned
#else
	if
#ifndef LOOKS_FOR_WORK_LAST
	:: !flight && busy == 0 -> /* pdn_works_any(): one list has both */
#else
	:: true ->
#endif
		if
		:: index == 0 ->
			if
			:: sequence == seen ->
#ifdef LOOKS_FOR_WORK_LAST
				if
				:: !flight && busy == 0 -> goto returned
				:: else
				fi
#else
				goto returned
#endif
			:: else
			fi
		:: else
		fi
#endif
	:: else
	fi;
	take_lock(FREER);
	if
	:: index != 0 && COVERS(scope, id_of[index]) -> record = index
	:: else
	fi;
	if
	:: record != 0 ->
		/* pdn_ending_add() */
		busy++;
		state[record] = DYING;
		index = 0;
		sequence = 1 - sequence;
		/* pdn_ending_split_idle_and_held() */
#ifdef COUNTS_FIRST
		count_holds(FREER, record, sum);
#endif
		heavy_barrier(FREER);
#ifndef NO_WAIT_FOR_PROBES
		PASSES(0, record);
		PASSES(1, record);
#endif
#ifndef COUNTS_FIRST
		count_holds(FREER, record, sum);
#endif
		if
		:: sum != 0 ->
			hold[record * THREADS + FREER] = 1;
			state[record] = KEPT
		:: else
		fi
	:: else
	fi;
	if
	:: TOUCHES(scope) ->
#ifndef NO_LOSE
		lost = true;
#endif
		wait = true
	:: else
	fi;
	wait = wait || dying > 0;
	release_lock(FREER);
	/* pdn_ending_dispatch() */
	if
	:: record != 0 && sum != 0 ->
		/* let_go() */
		take_lock(FREER);
		hold[record * THREADS + FREER] = 0;
		count_holds(FREER, record, sum);
		if
		:: sum == 0 ->
			state[record] = DYING;
			release_lock(FREER);
			unpin_record(FREER, record)
		:: else ->
			busy--;
			release_lock(FREER)
		fi
	:: record != 0 && sum == 0 -> unpin_record(FREER, record)
	:: else
	fi;
	record = 0;
	/* wait_for_others(): for a flight that touches the memory, and unpins */
#ifndef NO_WAIT
	if
	:: wait -> !TOUCHES(scope) && dying == 0
	:: else
	fi;
#endif

returned:
	skip;
	/*
	 * The free continues and ends memory 1 or 2, which may only be pinned while it is used.
	 */
	d_step {
		sum = 0;
		wait = false;
		seen = 0;
		ended[scope] = true;
		if
		:: users == 0 && pins[scope] > 0 -> lost_unpin = true
		:: else
		fi;
		assert(!lost_unpin)
	};
	/* the driver's own free; another pin's export sees the memory until then */
	in_driver = true;
	d_step { memory = 0; in_driver = false };
#ifndef NO_GUARD_UP
	publish(FREER, TO_GUARD, 0);
#endif
	/* the address is handed out again at once */
	if
	:: scope == RANGE ->
		memory = 2;
#ifdef SECOND
		scope = CONTEXT;
		goto end_it
#endif
	:: else
	fi
}

init {
	atomic {
		place[PINNER] = PINNER;
		place[FREER] = FREER;
		taken[PINNER] = true;
		taken[FREER] = true;
#ifndef COME_AND_GO
		place[1] = 1;
		taken[0] = true;
		taken[1] = true;
#endif
#ifdef FENCES
		if
		:: true -> fence_mode = FENCE_FOR_GOOD
		:: true
		fi;
#endif
		if /* pinned before, or not yet */
		:: true ->
			pins[1] = 1;
			state[1] = LIVE;
			id_of[1] = 1;
			pin_of[1] = 1;
			index = 1
		:: true
		fi;
		run Processor(0);
		run Processor(1);
		run Processor(2);
		run Processor(3);
		run Reader(0);
#ifndef ONE_READER
		run Reader(1);
#endif
		run Pinner();
		run Freer()
	};
	/* All threads are done: no ended memory is pinned, and nothing is held or under way. */
	(_nr_pr == THREADS + 1);
	d_step {
		if
		:: (ended[1] && pins[1] > 0) || (ended[2] && pins[2] > 0) -> lost_unpin = true
		:: index != 0 && ended[id_of[index]] -> stale_hit = true
		:: else
		fi;
		assert(!lost_unpin);
		assert(!stale_hit);
		assert(busy == 0 && !flight)
	}
}
