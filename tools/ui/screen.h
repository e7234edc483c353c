/* SPDX-License-Identifier: MIT */
/* A terminal screen that is drawn again and again, and single keys. */
#ifndef SCREEN_H
#define SCREEN_H

#include <stdbool.h>

/*
 * Takes over the terminal: keys arrive at once and are not echoed. screen_end() restores the former
 * content; signals that end the command make screen_key() return 'q', so that it is called. False
 * when standard input or output is no terminal.
 */
bool screen_begin(void);
void screen_end(void);

/* Call these before and after drawing with out.h, which starts in the upper left corner. */
void screen_draw_begin(void);
void screen_draw_end(void);
/* Ends a line of the output. On a screen it also clears what was behind the line. */
void screen_end_line(bool on_screen);
unsigned screen_rows(void);
unsigned screen_columns(void); /* as many as there are; out.width is never below OUT_NARROWEST */

/* Parses --interval, in seconds; false after one line that says which values are accepted. */
bool screen_take_interval(const char *text);

/*
 * Waits for a key during the interval, 2 s by default; 0: no key was pressed. Returns 'q' also when
 * a signal asks to end.
 */
int screen_key(void);

#endif
