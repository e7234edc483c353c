/* SPDX-License-Identifier: MIT */
/*
 * The events that a trace can have. They are part of its format (trace/format.h), and are here as
 * PINDOWN_TRACE_EVENTS names them.
 */
#ifndef PDN_EVENT_H
#define PDN_EVENT_H

enum pdn_event {
	PDN_EV_CALL,	   /* a watched driver call has returned */
	PDN_EV_PIN,	   /* a region was pinned (or could not be: result) */
	PDN_EV_UNPIN,	   /* a region was unpinned */
	PDN_EV_HIT,	   /* a get was answered from the cache */
	PDN_EV_EVICT,	   /* a region was chosen to make room */
	PDN_EV_INVALIDATE, /* a region was unlinked: reason, in_use */
	PDN_EV_MAP,	   /* a region's memory was mapped or its descriptor handed out */
	PDN_EV_ERROR,	   /* something did not work: text says what */
	/* Since 1.1, as notes. */
	PDN_EV_REGISTER,   /* a consumer's object was made on a region (or could not be: result) */
	PDN_EV_DEREGISTER, /* it was destroyed: reason; in_use: revoked */
	PDN_EV_HELD,	   /* a region's memory ended while a consumer's objects on it were held */
	PDN_EV_EXPORT,	   /* the program made a dma-buf of its own */
	PDN_EV_OUTLIVED,   /* the memory of such a dma-buf ended while it was open */
	PDN_EV_HOLDER,	   /* memory ended while the program had this registration of it */
	PDN_EV_RETIRE,	   /* since 1.2: an address was kept from use, or no longer: extra says */
	PDN_EV_LOST,	   /* made by the reader: this many events found no room */
	PDN_EVENTS
};

/* What an event says of its region; a note has room for the lowest 8 bits. */
#define PDN_TRACE_IN_USE    1u /* somebody holds the region */
#define PDN_TRACE_VOLATILE  2u
#define PDN_TRACE_MISSED    4u	 /* the free was noticed only after the driver had made it */
#define PDN_TRACE_IMPORTED  16u	 /* of a dma-buf: something has imported it */
#define PDN_TRACE_NO_SYNC   8u	 /* SYNC_MEMOPS could not be set: VMM memory */
#define PDN_TRACE_PCIE	    64u	 /* of a pin, a map: the dma-buf maps over PCIe */
#define PDN_TRACE_FELL_BACK 32u	 /* pinned by dma-buf because the kernel module refused */
#define PDN_TRACE_REVOKED   128u /* of a holder: it was deregistered with the free */
#define PDN_TRACE_REPLACED  256u /* of an eviction: by a wider region, not for lack of room */

/* In the extra of PDN_EV_RETIRE: what became of an address under a held registration. */
enum pdn_retire_outcome {
	PDN_RETIRE_RESERVED,   /* nobody gets it while the registration is held */
	PDN_RETIRE_ESCAPED,    /* somebody has got it all the same; the registration has ended */
	PDN_RETIRE_GIVEN_BACK, /* the driver may hand it out again; no registration is held */
	PDN_RETIRE_DROPPED,    /* one still is: too many addresses, or the program asks for it */
	PDN_RETIRE_RELEASED,   /* the program has dropped the last registration */
};

/* In the extra of cuMemCreate, beside the handle: pindown has set gpuDirectRDMACapable. */
#define PDN_TRACE_MADE_CAPABLE (1ull << 63)

/*
 * "call", "pin", ... by enum pdn_event, "lost" included. Of a fixed size, since a pointer needs a
 * relocation in each process.
 */
extern const char pdn_event_names[][12];

#endif
