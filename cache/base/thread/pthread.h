/* SPDX-License-Identifier: MIT */
/*
 * What pindown needs of threads that the C library has only since glibc 2.34. Before, it is in
 * libpthread.so.0, which a process need not have: each of the functions is NULL then, nobody can
 * start a thread, and what is said below happens instead. (A library loaded later may bring
 * libpthread. Then threads that end are found by other means, see thread.c, and a callback must not
 * end its thread.)
 */
#ifndef PDN_PTHREAD_H
#define PDN_PTHREAD_H

#include <pthread.h>

#include "cache/base/visible.h"

struct pdn_pthread {
	__typeof__(pthread_once) *once;
	__typeof__(pthread_create) *create;
	__typeof__(pthread_setname_np) *setname_np;
	__typeof__(pthread_key_create) *key_create;
	__typeof__(pthread_setspecific) *setspecific;
	void (*register_cancel)(__pthread_unwind_buf_t *buffer);
	void (*unregister_cancel)(__pthread_unwind_buf_t *buffer);
	void (*unwind_next)(__pthread_unwind_buf_t *buffer); /* does not return */
};
extern PDN_HIDDEN const struct pdn_pthread pdn_pthread;

/*
 * Without libpthread at load there is no other thread, unless a library that was loaded later
 * brings one: that thread may come back from here before begin() is over.
 */
static inline void pdn_once(pthread_once_t *once, void (*begin)(void))
{
	static const pthread_once_t fresh = PTHREAD_ONCE_INIT;

	if (pdn_pthread.once) {
		pdn_pthread.once(once, begin);
	} else if (*once == fresh) {
		*once = ~fresh;
		begin();
	}
}

/* The C library's function for its macros of this kind: it fills in a buffer of this size. */
int pdn_set_jump(__pthread_unwind_buf_t *buffer, int with_signals) __asm__("__sigsetjmp")
	__attribute__((returns_twice));

/*
 * As pthread_cleanup_push() and pthread_cleanup_pop(0) around a statement: `routine(arg)` is called
 * if the thread ends in it, by pthread_exit() or by being cancelled.
 */
#define PDN_WITH_CLEANUP(routine, arg, statement)                     \
	do {                                                          \
		__pthread_unwind_buf_t buffer_;                       \
                                                                      \
		if (!pdn_pthread.register_cancel) {                   \
			statement;                                    \
			break;                                        \
		}                                                     \
		if (__builtin_expect(pdn_set_jump(&buffer_, 0), 0)) { \
			routine(arg);                                 \
			pdn_pthread.unwind_next(&buffer_);            \
		}                                                     \
		pdn_pthread.register_cancel(&buffer_);                \
		statement;                                            \
		pdn_pthread.unregister_cancel(&buffer_);              \
	} while (0)

#endif
