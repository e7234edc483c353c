/* SPDX-License-Identifier: MIT */
/* Descriptors of regions: handing them out, closing them early, and opening them again. */
#define _GNU_SOURCE
#include "cache/show/account.h"
#include "cache/backend/backend.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/process/fork_gate.h"
#include "cache/base/thread/lock.h"
#include "cache/base/visible.h"
#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/room/evict.h"
#include "cache/end/work.h"
#include "cache/hit/misuse.h"
#include "cache/objects/object.h"
#include "cache/pin/pin.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/pin/region_trace.h"
#include "cache/trace/writer/events.h"
#include "cache/trust/trust.h"
#include "cache/dmabuf/region_dmabuf.h"

/*
 * In a region's dmabuf_users, beside their number: lent by pindown_region_dmabuf(), for an unknown
 * time; used since it was opened, so that nothing but the wish to keep it holds it open; and a
 * registration was made from it.
 */
#define LENT	 (1u << 15)
#define USED	 (1u << 14)
#define IMPORTED (1u << 13)
#define PAST	 (USED | IMPORTED)

/*
 * Once a registration is made, the descriptor stays, so that the next card or protection domain
 * imports the same dma-buf: each export of its own would take as much BAR1 again. It stays only
 * while a quarter of the descriptors that dma-bufs may have are open at most (an eighth of those
 * that the process may have), and until these run short for the first time.
 */
static bool keeps = true;

static bool may_keep(const struct pdn_backend *backend)
{
	/* Relaxed: one descriptor more or less that is kept makes no difference. */
	return backend->pin_takes_descriptor && __atomic_load_n(&keeps, __ATOMIC_RELAXED) &&
	       pdn_dmabufs_open() <= pdn_dmabufs_max() / 4;
}

/*
 * Lock held. A descriptor is opened or closed, and no region has it meanwhile: as with a pin, a
 * free of the memory waits for that, and so does a fork, whose child would inherit it. Without the
 * pin's barrier: a free of a live region's memory takes the lock anyway, and a region that was
 * replaced keeps its memory in any case.
 */
static void begin_flight(struct pdn_flight *flight, const struct pindown_region *region,
			 struct pdn_pin *pin)
{
	const struct pdn_memory memory = pdn_memory_of(region);

	pdn_flight_add(flight, memory.base, memory.end);
	flight->pin = pin;
}

/* The same, lock not held, to open one. false: the memory has ended. */
static bool begin_opening_flight(struct pdn_flight *flight, const struct pindown_region *region,
				 struct pdn_pin *pin, bool pcie)
{
	bool live;

	pdn_lock();
	live = pdn_region_has_memory(region);
	if (live) {
		*pin = pdn_region_pin(region);
		pin->fd = -1;
		pin->pcie = pcie;
		begin_flight(flight, region, pin);
	}
	pdn_unlock();
	return live;
}

/*
 * Lock not held. The flight of an opening begins. The driver may look up what lies beside the
 * memory: frees there wait for it, and those under way are waited for.
 */
static int begin_opening(struct pdn_flight *flight, const struct pindown_region *region,
			 struct pdn_pin *pin, bool pcie)
{
	if (!pdn_driver_permits()) {
		pdn_set_driver_error(PINDOWN_ERR_DRIVER, CUDA_ERROR_NOT_PERMITTED);
		return PINDOWN_ERR_DRIVER;
	}
	while (begin_opening_flight(flight, region, pin, pcie)) {
		if (!(pdn_flight_reach_further(flight, pin->base, pin->base + pin->length) &
		      PDN_GUARDED))
			return PINDOWN_OK;
		pdn_flight_end_unlocked(flight);
		if (!pdn_flight_wait(flight))
			return PINDOWN_ERR_TIMED_OUT;
	}
	return PINDOWN_ERR_NOT_DEVICE;
}

static void trace_map(const struct pindown_region *region, bool pcie, int result)
{
	uint64_t now;

	if (!pdn_tracing(PDN_EV_MAP))
		return;
	now = pdn_ticks();
	pdn_trace_about(PDN_EV_MAP, region, result, pcie ? PDN_TRACE_PCIE : 0, now, now);
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Lock held. */
static bool has_same_dmabuf(const struct pindown_region *region, const struct pdn_pin *pin)
{
	struct pdn_pin now = pdn_region_pin(region);

	return now.fd == pin->fd && now.fd_identity == pin->fd_identity;
}

/*
 * The region is held, so no other thread unpins it. Several users of one region may close and ask
 * at the same time; the descriptor changes hands under the lock, and is opened and closed outside
 * it.
 */
static int current_dmabuf(struct pindown_region *region, const struct pdn_backend *backend,
			  bool *pcie)
{
	struct pdn_pin pin;

	pdn_lock();
	pin = pdn_region_pin(region);
	pdn_unlock();
	if (pin.fd >= 0)
		*pcie = pin.pcie;
	if (pin.fd < 0 || backend->has_dmabuf(&pin))
		return pin.fd;
	/* The program has closed it, and may have something of its own under the number. */
	pdn_lock();
	if (has_same_dmabuf(region, &pin)) {
		pdn_region_drop_dmabuf(region);
		pdn_dmabuf_closed();
	}
	pdn_unlock();
	return -1;
}

/* Idle regions make room for it: if a descriptor is missing, those that have one. */
static int open_or_evict(struct pdn_pin *pin, const struct pdn_backend *backend, void *context,
			 int *error)
{
	struct pdn_pressure pressure = {0};
	int result;

	do {
		pdn_descriptor_begin();
		result = backend->open_dmabuf(pin, context, error);
		pdn_descriptor_end();
		pressure.place = *error == CUDA_ERROR_OUT_OF_MEMORY ? pin->device : PDN_WITH_DMABUF;
	} while (result == PINDOWN_ERR_NO_SPACE && pdn_evict_for(&pressure));
	return result;
}

/* In place of a closed one; unless another thread was faster, or the memory has ended. */
static int open_again(struct pindown_region *region, const struct pdn_backend *backend,
		      struct pdn_pin *again, int *fd)
{
	int result, error = 0;
	bool used = false;

	result = open_or_evict(again, backend, pdn_region_context(region), &error);
	/*
	 * The descriptor that was opened here, or the failure, is the region's only if that still
	 * lives.
	 */
	if (pdn_compare_in_flight(region) != PDN_TRUE) {
		if (result == PINDOWN_OK)
			backend->close_dmabuf(again);
		return PINDOWN_ERR_NOT_DEVICE;
	}
	if (result != PINDOWN_OK) {
		pdn_set_driver_error(result, error);
		return result;
	}
	pdn_lock();
	if (!pdn_region_has_memory(region)) {
		result = PINDOWN_ERR_NOT_DEVICE;
	} else if (pdn_region_fd(region) < 0) {
		region->dmabuf_users &= (uint16_t)~PAST;
		pdn_region_set_dmabuf(region, again);
		used = true;
	}
	*fd = pdn_region_fd(region);
	again->pcie = pdn_region_flags(region) & PDN_REGION_PCIE;
	pdn_unlock();
	if (!used)
		backend->close_dmabuf(again);
	return result;
}

/* *pcie: which mapping is wanted, and then, which one it has. */
static int reopen(struct pindown_region *region, const struct pdn_backend *backend, bool *pcie,
		  int *fd)
{
	struct pdn_flight flight;
	struct pdn_pin again;
	int result = begin_opening(&flight, region, &again, *pcie);

	if (result != PINDOWN_OK)
		return result;
	result = open_again(region, backend, &again, fd);
	*pcie = again.pcie;
	pdn_flight_end_unlocked(&flight);
	return result;
}

/* `dmabuf_users` counts the caller, so that no other thread closes it meanwhile. */
static int open_for_user(struct pindown_region *region, const struct pdn_backend *backend,
			 bool *pcie, int *fd)
{
	int result = PINDOWN_OK;
	int found = current_dmabuf(region, backend, pcie);

	if (found < 0)
		result = reopen(region, backend, pcie, &found);
	trace_map(region, *pcie, result);
	if (result == PINDOWN_OK)
		*fd = found;
	return result;
}

/* ---- closing ------------------------------------------------------------------------------ */

/* Lock held, and let go. Closes it if no user is left. */
static void close_unused(struct pindown_region *region, const struct pdn_backend *backend)
{
	struct pdn_pin closing = pdn_region_pin(region);
	struct pdn_flight flight;

	if (region->dmabuf_users & ~PAST || closing.fd < 0) {
		pdn_unlock();
		return;
	}
	/* In this order: a child that is forked meanwhile finds it in one of the two. */
	begin_flight(&flight, region, &closing);
	pdn_region_drop_dmabuf(region);
	pdn_unlock();
	backend->close_dmabuf(&closing);
	pdn_flight_end_unlocked(&flight);
}

/* The backend that can open and close descriptors of this region, or NULL. */
static const struct pdn_backend *backend_of(const struct pindown_region *region)
{
	const struct pdn_pin pin = pdn_region_pin(region);
	const struct pdn_backend *backend = pdn_backend_of(&pin);

	return backend && backend->open_dmabuf ? backend : NULL;
}

/*
 * Lock held. Of a region whose memory has ended, too: the registrations that are held keep the
 * memory, and no other one is made. One that another region has replaced opens it again when it
 * must. A region that is being unpinned is in neither state.
 */
static bool is_only_kept(uint32_t region)
{
	uint16_t users = pdn_regions[region].dmabuf_users;
	uint32_t state = pdn_state_of(region);

	return (pdn_state_is_linked(state) || state == PDN_KEPT) &&
	       pdn_region_fd(&pdn_regions[region]) >= 0 && users & USED && !(users & ~PAST);
}

bool pdn_dmabuf_close_kept(void)
{
	bool any = false;

	/* Relaxed: as in may_keep(). */
	if (!__atomic_exchange_n(&keeps, false, __ATOMIC_RELAXED))
		return false;
	for (uint32_t n = 1;; n++) {
		pdn_lock();
		if (n > pdn_region_high_water())
			break;
		if (is_only_kept(n)) {
			any = true;
			close_unused(&pdn_regions[n], backend_of(&pdn_regions[n]));
		} else {
			pdn_unlock();
		}
	}
	pdn_unlock();
	return any;
}

/* ---- the ways in -------------------------------------------------------------------------- */

/* Lent until create returns, however often it asks: pdn_dmabuf_create_ended(). */
static int borrow_in_create(struct pindown_region *region, uint64_t addr, int *fd, uint64_t *offset,
			    bool *asked)
{
	int result = pdn_dmabuf_borrow(region, fd);

	if (result != PINDOWN_OK)
		return result;
	*offset = addr - pdn_region_pin_base(region);
	if (*asked)
		pdn_dmabuf_return(region, false);
	*asked = true;
	return PINDOWN_OK;
}

PDN_EXPORT int pindown_region_dmabuf(struct pindown_region *region, uint64_t addr, int *fd,
				     uint64_t *offset)
{
	PDN_UNCANCELLED;
	const struct pdn_backend *backend;
	uint16_t before;
	bool *asked, pcie;
	int result;

	if (!region || !fd || !offset)
		return PINDOWN_ERR_INVALID;
	pdn_region_is_used(region, __func__);
	if (!pdn_region_holds(region, addr, 1))
		return PINDOWN_ERR_INVALID;
	backend = backend_of(region);
	if (!backend)
		return PINDOWN_ERR_NO_DMABUF;
	asked = pdn_consumer_asked_dmabuf(region);
	if (asked)
		return borrow_in_create(region, addr, fd, offset, asked);
	pdn_lock();
	before = region->dmabuf_users;
	region->dmabuf_users |= LENT;
	pdn_unlock();
	pcie = pdn_mapping_first(region->device);
	result = open_for_user(region, backend, &pcie, fd);
	if (result == PINDOWN_OK)
		*offset = addr - pdn_region_pin_base(region);
	else if (!(before & LENT))
		pindown_region_close_dmabuf(region);
	return result;
}

PDN_EXPORT void pindown_region_close_dmabuf(struct pindown_region *region)
{
	PDN_UNCANCELLED;
	const struct pdn_backend *backend = region ? backend_of(region) : NULL;

	if (!backend)
		return;
	pdn_lock();
	region->dmabuf_users &= (uint16_t)~LENT;
	close_unused(region, backend);
}

static int borrow(struct pindown_region *region, const struct pdn_backend *backend, bool *pcie,
		  int *fd)
{
	int result;

	pdn_lock();
	region->dmabuf_users++;
	pdn_unlock();
	result = open_for_user(region, backend, pcie, fd);
	if (result != PINDOWN_OK)
		pdn_dmabuf_return(region, false);
	return result;
}

int pdn_dmabuf_borrow(struct pindown_region *region, int *fd)
{
	const struct pdn_backend *backend = backend_of(region);
	bool pcie;

	if (!backend)
		return PINDOWN_ERR_NO_DMABUF;
	pcie = pdn_mapping_first(region->device);
	return borrow(region, backend, &pcie, fd);
}

int pdn_dmabuf_borrow_default(struct pindown_region *region, int *fd)
{
	const struct pdn_backend *backend = backend_of(region);
	bool pcie = false;
	int result = backend ? borrow(region, backend, &pcie, fd) : PINDOWN_ERR_NO_DMABUF;

	if (result == PINDOWN_OK && pcie) {
		pdn_dmabuf_return(region, false);
		result = PINDOWN_ERR_NO_DMABUF;
	}
	return result;
}

/*
 * Lock held, and let go. Each registration that is made from it but the first has saved an export;
 * the descriptor has stayed the same while it had users.
 */
static void return_used(struct pindown_region *region, const struct pdn_backend *backend, bool keep,
			bool imported)
{
	region->dmabuf_users--;
	if (pdn_region_fd(region) >= 0) {
		if (imported && region->dmabuf_users & IMPORTED && backend->pin_takes_descriptor)
			pdn_account_export_saved();
		region->dmabuf_users |= imported ? PAST : USED;
	}
	if (keep)
		pdn_unlock();
	else
		close_unused(region, backend);
}

void pdn_dmabuf_return(struct pindown_region *region, bool imported)
{
	const struct pdn_backend *backend = backend_of(region);
	bool keep = may_keep(backend);

	pdn_lock();
	return_used(region, backend, keep, imported);
}

void pdn_dmabuf_create_ended(struct pindown_region *region, bool worked)
{
	const struct pdn_backend *backend = backend_of(region);
	bool keep = may_keep(backend);

	pdn_lock();
	if (worked || !backend->pin_takes_descriptor) {
		return_used(region, backend, keep, worked);
	} else {
		region->dmabuf_users--;
		pdn_unlock(); /* nothing was imported: the descriptor is the pin */
	}
}

/* ---- for a card ------------------------------------------------------------------------------ */

/* One that maps it in another way than it is wanted is closed, unless it has users. */
static void close_other_mapping(struct pindown_region *region, const struct pdn_backend *backend,
				bool pcie)
{
	bool now;

	pdn_lock();
	now = pdn_region_flags(region) & PDN_REGION_PCIE;
	if (now == pcie)
		pdn_unlock();
	else
		close_unused(region, backend);
}

/*
 * The region's own dma-buf has users, and maps the memory in the other way: export another one. A
 * free of the memory waits for the export, and a fork until the loan has ended, as no pin names it.
 * It is noted at once, for the child of a fork that waits no longer.
 */
static int export_for_loan(struct pindown_region *region, const struct pdn_backend *backend,
			   bool pcie, struct pdn_loan *loan)
{
	struct pdn_flight flight;
	int result, error = 0;

	loan->own.pcie = pcie;
	pdn_descriptor_begin();
	result = begin_opening(&flight, region, &loan->own, pcie);
	if (result == PINDOWN_OK) {
		do
			result = backend->open_dmabuf(&loan->own, pdn_region_context(region),
						      &error);
		while (result == PINDOWN_ERR_NO_SPACE && error != CUDA_ERROR_OUT_OF_MEMORY &&
		       pdn_dmabuf_close_kept());
		if (result == PINDOWN_OK && pdn_compare_in_flight(region) != PDN_TRUE) {
			backend->close_dmabuf(&loan->own);
			result = PINDOWN_ERR_NOT_DEVICE;
		}
		/* While the flight still names it: a child finds it in one of the two. */
		if (result == PINDOWN_OK)
			pdn_descriptor_note(loan->own.fd, loan->own.fd_identity);
		pdn_flight_end_unlocked(&flight);
	}
	trace_map(region, loan->own.pcie, result);
	if (result != PINDOWN_OK) {
		pdn_descriptor_end();
		pdn_set_driver_error(result, error);
	}
	loan->fd = loan->own.fd;
	loan->pcie = loan->own.pcie;
	return result;
}

static int lend(struct pindown_region *region, bool pcie, struct pdn_loan *loan)
{
	const struct pdn_backend *backend = backend_of(region);
	int result;

	loan->fd = loan->own.fd = -1;
	if (!backend)
		return PINDOWN_ERR_NO_DMABUF;
	loan->pcie = pcie;
	if (backend->pin_takes_descriptor)
		close_other_mapping(region, backend, pcie);
	result = borrow(region, backend, &loan->pcie, &loan->fd);
	if (result != PINDOWN_OK || loan->pcie == pcie || !backend->pin_takes_descriptor)
		return result;
	/*
	 * Refused by the driver, for all or for this memory; or another thread uses the region's.
	 */
	if (!pdn_mapping_is_possible(region->device, pcie))
		return result;
	pdn_dmabuf_return(region, false);
	return export_for_loan(region, backend, pcie, loan);
}

int pdn_dmabuf_lend(struct pindown_region *region, const char *card, struct pdn_loan *loan)
{
	loan->tried_other = false;
	return lend(region, pdn_mapping_for(region->device, card), loan);
}

bool pdn_dmabuf_lend_other(struct pindown_region *region, struct pdn_loan *loan)
{
	if (loan->tried_other || !backend_of(region)->pin_takes_descriptor ||
	    !pdn_mapping_is_chosen(region->device))
		return false;
	pdn_dmabuf_end_loan(region, loan, false);
	loan->tried_other = true;
	return lend(region, !loan->pcie, loan) == PINDOWN_OK;
}

void pdn_dmabuf_end_loan(struct pindown_region *region, struct pdn_loan *loan, bool imported)
{
	if (loan->own.fd >= 0) {
		backend_of(region)->close_dmabuf(&loan->own);
		pdn_descriptor_end();
	} else if (loan->fd >= 0) {
		pdn_dmabuf_return(region, imported);
	}
	loan->fd = -1;
}
