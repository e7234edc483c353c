// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * debug.c - /sys/kernel/debug/pindown/: the list of all regions with their processes, and counters.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "internal.h"

atomic64_t pd_counters[PD_COUNTERS];

static struct dentry *folder;

static const char *state_name(enum pd_region_state state)
{
	switch (state) {
	case PD_PINNING:
		return "pinning";
	case PD_LIVE:
		return "live";
	case PD_REVOKED:
		return "revoked";
	default:
		return "ending";
	}
}

/* Prints one line for a region. GPU addresses are those of the process, not of the kernel. */
void pd_region_show(struct seq_file *seq, struct pd_region *region)
{
	u32 exports, importers;

	pd_exports_count(region, &exports, &importers);
	down_read(&region->lock);
	seq_printf(seq, "%7d %7u %#14llx %12llu %-10s %-8s %8u %7u %9u %pUb\n",
		   pid_vnr(region->owner->tgid), region->number, region->address, region->length,
		   region->flags & PINDOWN_PIN_PERSISTENT ? "persistent" : "callback",
		   state_name(region->state), region->mappings, exports, importers,
		   region->gpu_uuid);
	up_read(&region->lock);
}

static int regions_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "%7s %7s %14s %12s %-10s %-8s %8s %7s %9s %s\n", "process", "region",
		   "address", "bytes", "mode", "state", "mappings", "exports", "importers", "gpu");
	pd_files_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(regions);

static int counters_show(struct seq_file *seq, void *unused)
{
	static const char *const names[PD_COUNTERS] = {
		[PD_PINS] = "pins",
		[PD_UNPINS] = "unpins",
		[PD_PIN_FAILURES] = "pin_failures",
		[PD_REVOCATIONS] = "revocations",
		[PD_LOST_RACES] = "lost_races",
		[PD_MAPS] = "maps",
		[PD_FAULTS] = "faults",
		[PD_SIGBUS] = "sigbus",
		[PD_EXPORTS] = "exports",
		[PD_ATTACHES] = "attaches",
		[PD_ATTACH_FAILURES] = "attach_failures",
		[PD_RECLAIMS] = "reclaims",
		[PD_RECLAIM_SAVES] = "reclaim_saves",
		[PD_ORPHANS] = "orphans",
		[PD_STRAY_CALLBACKS] = "stray_callbacks",
		[PD_KEPT_BYTES] = "kept_bytes",
	};
	int i;

	for (i = 0; i < PD_COUNTERS; i++)
		seq_printf(seq, "%s %llu\n", names[i], (u64)atomic64_read(&pd_counters[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

void pd_debug_init(void)
{
	folder = debugfs_create_dir("pindown", NULL);
	debugfs_create_file("regions", 0400, folder, NULL, &regions_fops);
	debugfs_create_file("counters", 0400, folder, NULL, &counters_fops);
}

void pd_debug_exit(void)
{
	debugfs_remove(folder);
}
