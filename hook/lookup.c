/* SPDX-License-Identifier: MIT */
/*
 * What the program's dlsym, dlvsym and dlopen do: see stubs.S for how they come here. Most look-ups
 * have nothing to do with the driver and are sent on after a glance at the name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "config.h"
#include "hook.h"
#include "log.h"
#include "verbs.h"

/* The program's arguments, to be changed; arg[0] is the answer when NULL is returned. */
struct pd_arguments {
	union {
		void *handle;
		const char *file;
		void *answer;
	};
	union {
		const char *name;
		intptr_t flags;
	};
	const char *version; /* dlvsym only */
};

void *pd_decide_dlsym(struct pd_arguments *args, const void *caller);
void *pd_decide_dlvsym(struct pd_arguments *args, const void *caller);
void *pd_decide_dlopen(struct pd_arguments *args, const void *caller);
void *pd_decide_dlclose(struct pd_arguments *args, const void *caller);

/* "curl_easy_init" is none. */
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
	return name[0] == 'd' && name[1] == 'l' &&
	       (name[2] == 's' || name[2] == 'v' || name[2] == 'o' || name[2] == 'c');
}

static bool is_pseudo(const void *handle)
{
	return handle == RTLD_DEFAULT || handle == RTLD_NEXT;
}

static void *look(const struct pd_arguments *args)
{
	const struct pd_loader *real = pd_loader();

	return args->version ? real->dlvsym(args->handle, args->name, args->version)
			     : real->dlsym(args->handle, args->name);
}

static bool in_main_program(const void *caller)
{
	const struct link_map *map = NULL;
	Dl_info info;

	return dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) && map && !map->l_prev;
}

/*
 * Would this look-up find our export where without us it would find nothing? In a process without the
 * library, and where it was loaded for some other library alone (RTLD_LOCAL). Who calls by a
 * pseudo handle may be in the scope of that library, which can't be told but for the main program.
 * (A weak reference, which the loader binds to our export, can't be helped at all.)
 */
static bool only_we_answer(const struct pd_arguments *args, const void *caller, bool loaded,
			   const void *wrapper)
{
	const struct pd_loader *real = pd_loader();

	if (is_pseudo(args->handle)) {
		if (loaded && !in_main_program(caller))
			return false;
	} else if (look(args) != wrapper) {
		return false;
	}
	if (real->dlsym(RTLD_DEFAULT, args->name) != wrapper || real->dlsym(RTLD_NEXT, args->name))
		return false;
	dlerror();
	return true;
}

/* Let the real look-up fail, and tell the program so, in an object that has none of our names. */
static void look_in_libc(struct pd_arguments *args)
{
	static void *libc;
	/* Relaxed: a handle is only handed on, and the loader knows it. */
	void *handle = __atomic_load_n(&libc, __ATOMIC_RELAXED);

	if (!handle) {
		handle = pd_loader()->dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
		__atomic_store_n(&libc, handle, __ATOMIC_RELAXED);
	}
	if (handle)
		args->handle = handle;
}

/* A watched name. True: args->answer is the answer; false: jump to the real look-up. */
static bool answer_driver_name(struct pd_arguments *args, const void *caller, int call)
{
	void *found;

	if (only_we_answer(args, caller, pd_libcuda(), pd_linked_wrapper[call])) {
		look_in_libc(args);
		return false;
	}
	/* By a pseudo handle the program finds our export where it would have found the driver's.
	 */
	if (is_pseudo(args->handle) || !pd_libcuda() || pd_in_libcuda(caller) || !pd_hook_begin())
		return false;
	pd_hold_libcuda();
	found = look(args);
	if (!found)
		return false;
	args->answer = pd_hand_out((enum pd_call)call, found);
	return true;
}

/* The same for a verb: by a pseudo handle the program finds our export, in its version too. */
static bool answer_verb(struct pd_arguments *args, const void *caller, int verb)
{
	void *found;

	if (only_we_answer(args, caller, pd_libibverbs(), pd_verb_wrapper[verb])) {
		look_in_libc(args);
		return false;
	}
	if (is_pseudo(args->handle) || !pd_libibverbs() || !pd_config()->enabled)
		return false;
	pd_hold_libibverbs();
	found = look(args);
	if (!found)
		return false;
	args->answer = pd_verb_hand_out((enum pd_verb)verb, found);
	return true;
}

/* dlsym and its like, asked for by the handle of the library that has them. */
static bool answer_loader_name(struct pd_arguments *args)
{
	const struct pd_loader *real = pd_loader();
	void *found;

	if (is_pseudo(args->handle))
		return false;
	found = look(args);
	if (!strcmp(args->name, "dlsym") && found == (void *)real->dlsym)
		args->answer = pd_stub_dlsym;
	else if (!strcmp(args->name, "dlvsym") && found == (void *)real->dlvsym)
		args->answer = pd_stub_dlvsym;
	else if (!strcmp(args->name, "dlopen") && found == (void *)real->dlopen)
		args->answer = pd_stub_dlopen;
	else if (!strcmp(args->name, "dlclose") && found == (void *)real->dlclose)
		args->answer = pd_stub_dlclose;
	else
		return false;
	return true;
}

static bool answer(struct pd_arguments *args, const void *caller)
{
	int error = errno;
	bool answered = false;
	int call;

	if (looks_like_cuda(args->name)) {
		call = pd_call_by_symbol(args->name);
		answered = call >= 0 && answer_driver_name(args, caller, call);
	} else if (looks_like_verb(args->name)) {
		call = pd_verb_by_symbol(args->name);
		answered = call >= 0 && answer_verb(args, caller, call);
	} else if (looks_like_loader(args->name)) {
		answered = answer_loader_name(args);
	}
	errno = error;
	return answered;
}

void *pd_decide_dlsym(struct pd_arguments *args, const void *caller)
{
	args->version = NULL; /* that register holds no argument of dlsym */
	return args->name && answer(args, caller) ? NULL : (void *)pd_loader()->dlsym;
}

void *pd_decide_dlvsym(struct pd_arguments *args, const void *caller)
{
	bool answered = args->name && args->version && answer(args, caller);

	return answered ? NULL : (void *)pd_loader()->dlvsym;
}

/* RTLD_DEEPBIND would bind what the library calls to the driver and past us. */
void *pd_decide_dlopen(struct pd_arguments *args, const void *caller)
{
	if (PD_UNLIKELY(args->flags & RTLD_DEEPBIND) && !pd_in_libcuda(caller) &&
	    pd_config()->enabled && pd_config()->deepbind == PD_DEEPBIND_CLEAR) {
		args->flags &= ~(intptr_t)RTLD_DEEPBIND;
		pd_log(PD_LOG_DEBUG, "%s: RTLD_DEEPBIND is left out",
		       args->file ? args->file : "dlopen");
	}
	pd_stacks_loading();
	return (void *)pd_loader()->dlopen;
}

/* What the wrappers call must not go away. */
void *pd_decide_dlclose(struct pd_arguments *args, const void *caller)
{
	(void)args;
	(void)caller;
	pd_hold_libcuda();
	pd_stacks_unloading();
	pd_hold_libibverbs();
	return (void *)pd_loader()->dlclose;
}
