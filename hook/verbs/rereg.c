/* SPDX-License-Identifier: MIT */
/*
 * ibv_rereg_mr. What is changed may be a region of ours or of libibverbs', and so may be what it becomes:
 *
 *	ours to ours		another registration takes the old one's place
 *	ours to theirs		a region of libibverbs' does, and the program's ibv_mr stays ours
 *	theirs to theirs	the original call
 *	theirs to ours		the program's ibv_mr stays libibverbs', and shows a registration of ours
 *
 * Behind an ibv_mr that shows one of ours libibverbs' own region stays, for ibv_dereg_mr to end. It gets the
 * protection domain and the access that the program asked for, so that what libibverbs refuses is refused, and a
 * page of ours for its memory, so that the program's is released and the old keys are dead. While
 * libibverbs is asked about it, the ibv_mr holds what libibverbs has written there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "hook/cuda/devicemap.h"
#include "hook/hook.h"
#include "hook/cuda/records.h"
#include "hook/verbs/verbs.h"

#define PAGE_SIZE 4096u

/* What a change came to, beside libibverbs' own answers, which are 0 and below. */
#define NOT_OURS 1

uint32_t pd_verbs_noted_count;

/* ---- what is changed ----------------------------------------------------------------------------- */

static bool moves(const struct pd_change *change)
{
	return change->flags & IBV_REREG_MR_CHANGE_TRANSLATION;
}

/* What libibverbs refuses before it asks the kernel. */
static bool is_nonsense(const struct pd_change *change)
{
	const int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
			IBV_REREG_MR_CHANGE_ACCESS;

	return change->flags & ~all || (moves(change) && (!change->length || !change->addr)) ||
	       (change->access && !(change->flags & IBV_REREG_MR_CHANGE_ACCESS));
}

static bool was_made(int result)
{
	return result == 0 || result == IBV_REREG_MR_ERR_DO_FORK_OLD;
}

/* A change of place makes addresses and iovas the same, as it does in the kernel. */
static struct pd_registration changed(struct pd_registration what, const struct pd_change *change)
{
	if (change->flags & IBV_REREG_MR_CHANGE_PD)
		what.pd = change->pd;
	if (change->flags & IBV_REREG_MR_CHANGE_ACCESS)
		what.access = change->access;
	if (moves(change)) {
		what.addr = change->addr;
		what.length = change->length;
		what.iova = (uintptr_t)change->addr;
	}
	return what;
}

/* For an error on the way out: what was made for the change is given back. */
static int give_up(struct pd_mr *made, int result)
{
	int error = errno;

	pd_verbs_deregister(made);
	errno = error;
	return result;
}

/* ---- ours ---------------------------------------------------------------------------------------- */

/* Of libibverbs, by what it is linked as: the program has asked for a change, not for this. */
static struct ibv_mr *register_theirs(const struct pd_registration *what)
{
	pd_ibv_reg_mr_function *plain = PD_VERB_REAL(ibv_reg_mr);
	pd_ibv_reg_mr_iova2_function *with_iova = PD_VERB_REAL(ibv_reg_mr_iova2);

	if (what->iova == (uintptr_t)what->addr && plain)
		return plain(what->pd, what->addr, what->length, what->access);
	if (with_iova)
		return with_iova(what->pd, what->addr, what->length, what->iova,
				 (unsigned)what->access);
	errno = ENOSYS;
	return NULL;
}

/* As one that the program could have been given: with a registration of ours, or one of libibverbs'. */
static struct pd_mr *register_any(const struct pd_registration *what)
{
	struct ibv_mr *mr = pd_verbs_register(what);
	struct pd_mr *made;
	int error;

	if (mr)
		return (struct pd_mr *)mr;
	mr = register_theirs(what);
	if (!mr)
		return NULL;
	made = pd_mr_new(PD_MR_GIVEN);
	if (!made) {
		error = errno;
		pd_verbs_deregister_real(mr);
		errno = error;
		return NULL;
	}
	made->verbs =
		(struct pd_verbs_mr){.mr = *mr, .type = PD_MR_TYPE_MR, .access = what->access};
	made->iova = what->iova;
	pd_mr_set_real(made, mr);
	return made;
}

/* The program keeps its pointer, and what it points to becomes the new one. */
static int replace(struct pd_mr *ours, struct pd_mr *with)
{
	pindown_object *object = ours->object;
	int error = ours->real ? pd_verbs_deregister_real(ours->real) : 0;

	if (error) {
		errno = error;
		return give_up(with, IBV_REREG_MR_ERR_CMD);
	}
	pd_mr_set_real(ours, NULL);
	ours->verbs = with->verbs;
	ours->iova = with->iova;
	ours->object = with->object;
	pd_mr_set_real(ours, with->real);
	pd_mr_free(with);
	pindown_detach(object);
	return 0;
}

static int rereg_ours(struct pd_mr *ours, const struct pd_change *change)
{
	struct pd_registration what = {.pd = ours->verbs.mr.pd,
				       .addr = ours->verbs.mr.addr,
				       .length = ours->verbs.mr.length,
				       .iova = ours->iova,
				       .access = ours->verbs.access};
	struct pd_mr *with;

	if (is_nonsense(change)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	what = changed(what, change);
	if (!change->flags || !what.pd) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_CMD;
	}
	with = register_any(&what);
	return with ? replace(ours, with) : IBV_REREG_MR_ERR_CMD;
}

/* ---- theirs: what is known of them ---------------------------------------------------------------- */

static void count_notes(uint32_t change)
{
	/* Relaxed: who has a region of which there is a note has it from who made the note. */
	__atomic_fetch_add(&pd_verbs_noted_count, change, __ATOMIC_RELAXED);
}

/* The struct pd_mr that an ibv_mr of libibverbs' shows. */
struct showing {
	const struct ibv_mr *theirs;
	struct pd_mr *shown;
};
static PD_TABLE(struct showing) showings;

/* The access that an ibv_mr of libibverbs' was changed to. */
struct changed_access {
	const struct ibv_mr *theirs;
	int64_t access;
};
static PD_TABLE(struct changed_access) changed_accesses;

static struct pd_mr *shown_by(const struct ibv_mr *theirs)
{
	struct showing found;

	if (!pd_verbs_noted() || !pd_record_get(&showings, (uintptr_t)theirs, 0, &found, 1))
		return NULL;
	return found.shown;
}

/* libibverbs itself does not remember a change of it. */
static int access_of(const struct ibv_mr *theirs)
{
	struct changed_access found;

	if (pd_verbs_noted() && pd_record_get(&changed_accesses, (uintptr_t)theirs, 0, &found, 1))
		return (int)found.access;
	return ((const struct pd_verbs_mr *)theirs)->access;
}

static void forget_showing(const struct ibv_mr *theirs)
{
	count_notes(-pd_record_remove(&showings, (uintptr_t)theirs));
}

static void forget_access(const struct ibv_mr *theirs)
{
	count_notes(-pd_record_remove(&changed_accesses, (uintptr_t)theirs));
}

static bool note_showing(const struct ibv_mr *theirs, struct pd_mr *shown)
{
	bool added =
		pd_record_add(&showings, (&(struct showing){.theirs = theirs, .shown = shown}));

	if (added)
		count_notes(1);
	return added;
}

static void note_access(const struct ibv_mr *theirs, int access)
{
	struct changed_access changed = {.theirs = theirs, .access = access};

	forget_access(theirs);
	if (pd_record_add(&changed_accesses, &changed))
		count_notes(1);
}

/* ---- theirs, showing one of ours ------------------------------------------------------------------ */

/* Mapped at the first use, and for good. Of its own, since libibverbs may keep it from children. */
static void *spare_page(void)
{
	static void *page;
	/* Acquire pairs with the exchange below; nobody reads what is there. */
	void *known = __atomic_load_n(&page, __ATOMIC_ACQUIRE), *new;

	if (known)
		return known;
	new = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (new == MAP_FAILED)
		return NULL;
	if (__atomic_compare_exchange_n(&page, &known, new, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return new;
	munmap(new, PAGE_SIZE); /* another thread was faster */
	return known;
}

/* NULL: no memory. Nothing can be seen of it yet. */
static struct pd_mr *begin_to_show(struct ibv_mr *theirs)
{
	struct pd_mr *shown = pd_mr_new(PD_MR_SHOWN);

	if (!shown)
		return NULL;
	shown->verbs = *(struct pd_verbs_mr *)theirs;
	pd_mr_set_real(shown, theirs);
	if (note_showing(theirs, shown))
		return shown;
	pd_mr_free(shown);
	errno = ENOMEM;
	return NULL;
}

/* What the program sees there is somebody else's to put right. */
static void stop_showing(struct pd_mr *shown)
{
	forget_showing(shown->real);
	pindown_detach(shown->object);
	pd_mr_free(shown);
}

/* The program's view of it, and libibverbs' own. */
static void swap_views(struct pd_mr *shown)
{
	struct pd_verbs_mr *view = (struct pd_verbs_mr *)shown->real, other = *view;

	*view = shown->verbs;
	shown->verbs = other;
}

static int call_once(struct ibv_mr *theirs, const struct pd_change *change)
{
	return change->real(theirs, change->flags, change->pd, change->addr, change->length,
			    change->access);
}

/* libibverbs changes its own region, with what we keep for its next use given up if there is no room. */
static int call_real(struct pd_mr *shown, struct ibv_mr *theirs, const struct pd_change *change)
{
	int result, saved = errno;

	if (!change->real) {
		errno = ENOSYS;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (shown)
		swap_views(shown);
	result = call_once(theirs, change);
	if (result && errno == ENOMEM && pd_verbs_make_room(theirs->context)) {
		errno = saved;
		result = call_once(theirs, change);
	}
	if (shown)
		swap_views(shown);
	return result;
}

/* The region behind: on our page from the first time on, else where it is and with what was asked. */
static int change_behind(struct pd_mr *shown, bool first, struct pd_change change)
{
	if (first) {
		change.addr = spare_page();
		change.length = PAGE_SIZE;
		if (!change.addr) {
			errno = ENOMEM;
			return IBV_REREG_MR_ERR_CMD;
		}
	} else {
		change.flags &= ~IBV_REREG_MR_CHANGE_TRANSLATION;
		change.addr = NULL;
		change.length = 0;
	}
	return change.flags ? call_real(shown, shown->real, &change) : 0;
}

/* The change has a place. */
static int show_ours(struct pd_mr *shown, struct ibv_mr *theirs, const struct pd_change *change)
{
	struct pd_registration what = changed(
		(struct pd_registration){.pd = theirs->pd, .access = access_of(theirs)}, change);
	struct pd_mr *made = (struct pd_mr *)pd_verbs_register(&what);
	bool first = !shown;
	int result;

	if (!made)
		return NOT_OURS;
	if (first)
		shown = begin_to_show(theirs);
	if (!shown)
		return give_up(made, IBV_REREG_MR_ERR_CMD);
	result = change_behind(shown, first, *change);
	if (!was_made(result)) {
		if (first)
			stop_showing(shown);
		return give_up(made, result);
	}
	note_access(theirs, what.access);
	*(struct pd_verbs_mr *)theirs = made->verbs;
	pindown_detach(shown->object);
	shown->object = made->object;
	pd_mr_free(made);
	return result;
}

/* ---- theirs --------------------------------------------------------------------------------------- */

/* Can it show one of ours? libibverbs before dma-bufs has ibv_mr without a type. */
static bool can_show(const struct pd_mr *shown, const struct ibv_mr *theirs,
		     const struct pd_change *change)
{
	return pd_verbs_on() && moves(change) && !is_nonsense(change) &&
	       PD_VERB_REAL(ibv_reg_dmabuf_mr) &&
	       (shown || ((const struct pd_verbs_mr *)theirs)->type == PD_MR_TYPE_MR);
}

/* The program's own change, of libibverbs' own region. */
static int change_theirs(struct pd_mr *shown, struct ibv_mr *theirs, const struct pd_change *change)
{
	int result = call_real(shown, theirs, change);

	if (!was_made(result))
		return result;
	if (shown) {
		swap_views(shown);
		stop_showing(shown);
	}
	if (change->flags & IBV_REREG_MR_CHANGE_ACCESS)
		note_access(theirs, change->access);
	return result;
}

static int rereg_theirs(struct ibv_mr *theirs, struct pd_change change)
{
	struct pd_mr *shown = shown_by(theirs);
	int saved = errno, result = NOT_OURS;
	bool able, asked;

	/* Whatever is changed, the place is another than the region's behind. */
	if (shown && !moves(&change) && change.flags && !is_nonsense(&change)) {
		change.flags |= IBV_REREG_MR_CHANGE_TRANSLATION;
		change.addr = theirs->addr;
		change.length = theirs->length;
	}
	able = can_show(shown, theirs, &change);
	asked = able && pd_may_be_device((uintptr_t)change.addr);
	if (asked)
		result = show_ours(shown, theirs, &change);
	if (result == NOT_OURS)
		result = change_theirs(shown, theirs, &change);
	/* GPU memory that we did not see being allocated. */
	if (result == IBV_REREG_MR_ERR_CMD && errno == EFAULT && able && !asked && pd_libcuda()) {
		int after_all = show_ours(shown, theirs, &change);

		if (was_made(after_all))
			errno = saved;
		result = after_all == NOT_OURS ? result : after_all;
	}
	return result;
}

/* A child has none of its parent's registrations: there an ibv_mr of libibverbs' is that again. */
void pd_verbs_rereg_fork_child(void)
{
	for (uint32_t n = 1; pd_mr_at(n); n++)
		if (__atomic_load_n(&pd_mr_at(n)->state, __ATOMIC_RELAXED) == PD_MR_SHOWN) {
			swap_views(pd_mr_at(n));
			pd_mr_free(pd_mr_at(n));
		}
	__atomic_store_n(&pd_verbs_noted_count, 0, __ATOMIC_RELAXED); /* the notes are gone, too */
}

int pd_verbs_rereg(struct ibv_mr *mr, const struct pd_change *change)
{
	return pd_mr_is_ours(mr) ? rereg_ours((struct pd_mr *)mr, change)
				 : rereg_theirs(mr, *change);
}

/*
 * What is known of it is forgotten first: when libibverbs has ended it, the next region of another thread
 * may lie there.
 */
int pd_verbs_deregister_noted(struct ibv_mr *theirs, pd_ibv_dereg_mr_function *real)
{
	struct pd_mr *shown = shown_by(theirs);
	int access = access_of(theirs), error = 0;

	forget_access(theirs);
	forget_showing(theirs);
	if (shown)
		swap_views(shown);
	if (!shown || !pd_mr_is_gone(shown))
		error = real(theirs);
	if (error) {
		if (shown && note_showing(theirs, shown))
			swap_views(shown);
		note_access(theirs, access);
	} else if (shown) {
		pindown_detach(shown->object);
		pd_mr_free(shown);
	}
	return error;
}
