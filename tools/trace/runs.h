/* SPDX-License-Identifier: MIT */
/*
 * Runs of a program. The files of a family may come from several runs, because a trace never
 * replaces an older one. Two processes belong to one run if they ran at the same time, if one of
 * them started the other, or if one `pindown run` started both.
 */
#ifndef RUNS_H
#define RUNS_H

#include "tools/base/texts.h"
#include "tools/trace/file.h"

/*
 * Closes the files of all runs but the newest, and adds a text about each to `left_out`. The rest
 * of `files` keeps its order. Returns how many are left.
 */
unsigned runs_keep_newest(struct trace_file **files, unsigned count, struct texts *left_out);

#endif
