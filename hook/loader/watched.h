/* SPDX-License-Identifier: MIT */
/*
 * A watched function: one for which programs get a wrapper. Two roads lead to it, and each has a
 * wrapper and a real function behind that:
 *
 *	linked		the exported wrapper; behind it the next definition after us, so that an
 *			interposer behind us keeps its place
 *	looked up	the wrapper that look-ups are answered with; behind it the function that the
 *			look-up found
 *
 * Where both real functions are the same, the exported wrapper serves both roads.
 *
 * The slots of the real functions hold addresses of code that was there before them, and always the
 * same ones; so all loads are relaxed, also in the wrappers, which read the slots themselves.
 */
#ifndef PDN_WATCHED_H
#define PDN_WATCHED_H

#pragma GCC visibility push(hidden)

struct pdn_watched {
	const char *symbol;
	/* The next definition after us, of those that the program started with; or NULL. */
	void *(*next)(const char *symbol);
	void *linked, *looked_up;	      /* the wrappers */
	void **linked_real, **looked_up_real; /* the slots that they read */
};

/* The real function of a linked program, found at its first use; NULL: there is none. */
void *pdn_watched_real(const struct pdn_watched *watched);

/*
 * The wrapper to hand out for the function that a look-up found; `found` itself if it is a wrapper.
 * NULL: another function than `found` is behind each wrapper.
 */
void *pdn_watched_wrapper(const struct pdn_watched *watched, void *found);

#pragma GCC visibility pop

#endif
