// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * driver_module.c - the kernel module of the NVIDIA driver: its version, and why its symbols can't
 * be looked up.
 */
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/string.h>

#include "internal.h"

/* Returns a module with a reference. NULL: it is not loaded, or it is being unloaded. */
static struct module *module_by_name(const char *name)
{
	/* All modules are in one set, this one too. */
	struct kobject *kobject = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);
	struct module *module;

	if (!kobject)
		return NULL;
	/* The kobject keeps the memory of the module. */
	module = container_of(kobject, struct module_kobject, kobj)->mod;
	if (module && !try_module_get(module))
		module = NULL;
	kobject_put(kobject);
	return module;
}

bool pdn_driver_module_look(const char *name, struct pdn_driver_module *driver)
{
	struct module *module = module_by_name(name);

	if (!module)
		return false;
	/* The version is NULL while the module is still being loaded. */
	strscpy(driver->version, module->version ?: "", sizeof(driver->version));
	driver->is_proprietary = test_bit(TAINT_PROPRIETARY_MODULE, &module->taints);
	module_put(module);
	return true;
}

#define NEEDED "install the open kernel modules of driver 535.146.02, 550.40.07 or newer"

void pdn_driver_module_complain(const char *name)
{
	struct pdn_driver_module driver;

	if (!pdn_driver_module_look(name, &driver))
		pr_err_ratelimited("no NVIDIA driver is loaded: load %s.ko (the open kernel "
				   "module) first\n", name);
	else if (driver.is_proprietary)
		pr_err_ratelimited("%s.ko %s is the proprietary kernel module, whose symbols Linux "
				   "keeps from modules that use dma-buf: " NEEDED "\n",
				   name, driver.version);
	else
		pr_err_ratelimited("%s.ko %s does not export nvidia_p2p_get_pages and its kin with "
				   "EXPORT_SYMBOL_GPL, and Linux gives no other symbols to a "
				   "module that looks them up: " NEEDED "\n",
				   name, driver.version);
}
