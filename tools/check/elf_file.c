// SPDX-License-Identifier: MIT
/*
 * Reads an ELF file as the loader does: by its program headers. A file that was packed or patched
 * may have no section headers, or wrong ones.
 */
#define _GNU_SOURCE
#include "tools/check/elf_file.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/regular.h"
#include "tools/check/watched.h"

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
	texts_free(&file->mentioned);
	release(file->path);
	release(file->interpreter);
	release(file->soname);
	release(file->rpath);
	release(file->runpath);
	release(file);
}

/* ---- names in data ----------------------------------------------------------------------- */

static bool is_name_character(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Whether the data contains this text, also as a part of another. */
static bool has(const char *data, size_t size, const char *text)
{
	return memmem(data, size, text, strlen(text));
}

typedef bool is_wanted(const char *name, size_t length);

static void add_once(struct texts *names, const char *name, size_t length)
{
	char *copy = text_of("%.*s", (int)length, name);

	texts_add_once(names, copy);
	release(copy);
}

/* The longest wanted name at the beginning of a text; 0: none. */
static size_t wanted_at(const char *name, size_t length, is_wanted *wanted)
{
	if (name[0] == 'c' && length > 2 && !isupper((unsigned char)name[2]))
		return 0;
	for (length = length < 64 ? length : 64; length > 2; length--)
		if (wanted(name, length))
			return length;
	return 0;
}

/*
 * Finds names as whole NUL-terminated texts: "cuMemFree_v2", but not "see cuMemFree_v2". Rust puts
 * a NUL behind some texts and none before them; all other names go to `mentioned`. Where `first` is
 * false, the data goes on from what was looked at before.
 */
static void find_names(struct texts *names, struct texts *mentioned, const char *data, size_t size,
		       bool first, const char *prefix, is_wanted *wanted)
{
	const char *at = data, *end = data + size;
	size_t length = strlen(prefix);

	while (at < end && (at = memmem(at, (size_t)(end - at), prefix, length))) {
		const char *name = at, *stop = at;
		bool begins = name > data ? name[-1] != ' ' : first;
		size_t found;

		at += length;
		while (stop < end && is_name_character(*stop))
			stop++;
		found = wanted_at(name, (size_t)(stop - name), wanted);
		if (!found)
			continue;
		if (begins && stop < end && *stop == '\0' && found == (size_t)(stop - name))
			add_once(names, name, found);
		else if (mentioned)
			add_once(mentioned, name, found);
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

/* The names of the CUDA runtime's errors, and how it looks up the driver's functions. */
static const char *const runtime_marks[] = {"cudaErrorMemoryAllocation",
					    "cudaErrorInvalidResourceHandle", "cuGetProcAddress"};
enum { RUNTIME_MARKS = sizeof(runtime_marks) / sizeof(runtime_marks[0]) };

static void look_at_data(struct elf_file *file, const char *data, size_t size, bool first)
{
	find_names(&file->named, &file->mentioned, data, size, first, "cu", watched_name);
	find_names(&file->verbs_named, NULL, data, size, first, "ibv_", watched_verb);
	find_names(&file->verbs_named, NULL, data, size, first, "mlx5dv_", watched_verb);
	find_runtime_names(file, data, size);
	file->names_driver |= has(data, size, "libcuda.so");
	file->asks_proc_address |= has(data, size, "cuGetProcAddress");
	for (unsigned i = 0; i < RUNTIME_MARKS; i++)
		if (has(data, size, runtime_marks[i]))
			file->runtime_marks |= 1u << i;
	file->has_runtime = file->runtime_marks == (1u << RUNTIME_MARKS) - 1;
}

/* ---- the parts of a file ------------------------------------------------------------------- */

struct range {
	uint64_t offset, size;
};

struct segment {
	struct range range;
	uint64_t address;
	uint32_t type;
};

struct image {
	int fd;
	uint64_t size;
	bool wide, big; /* 64 bits; the highest byte first */
	uint16_t type, machine;
	struct segment *segments;
	unsigned segment_count;
	struct range sections; /* the section headers; size 0: none */
	unsigned section_size;
	struct range names; /* of sections */
};

static uint64_t number(const struct image *image, const unsigned char *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[image->big ? bytes - 1 - i : i] << 8 * i;
	return value;
}

/* A number of the size of an address, which is elsewhere in files of 32 bits. */
static uint64_t word(const struct image *image, const unsigned char *record, unsigned wide,
		     unsigned narrow)
{
	return image->wide ? number(image, record + wide, 8) : number(image, record + narrow, 4);
}

static bool is_inside(const struct image *image, struct range range)
{
	return range.offset <= image->size && range.size <= image->size - range.offset;
}

static bool read_at(const struct image *image, void *to, struct range range)
{
	return is_inside(image, range) &&
	       pread(image->fd, to, range.size, (off_t)range.offset) == (ssize_t)range.size;
}

/* A copy with a NUL behind it, for free(); NULL when it can't be read, or there is no memory. */
static char *read_copy(const struct image *image, struct range range)
{
	char *copy = is_inside(image, range) ? malloc(range.size + 1) : NULL;

	if (copy && !read_at(image, copy, range)) {
		free(copy);
		return NULL;
	}
	if (copy)
		copy[range.size] = '\0';
	return copy;
}

/* Where the file has what is loaded at this address, up to the segment's end; size 0: nowhere. */
static struct range loaded_at(const struct image *image, uint64_t address)
{
	for (unsigned i = 0; i < image->segment_count; i++) {
		const struct segment *segment = &image->segments[i];
		uint64_t skip = address - segment->address;

		if (segment->type == PT_LOAD && skip < segment->range.size)
			return (struct range){segment->range.offset + skip,
					      segment->range.size - skip};
	}
	return (struct range){0};
}

static struct range up_to(struct range range, uint64_t size)
{
	return (struct range){range.offset, size < range.size ? size : range.size};
}

/* ---- what the loader is told --------------------------------------------------------------- */

/* Values of the dynamic section, by tag. */
struct dynamic {
	const unsigned char *data;
	size_t size;
};

/* The value of the next entry with this tag at or behind *at; false: there is none. */
static bool next_value(const struct image *image, const struct dynamic *dynamic, size_t *at,
		       uint64_t tag, uint64_t *value)
{
	size_t each = image->wide ? 16 : 8;

	while (dynamic->data && *at + each <= dynamic->size) {
		const unsigned char *entry = dynamic->data + *at;
		uint64_t its_tag = word(image, entry, 0, 0);

		if (its_tag == DT_NULL)
			return false;
		*at += each;
		*value = word(image, entry, 8, 4);
		if (its_tag == tag)
			return true;
	}
	return false;
}

/* 0: there is none. */
static uint64_t value_of(const struct image *image, const struct dynamic *dynamic, uint64_t tag)
{
	uint64_t value;
	size_t at = 0;

	return next_value(image, dynamic, &at, tag, &value) ? value : 0;
}

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

/*
 * The table of symbols has no length: it ends where the next table begins. What may be read behind
 * it has no names.
 */
static struct range find_symbols(const struct image *image, const struct dynamic *dynamic)
{
	static const uint64_t tables[] = {DT_HASH,   DT_GNU_HASH,  DT_STRTAB, DT_VERSYM,
					  DT_VERDEF, DT_VERNEED,   DT_RELA,   DT_REL,
					  DT_JMPREL, DT_INIT_ARRAY};
	uint64_t begin = value_of(image, dynamic, DT_SYMTAB), end = UINT64_MAX;

	for (unsigned i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		uint64_t table = value_of(image, dynamic, tables[i]);

		if (table > begin && table < end)
			end = table;
	}
	return begin ? up_to(loaded_at(image, begin), end - begin) : (struct range){0};
}

static void read_symbols(struct elf_file *file, const struct image *image, struct range symbols,
			 const char *names, uint64_t names_size)
{
	size_t each = image->wide ? 24 : 16;
	unsigned char symbol[24];

	for (uint64_t at = each; at + each <= symbols.size; at += each) {
		uint64_t name;

		if (!read_at(image, symbol, (struct range){symbols.offset + at, each}))
			return;
		name = number(image, symbol, 4);
		if (!name || name >= names_size)
			continue;
		if (number(image, symbol + (image->wide ? 6 : 14), 2) == SHN_UNDEF)
			take_import(file, names + name);
		else if ((symbol[image->wide ? 4 : 12] & 0xf) == STT_FUNC)
			take_export(file, names + name);
	}
}

static char *copy_name(const char *names, uint64_t size, uint64_t at)
{
	return at && at < size ? text_of("%s", names + at) : NULL;
}

static void read_names(struct elf_file *file, const struct image *image,
		       const struct dynamic *dynamic, const char *names, uint64_t size)
{
	uint64_t needed;
	size_t at = 0;

	while (next_value(image, dynamic, &at, DT_NEEDED, &needed))
		if (needed && needed < size)
			texts_add_once(&file->needed, names + needed);
	file->soname = copy_name(names, size, value_of(image, dynamic, DT_SONAME));
	file->rpath = copy_name(names, size, value_of(image, dynamic, DT_RPATH));
	file->runpath = copy_name(names, size, value_of(image, dynamic, DT_RUNPATH));
}

/* Returns the range of the names of symbols. */
static struct range read_dynamic(struct elf_file *file, const struct image *image,
				 const struct segment *segment)
{
	struct range range = up_to(loaded_at(image, segment->address), segment->range.size), texts;
	char *data = read_copy(image, range), *names;
	struct dynamic dynamic = {(unsigned char *)data, data ? range.size : 0};

	file->is_dynamic = true;
	file->is_program |= (value_of(image, &dynamic, DT_FLAGS_1) & DF_1_PIE) != 0;
	texts = up_to(loaded_at(image, value_of(image, &dynamic, DT_STRTAB)),
		      value_of(image, &dynamic, DT_STRSZ));
	names = texts.size ? read_copy(image, texts) : NULL;
	if (names) {
		read_names(file, image, &dynamic, names, texts.size);
		read_symbols(file, image, find_symbols(image, &dynamic), names, texts.size);
	} else if (value_of(image, &dynamic, DT_STRSZ) || !data || !range.size) {
		file->is_unread = true;
	}
	free(names);
	free(data);
	return texts;
}

/* ---- the data ------------------------------------------------------------------------------ */

/* GPU code can take gigabytes and has no names of host functions. */
static bool is_device_code(const char *name)
{
	return name && (strncmp(name, ".nv", 3) == 0 || strncmp(name, "__nv", 4) == 0);
}

static int compare(const void *a, const void *b)
{
	const struct range *one = a, *other = b;

	return (one->offset > other->offset) - (one->offset < other->offset);
}

struct section {
	char name[8]; /* the begin of it */
	uint64_t type, flags;
	struct range range;
};

static unsigned section_count(const struct image *image)
{
	return image->section_size ? (unsigned)(image->sections.size / image->section_size) : 0;
}

static bool read_section(const struct image *image, unsigned i, struct section *section)
{
	unsigned char header[64];
	uint64_t at = image->sections.offset + (uint64_t)i * image->section_size;

	if (i >= section_count(image) ||
	    !read_at(image, header, (struct range){at, image->section_size}))
		return false;
	*section = (struct section){
		.type = number(image, header + 4, 4),
		.flags = word(image, header, 8, 8),
		.range = {word(image, header, 24, 16), word(image, header, 32, 20)},
	};
	at = image->names.offset + number(image, header, 4);
	read_at(image, section->name, (struct range){at, sizeof(section->name) - 1});
	return true;
}

/*
 * What has no data to look at: the names of symbols and, as far as there are section headers, code
 * of this processor and of GPUs. Sorted.
 */
static struct range *find_skipped(const struct image *image, struct range names, unsigned *count)
{
	struct range *skipped = allocate((section_count(image) + 1) * sizeof(*skipped));
	struct section section;

	*count = 0;
	skipped[(*count)++] = names;
	for (unsigned i = 0; read_section(image, i, &section); i++)
		if (section.type == SHT_PROGBITS &&
		    (is_device_code(section.name) || section.flags & SHF_EXECINSTR))
			skipped[(*count)++] = section.range;
	sort(skipped, *count, sizeof(*skipped), compare);
	return skipped;
}

static void extend(uint64_t *end, struct range range)
{
	if (range.offset + range.size > *end)
		*end = range.offset + range.size;
}

/*
 * Data for the program itself to find, as an archive of other programs: behind all that the headers
 * name, or in a section that is not loaded and has no usual name.
 */
static uint64_t other_data(const struct image *image)
{
	struct section section;
	uint64_t end = 0, inside = 0;

	extend(&end, image->sections);
	for (unsigned i = 0; i < image->segment_count; i++)
		extend(&end, image->segments[i].range);
	for (unsigned i = 0; read_section(image, i, &section); i++) {
		if (section.type != SHT_NOBITS)
			extend(&end, section.range);
		if (section.type == SHT_PROGBITS && !(section.flags & SHF_ALLOC) &&
		    section.name[0] != '.')
			inside += section.range.size;
	}
	return inside + (end < image->size ? image->size - end : 0);
}

/* Looks at a range piece by piece: a file may be larger than the memory. */
static void look_at(struct elf_file *file, const struct image *image, struct range range)
{
	enum { PIECE = 1 << 18, LONGEST = 256 };
	static char data[LONGEST + PIECE];
	size_t kept = 0;

	for (bool first = true; range.size; first = false) {
		struct range piece = up_to(range, PIECE);

		if (!read_at(image, data + kept, piece)) {
			file->is_unread = true;
			return;
		}
		look_at_data(file, data, kept + piece.size, first);
		range = (struct range){range.offset + piece.size, range.size - piece.size};
		/* A name may be cut in two. */
		kept += piece.size;
		if (kept > LONGEST)
			memmove(data, data + kept - LONGEST, LONGEST);
		kept = kept < LONGEST ? kept : LONGEST;
	}
}

static void look_at_segments(struct elf_file *file, const struct image *image, struct range names)
{
	unsigned count;
	struct range *skipped = find_skipped(image, names, &count);

	for (unsigned i = 0; i < image->segment_count; i++) {
		struct range rest = image->segments[i].range;
		uint64_t end = rest.offset + rest.size;

		if (image->segments[i].type != PT_LOAD)
			continue;
		for (unsigned n = 0; n < count; n++) {
			uint64_t from = skipped[n].offset, behind = from + skipped[n].size;

			if (behind <= rest.offset || from >= end || behind < from)
				continue;
			if (from > rest.offset)
				look_at(file, image,
					(struct range){rest.offset, from - rest.offset});
			rest.offset = behind < end ? behind : end;
		}
		look_at(file, image, (struct range){rest.offset, end - rest.offset});
	}
	release(skipped);
}

/* ---- the file ------------------------------------------------------------------------------ */

static void read_segment(const struct image *image, const unsigned char *header,
			 struct segment *segment)
{
	segment->type = (uint32_t)number(image, header, 4);
	segment->range = (struct range){word(image, header, 8, 4), word(image, header, 32, 16)};
	segment->address = word(image, header, 16, 8);
}

static const char truncated[] = "it is a truncated ELF file";

/* Reads the headers; returns why the file can't be judged by them, or NULL. */
static const char *read_headers(struct image *image)
{
	unsigned char header[64], entry[64];
	struct section names;
	struct stat status;
	unsigned each;
	uint64_t at;

	if (fstat(image->fd, &status) != 0)
		return truncated;
	image->size = (uint64_t)status.st_size;
	if (!read_at(image, header, (struct range){0, 52}))
		return truncated;
	image->wide = header[EI_CLASS] == ELFCLASS64;
	image->big = header[EI_DATA] == ELFDATA2MSB;
	if (image->wide && !read_at(image, header, (struct range){0, 64}))
		return truncated;
	image->type = (uint16_t)number(image, header + 16, 2);
	image->machine = (uint16_t)number(image, header + 18, 2);
	if (image->type == ET_REL)
		return "it is an object file, which is not linked yet";
	if (image->type == ET_CORE)
		return "it is the core file of a process";
	if (image->type != ET_EXEC && image->type != ET_DYN)
		return "it is an ELF file of another kind";
	at = word(image, header, 32, 28);
	each = image->wide ? 56 : 32;
	image->segment_count = (unsigned)number(image, header + (image->wide ? 56 : 44), 2);
	image->segments = allocate((image->segment_count + 1) * sizeof(*image->segments));
	for (unsigned i = 0; i < image->segment_count; i++, at += each) {
		if (!read_at(image, entry, (struct range){at, each}))
			return truncated;
		read_segment(image, entry, &image->segments[i]);
		if (!is_inside(image, image->segments[i].range))
			return truncated;
	}
	at = word(image, header, 40, 32);
	image->section_size = image->wide ? 64 : 40;
	image->sections = (struct range){at, number(image, header + (image->wide ? 60 : 48), 2) *
						     image->section_size};
	/* The loader needs no section headers. A file that lost a part of them was cut short. */
	if (!at || at >= image->size)
		image->sections.size = 0;
	if (!is_inside(image, image->sections))
		return truncated;
	if (read_section(image, (unsigned)number(image, header + (image->wide ? 62 : 50), 2),
			 &names))
		image->names = names.range;
	return NULL;
}

static struct elf_file *read_elf(const char *path, const struct image *image)
{
	struct elf_file *file = allocate(sizeof(*file));
	struct range names = {0};

	file->path = text_of("%s", path);
	file->elf_class = image->wide ? ELFCLASS64 : ELFCLASS32;
	file->machine = image->machine;
	file->is_program = image->type == ET_EXEC;
	file->has_sections = image->sections.size || !image->segment_count;
	file->other_data = other_data(image);
	for (unsigned i = 0; i < image->segment_count; i++) {
		const struct segment *segment = &image->segments[i];

		if (segment->type == PT_DYNAMIC) {
			names = read_dynamic(file, image, segment);
		} else if (segment->type == PT_INTERP && segment->range.size < PATH_MAX) {
			char *interpreter = read_copy(image, segment->range);

			release(file->interpreter);
			file->interpreter = text_of("%s", interpreter ? interpreter : "");
			file->is_program = true;
			free(interpreter);
		}
	}
	look_at_segments(file, image, names);
	/* A file that opens the driver uses the names that it mentions, in whatever text. */
	for (unsigned i = 0; file->names_driver && i < file->mentioned.count; i++)
		texts_add_once(&file->named, file->mentioned.list[i]);
	texts_sort(&file->linked);
	texts_sort(&file->named);
	texts_sort(&file->verbs_linked);
	texts_sort(&file->verbs_named);
	texts_sort(&file->defined);
	return file;
}

static bool has_magic(int fd)
{
	char start[SELFMAG];

	return pread(fd, start, sizeof(start), 0) == sizeof(start) &&
	       memcmp(start, ELFMAG, SELFMAG) == 0;
}

struct elf_file *elf_file_read(const char *path, const char **why)
{
	struct image image = {.fd = open_regular(path, 0)};
	struct elf_file *file = NULL;
	struct stat status;

	if (image.fd < 0) {
		*why = errno == EINVAL ? "it is not a regular file" : strerror(errno);
		return NULL;
	}
	*why = has_magic(image.fd) ? read_headers(&image) : "it is not an ELF file";
	if (!*why)
		file = read_elf(path, &image);
	/* Meanwhile it may have become shorter. */
	if (file && (fstat(image.fd, &status) != 0 || (uint64_t)status.st_size < image.size)) {
		*why = truncated;
		elf_file_free(file);
		file = NULL;
	}
	release(image.segments);
	close(image.fd);
	return file;
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
