/* SPDX-License-Identifier: MIT */
/*
 * forger TRACE WORD: what a stranger can do to a trace that he may read. He makes a journal (a
 * segment of System V) which says that it is of this file, and whose first unit is the file's with
 * WORD, which must be there, in capitals. Prints the segment's number; somebody else removes it.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/trace/journal/journal.h"

int main(int argc, char **argv)
{
	struct pdn_trace_header header;
	struct pdn_journal *journal;
	struct stat status;
	char *unit, *word;
	int fd, segment;

	if (argc != 3)
		return 2;
	fd = open(argv[1], O_RDONLY);
	segment = shmget(IPC_PRIVATE, PDN_JOURNAL_BYTES, IPC_CREAT | 0600);
	if (fd < 0 || segment < 0 || fstat(fd, &status) != 0 ||
	    pread(fd, &header, sizeof(header), 0) != sizeof(header))
		return 1;
	journal = shmat(segment, NULL, 0);
	if (journal == (void *)-1)
		return 1;
	unit = (char *)journal + PDN_JOURNAL_HEAD;
	if (pread(fd, unit, PDN_TRACE_UNIT, 0) <= 0)
		return 1;
	word = memmem(unit, PDN_TRACE_UNIT, argv[2], strlen(argv[2]));
	if (!word)
		return 1;
	for (size_t i = 0; i < strlen(argv[2]); i++)
		word[i] = (char)toupper((unsigned char)word[i]);
	journal->device = status.st_dev;
	journal->inode = status.st_ino;
	journal->pid = header.pid;
	journal->begin = header.begin;
	journal->pieces[0].place = 1;
	memcpy(journal->magic, PDN_JOURNAL_MAGIC, sizeof(journal->magic));
	printf("%d\n", segment);
	return 0;
}
