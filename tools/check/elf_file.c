// SPDX-License-Identifier: MIT
/* What needs no libelf. */
#include "tools/check/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"

void object_free(struct object *object)
{
	if (!object)
		return;
	texts_free(&object->needed);
	texts_free(&object->linked);
	texts_free(&object->named);
	texts_free(&object->verbs_linked);
	texts_free(&object->verbs_named);
	texts_free(&object->opened);
	texts_free(&object->defined);
	release(object->path);
	release(object->interpreter);
	release(object->soname);
	release(object->rpath);
	release(object->runpath);
	release(object);
}

bool object_fits(const char *path, unsigned char elf_class, uint16_t machine)
{
	unsigned char start[EI_NIDENT + 4];
	uint16_t its_machine;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool fits = fd >= 0 && pread(fd, start, sizeof(start), 0) == sizeof(start) &&
		    memcmp(start, ELFMAG, SELFMAG) == 0;

	if (fd >= 0)
		close(fd);
	if (!fits)
		return false;
	memcpy(&its_machine, start + EI_NIDENT + 2, sizeof(its_machine));
	return start[EI_CLASS] == elf_class && its_machine == machine;
}

const char *machine_name(uint16_t machine)
{
	switch (machine) {
	case EM_X86_64:
		return "x86-64";
	case EM_386:
		return "x86";
	case EM_AARCH64:
		return "aarch64";
	case EM_ARM:
		return "arm";
	case EM_PPC64:
		return "ppc64";
	case EM_RISCV:
		return "riscv";
	}
	return "another machine";
}
