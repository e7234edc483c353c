/* SPDX-License-Identifier: MIT */
/*
 * The roads by which a program that is not linked with libcuda reaches it. Each road fills the
 * table of calls in its own way.
 */
#define _GNU_SOURCE
#include "app.h"

#include <dlfcn.h>
#include <link.h>

struct app_calls app_calls;

enum stream { NONE, LEGACY, PTSZ, PTDS };

/* The way to look up one function. */
struct lookup {
	const char *symbol, *name;
	int version;
	enum stream stream;
};

static void *libcuda; /* the handle for dlsym; may be RTLD_DEFAULT or RTLD_NEXT */
static CUresult (*ask_v1)(const char *, void **, int, cuuint64_t);
static CUresult (*ask_v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static bool open_local(void)
{
	libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return libcuda != NULL;
}

/* Symbol versions: NVIDIA's libcuda has none; the one built for this road has. */
#define VERSION "LIBCUDA_TEST"

static bool open_versioned(void)
{
	return open_local() && dlvsym(libcuda, "cuInit", VERSION) != NULL;
}

static bool open_global(void)
{
	libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
	return libcuda != NULL;
}

static bool open_default(void)
{
	bool opened = open_global();

	libcuda = RTLD_DEFAULT;
	return opened;
}

/* Opened twice and closed once: libcuda must still be loaded and watched. */
static bool open_twice(void)
{
	void *first = dlopen("libcuda.so.1", RTLD_NOW);

	libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (first == NULL || dlclose(first) != 0)
		return false;
	return libcuda != NULL;
}

/* By the full path, which some programs find in ldconfig's cache. */
static bool open_path(void)
{
	struct link_map *map = NULL;
	char path[4096];

	if (!open_local() || dlinfo(libcuda, RTLD_DI_LINKMAP, &map) != 0)
		return false;
	snprintf(path, sizeof(path), "%s", map->l_name);
	dlclose(libcuda);
	libcuda = dlopen(path, RTLD_NOW);
	return path[0] == '/' && libcuda != NULL;
}

/* By the name for developers. */
static bool open_unversioned(void)
{
	libcuda = dlopen("libcuda.so", RTLD_NOW);
	return libcuda != NULL;
}

/* Through the handle of a library that is linked with libcuda. */
static bool open_dependent(void)
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 64);
	char *slash;

	path[length > 0 ? length : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash == NULL)
		return false;
	strcpy(slash + 1, "plugin-linked.so");
	libcuda = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return libcuda != NULL;
}

/*
 * With the C library's dlsym, found by its version: so do libraries that interpose dlsym, and
 * programs that want to be sure.
 */
static void *(*dlsym_of_version)(void *, const char *);

static bool open_by_version(void *pseudo_handle)
{
	dlsym_of_version = dlvsym(pseudo_handle, "dlsym", "GLIBC_2.34");
	if (dlsym_of_version == NULL)
		dlsym_of_version = dlvsym(pseudo_handle, "dlsym", "GLIBC_2.2.5");
	return dlsym_of_version != NULL && open_local();
}

static bool open_version_next(void)
{
	return open_by_version(RTLD_NEXT);
}

static bool open_version_default(void)
{
	return open_by_version(RTLD_DEFAULT);
}

/* Also for programs that are linked with libcuda. */
static bool open_next(void)
{
	libcuda = RTLD_NEXT;
	return true;
}

static bool open_proc(void)
{
	if (!open_local())
		return false;
	ask_v1 = dlsym(libcuda, "cuGetProcAddress");
	ask_v2 = dlsym(libcuda, "cuGetProcAddress_v2");
	return ask_v1 != NULL && ask_v2 != NULL;
}

/* The look-up function itself is looked up through itself, in both versions. */
static bool open_own(void)
{
	CUdriverProcAddressQueryResult status;
	void *v1 = NULL, *v2 = NULL;

	if (!open_proc() || ask_v2("cuGetProcAddress", &v1, 11030, 0, &status) != 0 ||
	    ask_v2("cuGetProcAddress", &v2, 12000, 0, NULL) != 0)
		return false;
	ask_v1 = v1;
	ask_v2 = v2;
	return ask_v1 != NULL && ask_v2 != NULL;
}

/*
 * Begins as libcudart does, static and shared alike: one dlsym, then its 440 look-ups. After the
 * look-up function has been looked up by its own name, only the returned function is used. Then it
 * gets tables of internal functions, which must come from the driver untouched.
 */
static bool open_cudart(void)
{
	static const struct {
		const char *name;
		int version;
		cuuint64_t flags;
	} lookups[] = {
#define LOOKUP(name, version, flags) {name, version, flags},
#include "cudart_lookups.def"
#undef LOOKUP
	};
	static const CUuuid tables[] = {
		{"\xf8\xcf\xf9\x51\x21\x46\x8b\x4e\xb9\xe2\xfb\x46\x9e\x7c\x0d\xd9"},
		{"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9"},
	};
	unsigned i, answered = 0, found = 0;
	const void *table;
	void *function;

	if (!open_local())
		return false;
	ask_v2 = dlsym(libcuda, "cuGetProcAddress_v2");
	if (ask_v2 == NULL)
		return false;
	for (i = 0; i < sizeof(lookups) / sizeof(lookups[0]); i++) {
		function = NULL;
		answered += ask_v2(lookups[i].name, &function, lookups[i].version, lookups[i].flags,
				   NULL) == 0;
		found += function != NULL;
		if (strcmp(lookups[i].name, "cuGetProcAddress") == 0 && lookups[i].version >= 12000)
			ask_v2 = function;
	}
	app_say("%u look-ups: %u answered, %u found", i, answered, found);
	ask_v2("cuGetExportTable", &function, 3000, 0, NULL);
	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		CUresult (*get_table)(const void **, const CUuuid *) = function;

		table = NULL;
		app_say("table %u: %d", i,
			get_table != NULL ? (int)get_table(&table, &tables[i]) : -1);
	}
	return true;
}

static void *by_dlsym(const struct lookup *what)
{
	return dlsym(libcuda, what->symbol);
}

static void *by_dlsym_of_version(const struct lookup *what)
{
	return dlsym_of_version(libcuda, what->symbol);
}

static void *by_dlvsym(const struct lookup *what)
{
	return dlvsym(libcuda, what->symbol, VERSION);
}

static void *by_v1(const struct lookup *what)
{
	void *found = NULL;

	ask_v1(what->name, &found, what->version, what->stream == PTSZ ? 2 : 0);
	return found;
}

static void *ask_with_status(const struct lookup *what, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status = 77;
	void *found = NULL;
	CUresult result = ask_v2(what->name, &found, what->version, flags, &status);

	if (result != 0 || status != 0)
		app_say("look-up of %s, version %d: %d, status %d", what->name, what->version,
			result, status);
	return found;
}

static void *by_v2(const struct lookup *what)
{
	return ask_with_status(what, what->stream == PTSZ ? 2 : 0);
}

static void *by_v2_legacy(const struct lookup *what)
{
	return ask_with_status(what, what->stream == PTSZ ? 2 : 1);
}

/* As a program built with --default-stream per-thread: all look-ups have that flag. */
static void *by_v2_ptds(const struct lookup *what)
{
	struct lookup mine = *what;

	if (mine.stream != NONE && mine.version < 7000)
		mine.version = 7000;
	return ask_with_status(&mine, 2);
}

static void *by_v2_without_status(const struct lookup *what)
{
	void *found = NULL;

	ask_v2(what->name, &found, what->version, what->stream == PTSZ ? 2 : 0, NULL);
	return found;
}

static const struct road {
	const char *name;
	bool (*open)(void);
	void *(*find)(const struct lookup *what);
} roads[] = {
	{"dlsym_local", open_local, by_dlsym},
	{"dlsym_global", open_global, by_dlsym},
	{"dlsym_default", open_default, by_dlsym},
	{"dlsym_twice", open_twice, by_dlsym},
	{"dlsym_path", open_path, by_dlsym},
	{"dlsym_unversioned", open_unversioned, by_dlsym},
	{"dlsym_dependent", open_dependent, by_dlsym},
	{"dlsym_next", open_next, by_dlsym},
	{"dlvsym", open_versioned, by_dlvsym},
	{"version_next", open_version_next, by_dlsym_of_version},
	{"version_default", open_version_default, by_dlsym_of_version},
	{"proc_v1", open_proc, by_v1},
	{"proc_v2", open_proc, by_v2},
	{"proc_v2_null", open_proc, by_v2_without_status},
	{"proc_legacy", open_proc, by_v2_legacy},
	{"proc_ptds", open_proc, by_v2_ptds},
	{"proc_own", open_own, by_v2},
	{"proc_own_v1", open_own, by_v1},
	{"cudart", open_cudart, by_v2_without_status},
};

static const struct road *find_road(const char *name)
{
	unsigned i;

	for (i = 0; i < sizeof(roads) / sizeof(roads[0]); i++)
		if (strcmp(roads[i].name, name) == 0)
			return &roads[i];
	fprintf(stderr, "no road is called \"%s\"; there are", name);
	for (i = 0; i < sizeof(roads) / sizeof(roads[0]); i++)
		fprintf(stderr, " %s", roads[i].name);
	fprintf(stderr, "\n");
	return NULL;
}

bool app_take_road(const char *name)
{
	const struct road *road = find_road(name);

	if (road == NULL)
		return false;
	if (!road->open()) {
		const char *why = dlerror();

		fprintf(stderr, "road %s: %s\n", name, why != NULL ? why : "no way in");
		return false;
	}
#define CALL(symbol, name, version, stream)                          \
	app_calls.symbol = (__typeof__(app_calls.symbol))road->find( \
		&(struct lookup){#symbol, name, version, stream});
#include "calls.def"
#undef CALL
	return true;
}
