// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * debug.c - /sys/kernel/debug/pindown/: the list of all regions with their processes, and counters.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "internal.h"

atomic64_t pdn_counters[PDN_COUNTERS];

static struct dentry *folder;

static const char *state_name(enum pdn_region_state state)
{
	switch (state) {
	case PDN_PINNING:
		return "pinning";
	case PDN_LIVE:
		return "live";
	case PDN_REVOKED:
		return "revoked";
	default:
		return "ending";
	}
}

/* Prints one line for a region. GPU addresses are those of the process, not of the kernel. */
void pdn_region_show(struct seq_file *seq, struct pdn_region *region)
{
	u32 exports, importers;

	pdn_exports_count(region, &exports, &importers);
	down_read(&region->lock);
	seq_printf(seq, "%7d %7u %#14llx %12llu %-10s %-8s %7u %9u %pUb\n",
		   pid_vnr(region->owner->tgid), region->number, region->address, region->length,
		   region->flags & PINDOWN_PIN_PERSISTENT ? "persistent" : "callback",
		   state_name(region->state), exports, importers, region->gpu_uuid);
	up_read(&region->lock);
}

static int regions_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "%7s %7s %14s %12s %-10s %-8s %7s %9s %s\n", "process", "region", "address",
		   "bytes", "mode", "state", "exports", "importers", "gpu");
	pdn_files_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(regions);

static int counters_show(struct seq_file *seq, void *unused)
{
	static const char *const names[PDN_COUNTERS] = {
		[PDN_PINS] = "pins",
		[PDN_UNPINS] = "unpins",
		[PDN_PIN_FAILURES] = "pin_failures",
		[PDN_REVOCATIONS] = "revocations",
		[PDN_LOST_RACES] = "lost_races",
		[PDN_EXPORTS] = "exports",
		[PDN_ATTACHES] = "attaches",
		[PDN_ATTACH_FAILURES] = "attach_failures",
		[PDN_RECLAIMS] = "reclaims",
		[PDN_RECLAIM_SAVES] = "reclaim_saves",
		[PDN_ORPHANS] = "orphans",
		[PDN_STRAY_CALLBACKS] = "stray_callbacks",
		[PDN_KEPT_BYTES] = "kept_bytes",
		[PDN_CHARGED_BYTES] = "charged_bytes",
		[PDN_CHARGES] = "charges",
	};
	int i;

	for (i = 0; i < PDN_COUNTERS; i++)
		seq_printf(seq, "%s %llu\n", names[i], (u64)atomic64_read(&pdn_counters[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

void pdn_debug_init(void)
{
	folder = debugfs_create_dir("pindown", NULL);
	debugfs_create_file("regions", 0400, folder, NULL, &regions_fops);
	debugfs_create_file("counters", 0400, folder, NULL, &counters_fops);
}

void pdn_debug_exit(void)
{
	debugfs_remove(folder);
}
