/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * trace.h - tracepoints: /sys/kernel/tracing/events/pindown/. Their addresses are GPU virtual
 * addresses.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pindown

#if !defined(PINDOWN_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PINDOWN_TRACE_H

#include <linux/device.h>
#include <linux/pci.h>
#include <linux/pid.h>
#include <linux/tracepoint.h>

#include "internal.h"

/* The fields of every event about a region: its process, number, address and length. */
DECLARE_EVENT_CLASS(pindown_region,
	TP_PROTO(struct pdn_region *region, int result),
	TP_ARGS(region, result),
	TP_STRUCT__entry(
		__field(pid_t, process)
		__field(u32, number)
		__field(u64, address)
		__field(u64, length)
		__field(u32, flags)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->process = pid_nr(region->owner->tgid);
		__entry->number = region->number;
		__entry->address = region->address;
		__entry->length = region->length;
		__entry->flags = region->flags;
		__entry->result = result;
	),
	TP_printk("process=%d region=%u address=%#llx length=%llu flags=%#x result=%d",
		  __entry->process, __entry->number, __entry->address, __entry->length,
		  __entry->flags, __entry->result)
);

DEFINE_EVENT(pindown_region, pindown_pin,
	TP_PROTO(struct pdn_region *region, int result),
	TP_ARGS(region, result)
);

DEFINE_EVENT(pindown_region, pindown_unpin,
	TP_PROTO(struct pdn_region *region, int result),
	TP_ARGS(region, result)
);

DEFINE_EVENT(pindown_region, pindown_export,
	TP_PROTO(struct pdn_region *region, int result),
	TP_ARGS(region, result)
);

TRACE_EVENT(pindown_revoke,
	TP_PROTO(struct pdn_region *region, u32 was),
	TP_ARGS(region, was),
	TP_STRUCT__entry(
		__field(pid_t, process)
		__field(u32, number)
		__field(u64, address)
		__field(u64, length)
		__field(u32, was)
	),
	TP_fast_assign(
		__entry->process = pid_nr(region->owner->tgid);
		__entry->number = region->number;
		__entry->address = region->address;
		__entry->length = region->length;
		__entry->was = was;
	),
	TP_printk("process=%d region=%u address=%#llx length=%llu was=%s", __entry->process,
		  __entry->number, __entry->address, __entry->length,
		  __print_symbolic(__entry->was, { 0, "pinning" }, { 1, "live" }, { 2, "revoked" },
				   { 3, "ending" }))
);

TRACE_EVENT(pindown_attach,
	TP_PROTO(struct pdn_region *region, struct device *dev, int result),
	TP_ARGS(region, dev, result),
	TP_STRUCT__entry(
		__field(pid_t, process)
		__field(u32, number)
		__field(u32, domain)
		__field(u32, bdf)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->process = pid_nr(region->owner->tgid);
		__entry->number = region->number;
		__entry->domain = dev_is_pci(dev) ? pci_domain_nr(to_pci_dev(dev)->bus) : 0;
		__entry->bdf = dev_is_pci(dev) ? pci_dev_id(to_pci_dev(dev)) : 0;
		__entry->result = result;
	),
	TP_printk("process=%d region=%u device=%04x:%02x:%02x.%x result=%d", __entry->process,
		  __entry->number, __entry->domain, __entry->bdf >> 8, __entry->bdf >> 3 & 31,
		  __entry->bdf & 7, __entry->result)
);

/* A pin found no BAR space, and other processes were asked for some. */
TRACE_EVENT(pindown_wish,
	TP_PROTO(const struct pdn_region *region, u32 serial, u32 asked),
	TP_ARGS(region, serial, asked),
	TP_STRUCT__entry(
		__field(pid_t, process)
		__field(u64, bytes)
		__field(u32, serial)
		__field(u32, asked)
	),
	TP_fast_assign(
		__entry->process = pid_nr(region->owner->tgid);
		__entry->bytes = region->length;
		__entry->serial = serial;
		__entry->asked = asked;
	),
	TP_printk("process=%d bytes=%llu wish=%u asked=%u", __entry->process, __entry->bytes,
		  __entry->serial, __entry->asked)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
