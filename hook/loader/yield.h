/* SPDX-License-Identifier: MIT */
/*
 * A program's variables with the same names as functions that we export. Some libraries are not
 * linked with the driver: they have global pointers with the names of its functions, and store in
 * them what they look up (cuew does so, and others for libibverbs). As we come first, the loader
 * would bind such a library to our functions, and what it stores would go into our code. So our
 * name yields: the loader finds the variable instead.
 *
 * At the start: if the first definition of the name behind us is a variable, everybody would be
 * bound to that without us. When we are relocated, before any constructor, the slots of the other
 * libraries are set to it, and the name is taken out of our table of symbols; the program itself is
 * relocated after that, also where it has copied the variable. (The slots are read-only by then: a
 * change of one costs two mprotect().)
 *
 * Later: before the first dlopen() our functions in that table are changed to indirect ones, whose
 * definition the loader asks us for whenever it binds one. Our answer is the program's variable
 * where the library that is being bound would get that without us.
 */
#ifndef PDN_YIELD_H
#define PDN_YIELD_H

/* Symbols that we define, the first ones of the table, that may be changed so. */
#define PDN_YIELD_MOST 256
#define PDN_YIELD_SIZE 16 /* bytes of code for each (yield.S) */

#if !defined(__ASSEMBLER__)

#pragma GCC visibility push(hidden)

/* In our constructor: later may be too late, where another dlopen() comes before ours. */
void pdn_yield_at_load(void);

/* Before the program's call of dlopen() goes on; `frame` lies on its stack. */
void pdn_yield_to_opened(const void *frame);

#pragma GCC visibility pop

#endif
#endif
