/* SPDX-License-Identifier: MIT */
/*
 * Answering the program's dlsym, dlvsym and dlopen, which come here through stubs.S. Most look-ups
 * have nothing to do with the driver and are passed on after a test of the name's first letters.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "hook/loader/asker.h"
#include "cache/base/config.h"
#include "hook/loader/deepbind.h"
#include "hook/hook.h"
#include "hook/loader/library.h"
#include "cache/base/log.h"
#include "hook/loader/patches.h"
#include "hook/verbs/verbs.h"

/* The program's arguments, which may be changed; `answer` is the result when NULL is returned. */
struct pd_arguments {
	union {
		void *handle;
		const char *file;
		Lmid_t space;
		void *answer;
	};
	union {
		const char *name;
		intptr_t flags;
		const char *file_in_space;
	};
	union {
		const char *version; /* dlvsym only */
		intptr_t flags_in_space;
	};
};

typedef void *decide(struct pd_arguments *args, const void *caller);
decide pd_decide_dlsym, pd_decide_dlvsym, pd_decide_dlopen, pd_decide_dlmopen, pd_decide_dlclose;
decide pd_decide_libc_dlsym, pd_decide_libc_dlvsym, pd_decide_libc_dlopen, pd_decide_libc_dlmopen;

/* One look-up by the program. `real`: the functions that it goes to next, and that answer it. */
struct lookup {
	struct pd_arguments *args;
	const void *caller;
	const struct pd_loader *real;
};

/* "curl_easy_init" does not. */
static bool looks_like_cuda(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

static bool looks_like_verb(const char *name)
{
	return name[0] == 'i' && name[1] == 'b' && name[2] == 'v' && name[3] == '_';
}

static bool looks_like_loader(const char *name)
{
	return name[0] == 'd' && name[1] == 'l' && name[2] >= 'c' && name[2] <= 'v';
}

static bool is_pseudo(const void *handle)
{
	return handle == RTLD_DEFAULT || handle == RTLD_NEXT;
}

/* The function found in `handle`, in the version that was asked for, if one was. */
static void *look_in(const struct lookup *l, void *handle)
{
	return l->args->version ? l->real->dlvsym(handle, l->args->name, l->args->version)
				: l->real->dlsym(handle, l->args->name);
}

/*
 * The handle of a library that is loaded and stays loaded for now. A link_map becomes a handle by
 * dlopen() only; a library that was loaded because another needs it has not been opened yet.
 */
static void *handle_of(const struct link_map *map)
{
	const struct pd_loader *libc = pd_loader_of_libc();
	void *handle = libc->dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);

	if (handle)
		libc->dlclose(handle);
	return handle;
}

/* ---- names that only we define --------------------------------------------------------------- */

/* Does another library define this name, as far as we can see? `library`: the one that should. */
static bool others_have(const struct lookup *l, const struct pd_library *library,
			const struct pd_asker *asker, const void *wrapper)
{
	const struct pd_loader *libc = pd_loader_of_libc();

	if (libc->dlsym(RTLD_NEXT, l->args->name) ||
	    libc->dlsym(RTLD_DEFAULT, l->args->name) != wrapper)
		return true;
	dlerror();
	/* The caller may be in the scope of a library that was loaded with RTLD_LOCAL. */
	return !asker->is_program && pd_library_defines(library, l->args->name);
}

/*
 * Would this look-up find our export where it would find nothing without us? That is so in a
 * process without the library, with one that is too old to have the name, and where it was loaded
 * for another library alone. (A weak reference is bound to our export by the loader itself, which
 * can't be helped.)
 */
static bool only_we_answer(const struct lookup *l, const struct pd_library *library,
			   const struct pd_asker *asker, const void *wrapper)
{
	if (!is_pseudo(l->args->handle) && look_in(l, l->args->handle) != wrapper)
		return false;
	return !others_have(l, library, asker, wrapper);
}

/* A handle in which the name is not defined: the caller's own library, or the C library. */
static void *handle_without(const struct lookup *l, const struct pd_asker *asker)
{
	const struct pd_loader *libc = pd_loader_of_libc();
	void *handle = asker->map && !asker->is_program ? handle_of(asker->map) : NULL;

	if (handle && !libc->dlsym(handle, l->args->name))
		return handle;
	return libc->dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
}

/*
 * Let the real look-up fail, with a dlerror() that names the caller's library as it would without
 * us. A look-up in the program's own handle finds all of our names, so for the program it is the C
 * library that is named.
 */
static void look_where_it_fails(const struct lookup *l, const struct pd_asker *asker)
{
	void *handle = handle_without(l, asker);

	if (handle)
		l->args->handle = handle;
}

/* ---- what is found --------------------------------------------------------------------------- */

/*
 * The function that the program's handle leads to; NULL: leave the answer to the loader. By
 * RTLD_DEFAULT, and by RTLD_NEXT from before us, the loader finds our export in place of the
 * library's function. An interposer that asks for the next definition of its own name must get
 * just that.
 */
static void *look(const struct lookup *l, const struct pd_asker *asker)
{
	void *handle = l->args->handle, *found;
	struct link_map *map;

	if (handle == RTLD_DEFAULT || (handle == RTLD_NEXT && asker->before_us))
		return NULL;
	if (handle != RTLD_NEXT)
		return look_in(l, handle);
	map = pd_asker_next(asker, l->args->name);
	handle = map ? handle_of(map) : NULL;
	found = handle ? look_in(l, handle) : NULL;
	if (!found)
		dlerror();
	return found;
}

/*
 * A library that looks in its own handle for a name that it does not define wants the driver's own
 * function, behind all interposers: UCX's hooks do so, to patch the driver's code. (A look-up in
 * the program's handle finds our export.)
 */
static bool asks_in_itself(const struct lookup *l, const struct pd_asker *asker)
{
	return asker->map && l->args->handle == asker->map && !asker->is_program;
}

/*
 * Only the loader can tell what a library that was loaded for a plugin finds by RTLD_NEXT, and it
 * may be the driver's own function. An interposer asks so too, but all of its callers have come
 * through us.
 */
static void distrust_the_loaders_answer(const struct lookup *l, const struct pd_asker *asker)
{
	if (l->args->handle == RTLD_NEXT && asker->map && !asker->at_start &&
	    !pd_asker_defines(asker, l->args->name))
		pd_distrust("%s has looked up %s by RTLD_NEXT from behind pindown and may call it "
			    "unseen",
			    asker->map->l_name, l->args->name);
}

/* A watched name. True: args->answer is the answer; false: jump to the real look-up. */
static bool answer_driver_name(const struct lookup *l, enum pd_call call)
{
	struct pd_asker asker;
	void *found;

	if (pd_in_libcuda(l->caller))
		return false;
	pd_asker_find(&asker, l->caller);
	pd_libcuda_begin();
	if (only_we_answer(l, pd_libcuda_library(), &asker, pd_linked_wrapper(call))) {
		look_where_it_fails(l, &asker);
		return false;
	}
	if (!pd_libcuda_begin() || !pd_hook_begin())
		return false;
	pd_hold_libcuda();
	pd_patches_look();
	found = look(l, &asker);
	if (!found) {
		distrust_the_loaders_answer(l, &asker);
		return false;
	}
	if (asks_in_itself(l, &asker) && pd_patches_allow(call, found, asker.map->l_name))
		l->args->answer = found;
	else
		l->args->answer = pd_hand_out(call, found);
	return true;
}

/* The same for a verb. */
static bool answer_verb(const struct lookup *l, enum pd_verb verb)
{
	struct pd_asker asker;
	void *found;

	pd_asker_find(&asker, l->caller);
	if (only_we_answer(l, pd_libibverbs_library(), &asker, pd_verb_wrapper[verb])) {
		look_where_it_fails(l, &asker);
		return false;
	}
	if (!pd_libibverbs() || !pd_config()->enabled)
		return false;
	pd_hold_libibverbs();
	found = look(l, &asker);
	if (!found)
		return false;
	l->args->answer = pd_verb_hand_out(verb, found);
	return true;
}

/* ---- dlsym and its like ---------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t member; /* of struct pd_loader */
	void *stub, *stub_of_libc;
} loader_names[] = {
#define NAME(name)                                                                           \
	{                                                                                    \
#name, offsetof(struct pd_loader, name), pd_stub_##name, pd_stub_libc_##name \
	}
	NAME(dlsym),
	NAME(dlvsym),
	NAME(dlopen),
	NAME(dlmopen),
#undef NAME
	{"dlclose", offsetof(struct pd_loader, dlclose), pd_stub_dlclose, NULL},
};

static void *member(const struct pd_loader *loader, size_t at)
{
	void *function;

	memcpy(&function, (const char *)loader + at, sizeof(function));
	return function;
}

/* Our stub for the function found, if that is the next one behind us or the C library's. */
static void *stub_of(const char *name, const void *found)
{
	for (size_t i = 0; i < sizeof(loader_names) / sizeof(loader_names[0]); i++) {
		if (!pd_elf_same(name, loader_names[i].name))
			continue;
		if (found == member(pd_loader(), loader_names[i].member))
			return loader_names[i].stub;
		if (found == member(pd_loader_of_libc(), loader_names[i].member))
			return loader_names[i].stub_of_libc;
	}
	return NULL;
}

/* As look(), for the loader's own names: each process has them, and in several versions. */
static void *look_for_loader(const struct lookup *l)
{
	struct pd_asker asker;

	if (!is_pseudo(l->args->handle))
		return look_in(l, l->args->handle);
	/* Without a version RTLD_DEFAULT finds the first definition, which may be ours. */
	if (l->args->handle == RTLD_DEFAULT)
		return l->args->version ? look_in(l, RTLD_DEFAULT) : NULL;
	pd_asker_find(&asker, l->caller);
	if (asker.before_us)
		return look_in(l, RTLD_NEXT);
	return pd_asker_defines(&asker, l->args->name) ? NULL : look(l, &asker);
}

static bool answer_loader_name(const struct lookup *l)
{
	void *found = look_for_loader(l);
	void *stub = found ? stub_of(l->args->name, found) : NULL;
	if (!found)
		dlerror();
	if (!stub)
		return false;
	l->args->answer = stub;
	return true;
}

/* ---- the ways in ----------------------------------------------------------------------------- */

static bool answer(const struct lookup *l)
{
	const char *name = l->args->name;
	int error = errno;
	bool answered = false;
	int call;

	if (looks_like_cuda(name)) {
		call = pd_call_by_symbol(name);
		answered = call >= 0 && answer_driver_name(l, (enum pd_call)call);
		if (call < 0 && !pd_in_libcuda(l->caller))
			pd_newer_symbol(name);
	} else if (looks_like_verb(name)) {
		call = pd_verb_by_symbol(name);
		answered = call >= 0 && answer_verb(l, (enum pd_verb)call);
	} else if (looks_like_loader(name)) {
		answered = answer_loader_name(l);
	}
	errno = error;
	return answered;
}

static void *decide_dlsym(struct pd_arguments *args, const void *caller,
			  const struct pd_loader *real)
{
	const struct lookup l = {.args = args, .caller = caller, .real = real};

	args->version = NULL; /* dlsym has no third argument: the register holds anything */
	return args->name && answer(&l) ? NULL : (void *)real->dlsym;
}

static void *decide_dlvsym(struct pd_arguments *args, const void *caller,
			   const struct pd_loader *real)
{
	const struct lookup l = {.args = args, .caller = caller, .real = real};

	return args->name && args->version && answer(&l) ? NULL : (void *)real->dlvsym;
}

/*
 * RTLD_DEEPBIND would bind the library's calls to the driver and the loader directly, past us. The
 * flag stays for a library that calls neither, and whose dependencies don't.
 */
static void without_deepbind(intptr_t *flags, const char *file, const void *caller)
{
	if (!PD_UNLIKELY(*flags & RTLD_DEEPBIND) || !file || pd_in_libcuda(caller) ||
	    !pd_config()->enabled || pd_config()->deepbind != PD_DEEPBIND_CLEAR ||
	    !pd_deepbind_matters(file, caller))
		return;
	*flags &= ~(intptr_t)RTLD_DEEPBIND;
	pd_log(PD_LOG_DEBUG, "%s: RTLD_DEEPBIND is left out", file);
}

static void *decide_dlopen(struct pd_arguments *args, const void *caller,
			   const struct pd_loader *real)
{
	without_deepbind(&args->flags, args->file, caller);
	pd_patches_look();
	pd_stacks_loading();
	return (void *)real->dlopen;
}

/* A name space other than the program's has its own copy of the driver and of all else. */
static void *decide_dlmopen(struct pd_arguments *args, const void *caller,
			    const struct pd_loader *real)
{
	if (args->space == LM_ID_BASE)
		without_deepbind(&args->flags_in_space, args->file_in_space, caller);
	pd_stacks_loading();
	return (void *)real->dlmopen;
}

#define DECIDE(name)                                                               \
	void *pd_decide_##name(struct pd_arguments *args, const void *caller)      \
	{                                                                          \
		return decide_##name(args, caller, pd_loader());                   \
	}                                                                          \
	void *pd_decide_libc_##name(struct pd_arguments *args, const void *caller) \
	{                                                                          \
		return decide_##name(args, caller, pd_loader_of_libc());           \
	}
DECIDE(dlsym)
DECIDE(dlvsym)
DECIDE(dlopen)
DECIDE(dlmopen)

/* The libraries that the wrappers call must stay loaded. */
void *pd_decide_dlclose(struct pd_arguments *args, const void *caller)
{
	(void)args;
	(void)caller;
	pd_hold_libcuda();
	pd_stacks_unloading();
	pd_hold_libibverbs();
	return (void *)pd_loader()->dlclose;
}
