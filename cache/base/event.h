/* SPDX-License-Identifier: MIT */
/*
 * The events that a trace can have. They are part of its format (trace/format.h), and are here as
 * PINDOWN_TRACE_EVENTS names them.
 */
#ifndef PD_EVENT_H
#define PD_EVENT_H

enum pd_event {
	PD_EV_CALL,	  /* a watched driver call has returned */
	PD_EV_PIN,	  /* a region was pinned (or could not be: result) */
	PD_EV_UNPIN,	  /* a region was unpinned */
	PD_EV_HIT,	  /* a get was answered from the cache */
	PD_EV_EVICT,	  /* a region was chosen to make room */
	PD_EV_INVALIDATE, /* a region was unlinked: reason, in_use */
	PD_EV_MAP,	  /* a region's memory was mapped or its descriptor handed out */
	PD_EV_ERROR,	  /* something did not work: text says what */
	/* Since 1.1, as notes. */
	PD_EV_REGISTER,	  /* a consumer's object was made on a region (or could not be: result) */
	PD_EV_DEREGISTER, /* it was destroyed: reason; in_use: revoked */
	PD_EV_HELD,	  /* a region's memory ended while a consumer's objects on it were held */
	PD_EV_EXPORT,	  /* the program made a dma-buf of its own */
	PD_EV_OUTLIVED,	  /* the memory of such a dma-buf ended while it was open */
	PD_EV_LOST,	  /* made by the reader: this many events found no room */
	PD_EVENTS
};

/* What an event says of its region; a note has room for the lowest 8 bits. */
#define PD_TRACE_IN_USE	   1u /* somebody holds the region */
#define PD_TRACE_VOLATILE  2u
#define PD_TRACE_MISSED	   4u  /* the free was noticed only after the driver had made it */
#define PD_TRACE_IMPORTED  16u /* of a dma-buf: something has imported it */
#define PD_TRACE_NO_SYNC   8u  /* SYNC_MEMOPS could not be set: VMM memory */
#define PD_TRACE_FELL_BACK 32u /* pinned by dma-buf because the kernel module refused */

/* "call", "pin", ... by enum pd_event, "lost" included. */
extern const char *const pd_event_names[];

#endif
