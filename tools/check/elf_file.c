// SPDX-License-Identifier: MIT
/* The part of elf_file.h that needs no libelf. */
#include "tools/check/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/regular.h"

void elf_file_free(struct elf_file *file)
{
	if (!file)
		return;
	texts_free(&file->needed);
	texts_free(&file->linked);
	texts_free(&file->named);
	texts_free(&file->verbs_linked);
	texts_free(&file->verbs_named);
	texts_free(&file->opened);
	texts_free(&file->defined);
	release(file->path);
	release(file->interpreter);
	release(file->soname);
	release(file->rpath);
	release(file->runpath);
	release(file);
}

bool elf_file_fits(const char *path, unsigned char elf_class, uint16_t machine)
{
	unsigned char start[EI_NIDENT + 4];
	uint16_t its_machine;
	int fd = open_regular(path, 0);
	bool fits = fd >= 0 && pread(fd, start, sizeof(start), 0) == sizeof(start) &&
		    memcmp(start, ELFMAG, SELFMAG) == 0;

	if (fd >= 0)
		close(fd);
	if (!fits)
		return false;
	memcpy(&its_machine, start + EI_NIDENT + 2, sizeof(its_machine));
	return start[EI_CLASS] == elf_class && its_machine == machine;
}
