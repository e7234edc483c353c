/* SPDX-License-Identifier: MIT */
/*
 * The list of blocks whose records have owners (cache/base/thread/thread_records.c), for the model
 * checker spin: threads that share a block come and go, and a walk looks at the list, and at the
 * block if it is listed. tests/model/check-protocol runs it as it is, and with one step left out
 * (-D...).
 *
 * The fault: a walk overlooks a thread that has had its record since before the walk began.
 *
 * All of it is sequentially consistent in the code, so each step is one of the model's.
 */

#define THREADS 2
#define ROUNDS	2

byte owned;	/* a bit for each thread's record */
bool listed;	/* the block's bit in its group, and the count of changes beside it */
byte changes;
bool is_there[THREADS];	/* it has its record, and may hit */
byte came[THREADS];

inline list() {
	do
	:: atomic {
		was_listed = listed; was = changes
	};
#ifdef NOT_COUNTED
	atomic {
		if
		:: was_listed -> break
		:: else
		fi
	};
#endif
	atomic {
		if
		:: listed == was_listed && changes == was ->
			listed = true;
			changes++;
			break
		:: else
		fi
	}
	od
}

/* The thread that has emptied the block. */
inline unlist() {
	do
	:: atomic {
		was_listed = listed; was = changes
	};
#ifndef NOT_LOOKED_AGAIN
	atomic {
		if
		:: owned != 0 -> break
		:: else
		fi
	};
#endif
	atomic {
		if
		:: listed == was_listed && changes == was ->
			listed = false;
			changes++;
			break
		:: else
		fi
	}
	od
}

proctype Thread(byte me) {
	byte round, was;
	bool was_listed, is_last;

	do
	:: round < ROUNDS ->
#ifdef LISTED_FIRST
		list();
		owned = owned | (1 << me);
#else
		owned = owned | (1 << me);
		list();
#endif
		atomic { is_there[me] = true; came[me]++ };
		is_there[me] = false;
		atomic { owned = owned & ~(1 << me); is_last = owned == 0 };
		if
		:: is_last -> unlist()
		:: else
		fi;
		round++
	:: else -> break
	od
}

proctype Walk() {
	byte visited, i;
	byte came_before[THREADS];
	bool was_there[THREADS];

	atomic {
		do
		:: i < THREADS -> was_there[i] = is_there[i]; came_before[i] = came[i]; i++
		:: else -> break
		od;
		i = 0
	};
	if
	:: listed -> visited = owned
	:: else
	fi;
	atomic {
		do
		:: i < THREADS ->
			assert(!was_there[i] || !is_there[i] || came[i] != came_before[i] ||
			       visited & (1 << i));
			i++
		:: else -> break
		od
	}
}

init {
	atomic { run Thread(0); run Thread(1); run Walk() }
}
