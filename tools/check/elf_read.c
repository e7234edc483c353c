// SPDX-License-Identifier: MIT
/* Reads an ELF file with libelf; elf_unread.c replaces it where pindown is built without libelf. */
#define _GNU_SOURCE
#include "tools/check/elf_file.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/regular.h"
#include "tools/check/watched.h"

/* ---- names in data ----------------------------------------------------------------------- */

static bool is_name_character(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Whether the data contains this text, also as a part of another. */
static bool has(const char *data, size_t size, const char *text)
{
	return size && memmem(data, size, text, strlen(text));
}

typedef bool is_wanted(const char *name, size_t length);

/* Names as whole NUL-terminated texts: "cuMemFree_v2", but not "see cuMemFree_v2". */
static void find_names(struct texts *names, const char *data, size_t size, const char *prefix,
		       is_wanted *wanted)
{
	const char *at = data, *end = data + size;
	size_t length = strlen(prefix);

	while (at < end && (at = memmem(at, (size_t)(end - at), prefix, length))) {
		const char *name = at, *stop = at;

		at += length;
		if (name > data && name[-1] != '\0')
			continue;
		while (stop < end && is_name_character(*stop))
			stop++;
		if (stop < end && *stop == '\0' && wanted(name, (size_t)(stop - name)))
			texts_add(names, name, (size_t)(stop - name));
	}
}

/* Finds "libcudart.so.12" and the like, as whole texts. */
static void find_runtime_names(struct elf_file *file, const char *data, size_t size)
{
	static const char stem[] = "libcudart.so";
	const char *at = data, *end = data + size;

	while (at < end && (at = memmem(at, (size_t)(end - at), stem, sizeof(stem) - 1))) {
		size_t length = strnlen(at, (size_t)(end - at));

		if (at + length < end &&
		    strspn(at + sizeof(stem) - 1, ".0123456789") == length - (sizeof(stem) - 1)) {
			char *name = text_of("%.*s", (int)length, at);

			texts_add_once(&file->opened, name);
			release(name);
		}
		at += length;
	}
}

/*
 * A file that contains the CUDA runtime has the names of its errors, and the name of the driver
 * function by which the runtime looks up all others.
 */
static bool is_runtime(const char *data, size_t size)
{
	return has(data, size, "cudaErrorMemoryAllocation") &&
	       has(data, size, "cudaErrorInvalidResourceHandle") &&
	       has(data, size, "cuGetProcAddress");
}

static void look_at_data(struct elf_file *file, const char *data, size_t size)
{
	find_names(&file->named, data, size, "cu", watched_name);
	find_names(&file->verbs_named, data, size, "ibv_", watched_verb);
	find_names(&file->verbs_named, data, size, "mlx5dv_", watched_verb);
	find_runtime_names(file, data, size);
	if (has(data, size, "libcuda.so"))
		file->names_driver = true;
	if (has(data, size, "cuGetProcAddress"))
		file->asks_proc_address = true;
	if (is_runtime(data, size))
		file->has_runtime = true;
}

/* ---- symbols ----------------------------------------------------------------------------- */

static bool is_runtime_call(const char *name)
{
	return strncmp(name, "cuda", 4) == 0 && isupper((unsigned char)name[4]);
}

static void take_import(struct elf_file *file, const char *name)
{
	if (watched_name(name, strlen(name)))
		texts_add(&file->linked, name, strlen(name));
	if (watched_verb(name, strlen(name)))
		texts_add(&file->verbs_linked, name, strlen(name));
	if (strncmp(name, "cuGetProcAddress", 16) == 0)
		file->asks_proc_address = true;
	file->runtime_calls += is_runtime_call(name);
	file->uses_dlopen |= strcmp(name, "dlopen") == 0;
	file->uses_dlmopen |= strcmp(name, "dlmopen") == 0;
	file->uses_dlsym |= strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0;
}

static void take_export(struct elf_file *file, const char *name)
{
	if (watched_name(name, strlen(name)))
		texts_add(&file->defined, name, strlen(name));
	file->defines_dlsym |= strcmp(name, "dlsym") == 0;
}

static void read_symbols(struct elf_file *file, Elf *elf, Elf_Scn *section, const GElf_Shdr *header)
{
	Elf_Data *data = elf_getdata(section, NULL);
	size_t count = header->sh_entsize ? header->sh_size / header->sh_entsize : 0;

	for (size_t i = 1; data && i < count; i++) {
		const char *name;
		GElf_Sym symbol;

		if (!gelf_getsym(data, (int)i, &symbol) ||
		    !(name = elf_strptr(elf, header->sh_link, symbol.st_name)))
			return;
		if (symbol.st_shndx == SHN_UNDEF)
			take_import(file, name);
		else if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC)
			take_export(file, name);
	}
}

static char *copy_text(Elf *elf, size_t table, size_t at)
{
	const char *text = elf_strptr(elf, table, at);

	return text_of("%s", text ? text : "");
}

static void read_dynamic(struct elf_file *file, Elf *elf, Elf_Scn *section, const GElf_Shdr *header)
{
	Elf_Data *data = elf_getdata(section, NULL);
	GElf_Dyn tag;

	file->is_dynamic = true;
	for (int i = 0; data && gelf_getdyn(data, i, &tag) && tag.d_tag != DT_NULL; i++) {
		const char *needed;

		switch (tag.d_tag) {
		case DT_NEEDED:
			needed = elf_strptr(elf, header->sh_link, tag.d_un.d_val);
			if (needed)
				texts_add_once(&file->needed, needed);
			break;
		case DT_SONAME:
			release(file->soname);
			file->soname = copy_text(elf, header->sh_link, tag.d_un.d_val);
			break;
		case DT_RPATH:
			release(file->rpath);
			file->rpath = copy_text(elf, header->sh_link, tag.d_un.d_val);
			break;
		case DT_RUNPATH:
			release(file->runpath);
			file->runpath = copy_text(elf, header->sh_link, tag.d_un.d_val);
			break;
		case DT_FLAGS_1:
			file->is_program |= (tag.d_un.d_val & DF_1_PIE) != 0;
			break;
		}
	}
}

/* ---- the file ---------------------------------------------------------------------------- */

/* GPU code can take gigabytes and has no names of host functions. */
static bool is_device_code(const char *name)
{
	return name && (strncmp(name, ".nv", 3) == 0 || strncmp(name, "__nv", 4) == 0);
}

static bool is_plain_data(const GElf_Shdr *header)
{
	return header->sh_type == SHT_PROGBITS && header->sh_flags & SHF_ALLOC &&
	       !(header->sh_flags & SHF_EXECINSTR);
}

static void read_sections(struct elf_file *file, Elf *elf)
{
	Elf_Scn *section = NULL;
	size_t names = 0;

	elf_getshdrstrndx(elf, &names);
	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr header;

		if (!gelf_getshdr(section, &header))
			continue;
		if (header.sh_type == SHT_DYNSYM) {
			read_symbols(file, elf, section, &header);
		} else if (header.sh_type == SHT_DYNAMIC) {
			read_dynamic(file, elf, section, &header);
		} else if (is_plain_data(&header) &&
			   !is_device_code(elf_strptr(elf, names, header.sh_name))) {
			Elf_Data *data = elf_rawdata(section, NULL);

			if (data && data->d_buf)
				look_at_data(file, data->d_buf, data->d_size);
		}
	}
	texts_sort(&file->linked);
	texts_sort(&file->named);
	texts_sort(&file->verbs_linked);
	texts_sort(&file->verbs_named);
	texts_sort(&file->defined);
}

static char *read_path(int fd, uint64_t offset, uint64_t length)
{
	char path[PATH_MAX];
	ssize_t got = length < sizeof(path) ? pread(fd, path, length, (off_t)offset) : -1;

	return got > 0 ? text_of("%.*s", (int)got, path) : NULL;
}

static void read_interpreter(struct elf_file *file, Elf *elf, int fd)
{
	size_t count = 0;

	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr header;

		if (!gelf_getphdr(elf, (int)i, &header) || header.p_type != PT_INTERP)
			continue;
		release(file->interpreter);
		file->interpreter = read_path(fd, header.p_offset, header.p_filesz);
		file->is_program = true;
	}
}

static struct elf_file *read_elf(const char *path, Elf *elf, int fd)
{
	struct elf_file *file;
	GElf_Ehdr header;

	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &header))
		return NULL;
	file = allocate(sizeof(*file));
	file->path = text_of("%s", path);
	file->elf_class = header.e_ident[EI_CLASS];
	file->machine = header.e_machine;
	file->is_program = header.e_type == ET_EXEC;
	read_interpreter(file, elf, fd);
	read_sections(file, elf);
	return file;
}

/* Whether a range that the headers name reaches beyond the end of the file. */
static bool is_beyond(uint64_t offset, uint64_t length, uint64_t size)
{
	return offset > size || length > size - offset;
}

static bool is_truncated(Elf *elf, int fd)
{
	struct stat status;
	GElf_Ehdr header;
	size_t count = 0;
	uint64_t size;

	if (fstat(fd, &status) != 0)
		return true;
	size = (uint64_t)status.st_size;
	if (!gelf_getehdr(elf, &header) ||
	    is_beyond(header.e_phoff, (uint64_t)header.e_phnum * header.e_phentsize, size) ||
	    is_beyond(header.e_shoff, (uint64_t)header.e_shnum * header.e_shentsize, size))
		return true;
	elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr segment;

		if (!gelf_getphdr(elf, (int)i, &segment) ||
		    is_beyond(segment.p_offset, segment.p_filesz, size))
			return true;
	}
	return false;
}

static bool has_magic(int fd)
{
	char start[SELFMAG];

	return pread(fd, start, sizeof(start), 0) == sizeof(start) &&
	       memcmp(start, ELFMAG, SELFMAG) == 0;
}

struct elf_file *elf_file_read(const char *path, const char **why)
{
	static const char truncated[] = "it is a truncated ELF file";
	struct elf_file *file = NULL;
	Elf *elf;
	int fd = open_regular(path, 0);

	if (fd < 0) {
		*why = errno == EINVAL ? "it is not a regular file" : strerror(errno);
		return NULL;
	}
	*why = "it is not an ELF file";
	elf_version(EV_CURRENT);
	/* Not mapped: who truncates a mapped file ends its reader by SIGBUS. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (has_magic(fd) && (!elf || is_truncated(elf, fd)))
		*why = truncated;
	else if (elf)
		file = read_elf(path, elf, fd);
	if (file && is_truncated(elf, fd)) { /* meanwhile */
		*why = truncated;
		elf_file_free(file);
		file = NULL;
	}
	elf_end(elf);
	close(fd);
	return file;
}
