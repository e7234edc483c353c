// SPDX-License-Identifier: MIT
/* pindown doctor: which RDMA devices can register GPU memory. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/base/memory.h"

#define CLASS "sys/class/infiniband"

/*
 * Drivers of PCI devices whose RDMA part imports dma-bufs, how names of its functions begin, and
 * the first release of Linux where it does. Releases of distributions and drivers from elsewhere
 * may do so earlier: then the kernel's symbols show it. mlx5 does so since Linux has dma-bufs for
 * RDMA at all, of which another line speaks.
 */
static const struct importer {
	const char *driver, *verbs;
	unsigned major, minor;
} importers[] = {
	{"mlx5_core", "mlx5_ib", 0, 0}, {"efa", "efa", 5, 16},	   {"ice", "irdma", 6, 3},
	{"i40e", "irdma", 6, 3},	{"idpf", "irdma", 6, 18},  {"bnxt_en", "bnxt_re", 6, 6},
	{"mana", "mana_ib", 6, 14},	{"ionic", "ionic", 6, 18},
};

static const struct importer *importer_of(const char *driver)
{
	for (unsigned i = 0; i < sizeof(importers) / sizeof(importers[0]); i++)
		if (strcmp(importers[i].driver, driver) == 0)
			return &importers[i];
	return NULL;
}

/* Linux names the function that registers a dma-buf after the driver. */
static bool has_symbol(const char *verbs)
{
	char *symbols = tree_read("proc/kallsyms"),
	     *name = text_of(" %s_reg_user_mr_dmabuf", verbs);
	bool has = symbols && strstr(symbols, name);

	release(symbols);
	release(name);
	return has;
}

/* NULL: the card is no PCI device of its own, as a subfunction is not. */
static const struct pci_device *pci_device_of(const struct doctor *doctor, const char *card)
{
	const struct pci *pci = &doctor->pci;

	for (unsigned i = 0; i < pci->count; i++)
		if (pci->list[i]->is_rdma && strcmp(pci->list[i]->name, card) == 0)
			return pci->list[i];
	return NULL;
}

/* The driver of a card, for release(); NULL: Linux says none. mlx5_core.sf is of a subfunction. */
static char *driver_of(const struct doctor *doctor, const char *card)
{
	const struct pci_device *device = pci_device_of(doctor, card);
	char *driver = device && device->driver ? text_of("%s", device->driver)
						: tree_link(CLASS "/%s/../../driver", card);

	if (driver)
		driver[strcspn(driver, ".")] = '\0';
	return driver;
}

static bool is_down(const struct doctor *doctor, const char *card)
{
	const struct pci_device *device = pci_device_of(doctor, card);
	char *folder = text_of(CLASS "/%s", card);
	bool is = device ? !device->is_active : pci_is_down(folder);

	release(folder);
	return is;
}

static bool is_software(const char *card)
{
	char *path = tree_resolve(CLASS "/%s", card);
	bool is = pci_is_software(card) || (path && strstr(path, "/virtual/"));

	release(path);
	return is;
}

/* Why a card's driver can't register GPU memory, for release(); NULL: it can. */
static char *why_not(const struct doctor *doctor, const char *driver)
{
	const struct importer *importer = importer_of(driver);
	const struct version *kernel = &doctor->kernel;

	if (doctor->has_peermem || tree_has("sys/module/efa_nv_peermem") ||
	    (importer &&
	     (!kernel->part[0] || !version_before(kernel, importer->major, importer->minor, 0))) ||
	    has_symbol(importer ? importer->verbs : driver))
		return NULL;
	if (importer)
		return text_of("the driver %s imports dma-bufs only from Linux %u.%u on, and "
			       "nvidia-peermem is not loaded",
			       driver, importer->major, importer->minor);
	return text_of("the driver %s imports no dma-bufs, and nvidia-peermem is not loaded",
		       driver);
}

/* Cards that can't, for one reason. */
struct group {
	char *why, *cards;
};

static void add(struct group *group, char *why, const char *card)
{
	while (group->why && strcmp(group->why, why) != 0)
		group++;
	group->cards = text_listed(group->cards, card);
	if (group->why)
		release(why);
	else
		group->why = why;
}

#define OTHER_CARD "use a card whose driver imports dma-bufs, such as ConnectX-5 on Linux 5.12"

/* A card that can't is a problem where none can. */
void examine_cards(struct doctor *doctor)
{
	struct texts cards = tree_list(CLASS);
	struct group *groups = allocate((cards.count + 1) * sizeof(*groups));
	char *software = NULL, *down = NULL;
	unsigned active = 0;

	for (unsigned i = 0; i < cards.count; i++) {
		char *driver = driver_of(doctor, cards.list[i]), *why;

		if (is_software(cards.list[i]))
			software = text_listed(software, cards.list[i]);
		else if (driver && (why = why_not(doctor, driver)))
			add(groups, why, cards.list[i]);
		else if (is_down(doctor, cards.list[i]))
			down = text_listed(down, cards.list[i]);
		else
			active++;
		release(driver);
	}
	if (cards.count && !active)
		doctor->no_card = down ? "no RDMA device with an active port"
				       : "no RDMA device that can register GPU memory";
	if (down)
		found(doctor, active ? NOTE : PROBLEM, "RDMA devices",
		      "connect a cable, set the link up, or start a subnet manager (InfiniBand)",
		      "%s: no port is active", down);
	if (software)
		found(doctor, active ? NOTE : PROBLEM, "RDMA devices", OTHER_CARD,
		      "%s: software can't reach GPU memory", software);
	for (struct group *group = groups; group->why; group++) {
		found(doctor, active ? NOTE : PROBLEM, "RDMA devices",
		      "modprobe nvidia-peermem, or " OTHER_CARD, "%s: %s", group->cards,
		      group->why);
		release(group->why);
		release(group->cards);
	}
	release(software);
	release(down);
	release(groups);
	texts_free(&cards);
}
