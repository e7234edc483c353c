/* SPDX-License-Identifier: MIT */
/*
 * The program's threads may be cancelled: in calls of the driver and in callbacks, which may pass
 * cancellation points (system calls of pindown's own are none, see system.h), and with asynchronous
 * cancellation anywhere. Inside pindown that would leave the lock taken, a change half made, or a
 * list that names a record on a stack that is gone. So a function that takes the lock, or calls the
 * driver or a callback, begins with PDN_UNCANCELLED. A cancellation that comes meanwhile is acted
 * on when the outermost of them returns, or later.
 *
 * This is for the slow ways, as it costs some ten nanoseconds; what a cancelled hit leaves behind
 * is removed at the end of the thread (thread.c). The program's own calls of the driver are not
 * shielded: they are cancelled as without pindown.
 */
#ifndef PDN_CANCEL_H
#define PDN_CANCEL_H

int pdn_cancel_off(void);
void pdn_cancel_as_before(const int *before);
int pdn_cancel_later(void);
void pdn_cancel_type_as_before(const int *before);

/* The first declaration of a function; holds until that returns. Leaves errno alone. */
#define PDN_UNCANCELLED \
	__attribute__((cleanup(pdn_cancel_as_before), unused)) int cancel_before = pdn_cancel_off()

/*
 * The same where no cancellation point is passed: only an asynchronous cancellation could come
 * there. In a thread of the other type, as nearly all are, this takes no locked instruction, where
 * PDN_UNCANCELLED takes two. A function that such a one calls and that may pass a cancellation
 * point, or calls out, begins with PDN_UNCANCELLED itself.
 */
#define PDN_CANCELLED_LATER                                                                  \
	__attribute__((cleanup(pdn_cancel_type_as_before), unused)) int cancel_type_before = \
		pdn_cancel_later()

#endif
