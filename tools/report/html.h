/* SPDX-License-Identifier: MIT */
/*
 * The page that `pindown report --html` writes: the files of page/, with the report as text for
 * browsers without JavaScript, and as JSON, which the page's script draws.
 */
#ifndef HTML_H
#define HTML_H

#include <stdbool.h>

/*
 * Begins a page in a file, or on standard output for "-"; false, after one line, when it fails.
 * What the command prints then becomes the page's text, and after html_data() its JSON.
 */
bool html_begin(const char *name);
void html_data(void);
/* False, after one line, when not all could be written. */
bool html_end(const char *name);

#endif
