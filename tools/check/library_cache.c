// SPDX-License-Identifier: MIT
/* Reads /etc/ld.so.cache in the format of glibc 2.2 and later; every offset is checked. */
#define _GNU_SOURCE
#include "tools/check/library_cache.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[] = "glibc-ld.so.cache1.1";

struct header {
	char magic[20];
	uint32_t libraries, text_bytes;
	uint32_t unused[5];
};

struct library {
	int32_t flags;
	uint32_t name, path; /* offsets from the header */
	uint32_t os_version;
	uint64_t capabilities; /* of the processor; this variant needs them */
};

struct cache {
	const char *data;
	size_t size;
};

/* All of the file; data: NULL if there is none. */
static struct cache map_cache(void)
{
	int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
	struct stat status = {0};
	void *map = MAP_FAILED;

	if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0)
		map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (map == MAP_FAILED)
		return (struct cache){0};
	return (struct cache){map, (size_t)status.st_size};
}

/* The file may begin with a list in an older format. */
static struct cache skip_old(struct cache cache)
{
	const char *begin =
		cache.data ? memmem(cache.data, cache.size, magic, sizeof(magic) - 1) : NULL;

	if (!begin)
		return (struct cache){0};
	return (struct cache){begin, cache.size - (size_t)(begin - cache.data)};
}

static const char *text_at(const struct cache *cache, uint32_t offset)
{
	if (offset >= cache->size || !memchr(cache->data + offset, '\0', cache->size - offset))
		return "";
	return cache->data + offset;
}

char *library_cache_find(const struct elf_file *file, const char *name)
{
	struct cache mapped = map_cache(), cache = skip_old(mapped);
	struct header header;
	char *found = NULL;

	if (cache.size >= sizeof(header)) {
		memcpy(&header, cache.data, sizeof(header));
		for (uint32_t i = 0; i < header.libraries && !found; i++) {
			size_t at = sizeof(header) + (size_t)i * sizeof(struct library);
			struct library library;

			if (at + sizeof(library) > cache.size)
				break;
			memcpy(&library, cache.data + at, sizeof(library));
			if (library.capabilities ||
			    strcmp(text_at(&cache, library.name), name) != 0)
				continue;
			if (elf_file_fits(text_at(&cache, library.path), file->elf_class,
					  file->machine))
				found = text_of("%s", text_at(&cache, library.path));
		}
	}
	if (mapped.data)
		munmap((void *)(uintptr_t)mapped.data, mapped.size);
	return found;
}
