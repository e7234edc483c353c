/* SPDX-License-Identifier: MIT */
/*
 * For the tests of the trace writer. Each test is a process of its own, in a folder of its own,
 * with PINDOWN_TRACE=t.pdt. The command's reader reads back what was written.
 */
#ifndef TRACE_TEST_H
#define TRACE_TEST_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/trace/reader.h"
#include "tests/unit/support/suite.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/writer/writer.h"

extern char folder[];
extern int heard; /* a descriptor of what was printed on standard error */

void set_up(void);
void tear_down(void);

/* What was printed on standard error so far. */
const char *printed(void);

/* Records a call of function number 1. */
void call_at(uint64_t addr);

/*
 * All events of the last trace read; text is not kept. Its files stay open until the next trace is
 * read.
 */
extern struct event *events;
extern unsigned event_count;
extern struct counters counters;
void read_back(const char *name);
unsigned count_events(enum pdn_event event);

/* The file's name: t.<pid><tail>.pdt */
char *own_name(int pid, const char *tail);
bool exists(const char *name);
void put_file(const char *name, const char *text);
struct pdn_trace_header read_header(const char *name);

/* Runs a function in a child. Returns its exit status, or -signal. */
int in_child(void (*function)(void), int *child);

/* Asserts that one line was printed and has these words. */
void expect_one_line(const char *words);

/* How many segments of journals there are that this process has made. */
unsigned journals_of(int pid);

/* Adds tests from a list that ends with NULL. */
TCase *add_case(Suite *suite, const char *name, const TTest *const *tests);

#endif
