/* SPDX-License-Identifier: MIT */
/*
 * What a shell asks when a person presses Tab: pindown --complete WORD..., the words behind the command's
 * name, the last one being completed. Candidates are printed a line each, behind a tab what they mean,
 * and lines with a colon before them say what else the shell is to offer: :files, :folders, :traces
 * (files and families of traces), :commands.
 */
#ifndef COMPLETE_H
#define COMPLETE_H

#include "tools/command.h"

int complete(char **words, int count, const struct command *const *commands,
	     unsigned command_count);

#endif
