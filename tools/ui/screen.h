/* SPDX-License-Identifier: MIT */
/* A terminal that is drawn again and again, and single keys. */
#ifndef SCREEN_H
#define SCREEN_H

#include <stdbool.h>

/*
 * Takes the terminal over: keys come at once and are not shown, what was on the screen comes back at
 * the end, also when a signal ends the command. False when standard input or output is none.
 */
bool screen_begin(void);
void screen_end(void);

/* Around what is drawn with out.h, from the upper left corner. */
void screen_draw_begin(void);
void screen_draw_end(void);
unsigned screen_rows(void);

/* For --interval: seconds, as a text; false after one line that says what is accepted. */
bool screen_take_interval(const char *text);

/* Waits that long (2 s if nothing was taken) for a key; 0: none came. 'q' also when a signal asks to end. */
int screen_key(void);

#endif
