/* SPDX-License-Identifier: MIT */
/*
 * Answering the program's dlsym, dlvsym and dlopen, which come here through stubs.S. Most look-ups
 * have nothing to do with the driver and are passed on after a test of the name's first letters.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>

#include "hook/loader/loaded/scope.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "hook/loader/deepbind.h"
#include "hook/hook.h"
#include "cache/base/environment/log.h"
#include "hook/loader/loaded/loaded.h"
#include "hook/loader/patches.h"
#include "hook/verbs/verbs.h"
#include "hook/loader/yield.h"

/* The program's arguments, which may be changed; `answer` is the result when NULL is returned. */
struct pdn_arguments {
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

typedef void *decide(struct pdn_arguments *args, const void *caller);
decide pdn_decide_dlsym, pdn_decide_dlvsym, pdn_decide_dlopen, pdn_decide_dlmopen,
	pdn_decide_dlclose;
decide pdn_decide_libc_dlsym, pdn_decide_libc_dlvsym, pdn_decide_libc_dlopen,
	pdn_decide_libc_dlmopen;

/* One call by the program. `real`: the functions that it goes to next, and that answer it. */
struct lookup {
	struct pdn_arguments *args;
	const void *caller;
	const struct pdn_loader *real;
};

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

/* ---- names that only we define --------------------------------------------------------------- */

/* Does another library define this name, as far as we can see? */
static bool others_have(const struct lookup *l, const struct pdn_asker *asker, const void *wrapper)
{
	const struct pdn_loader *libc = pdn_loader_of_libc();
	void *behind;

	if (libc->dlsym(RTLD_NEXT, l->args->name) ||
	    libc->dlsym(RTLD_DEFAULT, l->args->name) != wrapper)
		return true;
	libc->dlerror();
	/* The caller may be in the scope of a library that was loaded with RTLD_LOCAL. */
	return !asker->is_program && pdn_definition_for(l->caller, l->args->name, "", &behind);
}

/*
 * Would this look-up find our export where it would find nothing without us? That is so in a
 * process without the library, with one that is too old to have the name, and where it was loaded
 * for another library alone. (A weak reference is bound to our export by the loader itself, which
 * can't be helped.)
 *
 * Then the real look-up must fail, with a dlerror() that names the caller's library as it would
 * without us: the handle becomes one in which the name is not defined. A look-up in the program's
 * own handle finds all of our names, so for the program it is the C library that is named.
 */
static bool fails_without_us(const struct lookup *l, const struct pdn_asker *asker,
			     const void *wrapper)
{
	void *handle = NULL;

	if ((!is_pseudo(l->args->handle) && look_in(l, l->args->handle) != wrapper) ||
	    others_have(l, asker, wrapper))
		return false;
	if (asker->map && !asker->is_program)
		handle = pdn_handle_of(asker->map->l_name);
	if (!handle || pdn_loader_of_libc()->dlsym(handle, l->args->name))
		handle = pdn_handle_of("libc.so.6");
	if (handle)
		l->args->handle = handle;
	return true;
}

/* ---- what is found --------------------------------------------------------------------------- */

/*
 * The function that the program's handle leads to; NULL: leave the answer to the loader. By
 * RTLD_DEFAULT, and by RTLD_NEXT from before us, the loader finds our export in place of the
 * library's function. An interposer that asks for the next definition of its own name must get
 * just that.
 */
static void *look(const struct lookup *l, const struct pdn_asker *asker)
{
	void *handle = l->args->handle, *found;
	struct link_map *map;

	if (handle == RTLD_DEFAULT || (handle == RTLD_NEXT && asker->before_us))
		return NULL;
	if (handle != RTLD_NEXT)
		return look_in(l, handle);
	map = pdn_asker_next(asker, l->args->name);
	handle = map ? pdn_handle_of(map->l_name) : NULL;
	found = handle ? look_in(l, handle) : NULL;
	if (!found)
		pdn_loader_of_libc()->dlerror();
	return found;
}

/*
 * A library that looks in its own handle for a name that it does not define wants the driver's own
 * function, behind all interposers: UCX's hooks do so, to patch the driver's code. (A look-up in
 * the program's handle finds our export.)
 */
static bool asks_in_itself(const struct lookup *l, const struct pdn_asker *asker)
{
	return asker->map && l->args->handle == asker->map && !asker->is_program;
}

/*
 * Only the loader can tell what a library that was loaded for a plugin finds by RTLD_NEXT, and it
 * may be the driver's own function. An interposer asks so too, but all of its callers have come
 * through us.
 */
static void distrust_the_loaders_answer(const struct lookup *l, const struct pdn_asker *asker)
{
	if (l->args->handle == RTLD_NEXT && asker->map && !asker->at_start &&
	    !pdn_asker_defines(asker, l->args->name))
		pdn_distrust("%s has looked up %s by RTLD_NEXT from behind pindown and may call it "
			     "unseen",
			     asker->map->l_name, l->args->name);
}

/* A watched name. True: args->answer is the answer; false: jump to the real look-up. */
static bool answer_driver_name(const struct lookup *l, enum pdn_call call)
{
	struct pdn_asker asker;
	void *found;

	if (pdn_in_libcuda(l->caller))
		return false;
	pdn_asker_find(&asker, l->caller);
	pdn_libcuda_begin();
	if (fails_without_us(l, &asker, pdn_linked_wrapper(call)))
		return false;
	found = pdn_libcuda_begin() ? NULL : look(l, &asker);
	if ((found && !pdn_libcuda_is(found)) || !pdn_libcuda_begin() || !pdn_hook_begin())
		return false;
	pdn_hold_libcuda();
	pdn_patches_look();
	found = look(l, &asker);
	if (!found) {
		distrust_the_loaders_answer(l, &asker);
		return false;
	}
	if (asks_in_itself(l, &asker) && pdn_patches_allow(call, found, asker.map->l_name))
		l->args->answer = found;
	else
		l->args->answer = pdn_hand_out(call, found);
	return true;
}

/* The same for a verb. */
static bool answer_verb(const struct lookup *l, enum pdn_verb verb)
{
	struct pdn_asker asker;
	void *found;

	pdn_asker_find(&asker, l->caller);
	if (fails_without_us(l, &asker, pdn_verb_wrapper[verb]) || !pdn_config()->enabled)
		return false;
	found = look(l, &asker);
	if (found)
		l->args->answer = pdn_verb_hand_out(verb, found);
	return found;
}

/* ---- dlsym and its like ---------------------------------------------------------------------- */

/* Our stub for the function found, if that is the next one behind us or the C library's. */
static void *stub_of(const char *name, const void *found)
{
#define STUB(function, of_libc)                                                              \
	if (pdn_elf_same(name, #function))                                                   \
		return found == (void *)pdn_loader()->function ? (void *)pdn_stub_##function \
		       : found == (void *)pdn_loader_of_libc()->function ? (void *)of_libc   \
									 : NULL;
	STUB(dlsym, pdn_stub_libc_dlsym)
	STUB(dlvsym, pdn_stub_libc_dlvsym)
	STUB(dlopen, pdn_stub_libc_dlopen)
	STUB(dlmopen, pdn_stub_libc_dlmopen)
	STUB(dlclose, NULL)
#undef STUB
	return NULL;
}

/* As look(), for the loader's own names: each process has them, and in several versions. */
static void *look_for_loader(const struct lookup *l)
{
	struct pdn_asker asker;

	if (!is_pseudo(l->args->handle))
		return look_in(l, l->args->handle);
	/* Without a version RTLD_DEFAULT finds the first definition, which may be ours. */
	if (l->args->handle == RTLD_DEFAULT)
		return l->args->version ? look_in(l, RTLD_DEFAULT) : NULL;
	pdn_asker_find(&asker, l->caller);
	if (asker.before_us)
		return look_in(l, RTLD_NEXT);
	return pdn_asker_defines(&asker, l->args->name) ? NULL : look(l, &asker);
}

static bool answer_loader_name(const struct lookup *l)
{
	void *found = look_for_loader(l);
	void *stub = found ? stub_of(l->args->name, found) : NULL;

	if (!found)
		pdn_loader_of_libc()->dlerror();
	if (stub)
		l->args->answer = stub;
	return stub;
}

/* ---- the ways in ----------------------------------------------------------------------------- */

static bool answer(const struct lookup *l)
{
	const char *name = l->args->name;
	int error = errno;
	bool answered = false;
	int call;

	if (pdn_elf_is_cuda_name(name)) {
		call = pdn_call_by_symbol(name);
		answered = call >= 0 && answer_driver_name(l, (enum pdn_call)call);
		if (call < 0 && !pdn_in_libcuda(l->caller))
			pdn_newer_symbol(name);
	} else if (pdn_elf_is_verb_name(name)) {
		call = pdn_verb_by_symbol(name);
		answered = call >= 0 && answer_verb(l, (enum pdn_verb)call);
	} else if (looks_like_loader(name)) {
		answered = answer_loader_name(l);
	}
	errno = error;
	return answered;
}

static void *decide_dlsym(const struct lookup *l)
{
	l->args->version = NULL; /* it has no third argument: the register holds anything */
	return l->args->name && answer(l) ? NULL : (void *)l->real->dlsym;
}

static void *decide_dlvsym(const struct lookup *l)
{
	return l->args->name && l->args->version && answer(l) ? NULL : (void *)l->real->dlvsym;
}

/*
 * RTLD_DEEPBIND would bind the library's calls to the driver and the loader directly, past us. The
 * flag stays for a library that calls neither, and whose dependencies don't.
 */
static void without_deepbind(intptr_t *flags, const char *file, const void *caller)
{
	if (!PDN_UNLIKELY(*flags & RTLD_DEEPBIND) || !file || pdn_in_libcuda(caller) ||
	    !pdn_config()->enabled || pdn_config()->deepbind != PDN_DEEPBIND_CLEAR ||
	    !pdn_deepbind_matters(file, caller))
		return;
	*flags &= ~(intptr_t)RTLD_DEEPBIND;
	pdn_log(PDN_LOG_DEBUG, "%s: RTLD_DEEPBIND is left out", file);
}

static void *decide_dlopen(const struct lookup *l)
{
	pdn_yield_to_opened(l->args);
	without_deepbind(&l->args->flags, l->args->file, l->caller);
	pdn_patches_look();
	if (PDN_UNLIKELY(l->args->flags & RTLD_NODELETE))
		pdn_door_find(l->caller);
	pdn_stacks_loading();
	return (void *)l->real->dlopen;
}

/* A name space other than the program's has its own copy of the driver and of all else. */
static void *decide_dlmopen(const struct lookup *l)
{
	pdn_yield_to_opened(l->args);
	if (l->args->space == LM_ID_BASE)
		without_deepbind(&l->args->flags_in_space, l->args->file_in_space, l->caller);
	pdn_stacks_loading();
	return (void *)l->real->dlmopen;
}

#define DECIDE(name)                                                                        \
	void *pdn_decide_##name(struct pdn_arguments *args, const void *caller)             \
	{                                                                                   \
		return decide_##name(&(struct lookup){args, caller, pdn_loader()});         \
	}                                                                                   \
	void *pdn_decide_libc_##name(struct pdn_arguments *args, const void *caller)        \
	{                                                                                   \
		return decide_##name(&(struct lookup){args, caller, pdn_loader_of_libc()}); \
	}
DECIDE(dlsym)
DECIDE(dlvsym)
DECIDE(dlopen)
DECIDE(dlmopen)

/*
 * In a walk over the loaded libraries: the loader's lock orders the threads that forget. A lock of
 * ours would be taken around the loader's here, and within it by a program that calls dlclose in a
 * walk of its own.
 */
static bool forget_what_has_gone(const struct pdn_loaded *library, void *arg)
{
	(void)library, (void)arg;
	pdn_libcuda_unloaded();
	pdn_verbs_unloaded();
	return true;
}

/*
 * The libraries that the wrappers call must stay loaded. What dlclose has unloaded is forgotten
 * right after it, as another library may be loaded in its place; not earlier, as a destructor may
 * still call it. So dlclose is called from here, which it does not notice.
 */
void *pdn_decide_dlclose(struct pdn_arguments *args, const void *caller)
{
	struct pdn_loaded any;
	int result, error;

	(void)caller;
	pdn_hold_libcuda();
	pdn_verbs_unloading();
	pdn_stacks_unloading();
	result = pdn_loader()->dlclose(args->handle);
	error = errno;
	pdn_find_loaded(&any, forget_what_has_gone, NULL);
	pdn_answers_forget();
	errno = error;
	args->answer = (void *)(intptr_t)result;
	return NULL;
}
