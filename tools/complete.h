/* SPDX-License-Identifier: MIT */
/*
 * Completion in a shell: when the user presses Tab, the shell runs pindown --complete WORD..., with the
 * words behind `pindown`, the last of which is to be completed. Each candidate is printed on a line,
 * followed by a tab and its meaning if it has one. Lines that begin with a colon say what the shell
 * offers besides: :files, :folders, :traces (files and families of traces), :commands (programs).
 */
#ifndef COMPLETE_H
#define COMPLETE_H

#include "tools/command.h"

int complete(char **words, int count, const struct command *const *commands,
	     unsigned command_count);

#endif
