// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The simulated GPU: a PCI device of the test guest whose BAR is the GPU's memory, and
 * /dev/sim_gpu.
 *
 * It is for the guest only. It does not load on a machine other than QEMU's, nor beside anything of
 * NVIDIA's, so that nothing can depend on it by mistake.
 */
#include <linux/dmi.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/pid.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "gpu.h"

#define MEMORY_BAR  2
#define PCI_REDHAT  0x1af4
#define PCI_IVSHMEM 0x1110
#define MAP_SHIFT   28 /* of a memory's number in an mmap offset */

/* The VA-space token of every process, as the real driver hands it out in practice. */
#define VA_SPACE 0xfe00

struct sim_gpu gpu;

static unsigned int table_major = 1;
module_param(table_major, uint, 0444);
MODULE_PARM_DESC(table_major, "major version of the page tables: 1 (up to 575) or 2 (from 580)");

/* ---- the host's view of the memory ---- */

static vm_fault_t view_fault(struct vm_fault *fault)
{
	struct vm_area_struct *vma = fault->vma;
	u64 at = (u64)fault->pgoff << PAGE_SHIFT, begin;
	struct sim_memory *memory = sim_memory_find(at >> MAP_SHIFT);
	vm_fault_t result = VM_FAULT_SIGBUS;
	phys_addr_t page;
	u32 i;

	if (!memory)
		return VM_FAULT_SIGBUS;
	at &= (1ull << MAP_SHIFT) - 1;
	if (at < memory->size) {
		begin = ALIGN_DOWN(fault->address, PAGE_SIZE);
		page = sim_memory_page(memory, at) + (at & (SIM_GPU_PAGE - 1));
		/* The requested page, and the rest of its GPU page. */
		mutex_lock(&gpu.memory_lock);
		for (i = 0; !memory->freed && begin < vma->vm_end; i++, begin += PAGE_SIZE) {
			result = vmf_insert_pfn(vma, begin, PHYS_PFN(page) + i);
			if (result != VM_FAULT_NOPAGE ||
			    !((page + (i + 1) * PAGE_SIZE) & (SIM_GPU_PAGE - 1)))
				break;
		}
		mutex_unlock(&gpu.memory_lock);
	}
	sim_memory_drop(memory);
	return result;
}

static const struct vm_operations_struct view_ops = {.fault = view_fault};

static void view_flags(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

static int gpu_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sim_client *client = file->private_data;
	u64 at = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 size = vma->vm_end - vma->vm_start, offset = at & ((1ull << MAP_SHIFT) - 1);
	struct sim_memory *memory;
	bool fits;

	if (client->tgid != task_tgid(current))
		return -EPERM;
	memory = sim_memory_find(at >> MAP_SHIFT);
	if (!memory)
		return -ENOENT;
	fits = offset <= memory->size && size <= memory->size - offset;
	sim_memory_drop(memory);
	if (!fits || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	view_flags(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	vma->vm_ops = &view_ops;
	return 0;
}

/* ---- calls; each takes the API lock, and none copies to or from user space under it ---- */

static int call_alloc(struct sim_client *client, struct sim_gpu_alloc *call)
{
	struct sim_mapping *mapping = NULL;
	struct sim_memory *memory;
	int error;

	if (call->flags & ~(SIM_GPU_SCATTERED | SIM_GPU_MAPPED | SIM_GPU_COHERENT) ||
	    call->reserved)
		return -EINVAL;
	memory = sim_memory_alloc(client, call->size, call->flags);
	if (IS_ERR(memory))
		return PTR_ERR(memory);
	if (call->flags & SIM_GPU_MAPPED) {
		mapping = sim_map(client, memory, 0, call->size, call->va);
		if (IS_ERR(mapping)) {
			error = PTR_ERR(mapping);
			sim_memory_free(client, memory->id);
			return error;
		}
		call->va = mapping->va;
	}
	call->handle = memory->id;
	call->map_offset = memory->id << MAP_SHIFT;
	return 0;
}

static int call_map(struct sim_client *client, struct sim_gpu_map *call)
{
	struct sim_memory *memory = sim_memory_find(call->handle);
	struct sim_mapping *mapping;

	if (!memory)
		return -ENOENT;
	mapping = sim_map(client, memory, call->offset, call->size, call->va);
	sim_memory_drop(memory);
	if (IS_ERR(mapping))
		return PTR_ERR(mapping);
	call->va = mapping->va;
	return 0;
}

static int call_count(struct sim_gpu_counters *call)
{
	int i;

	for (i = 0; i < SIM_GPU_COUNTERS; i++)
		call->value[i] = atomic64_read(&sim_counters[i]);
	return 0;
}

union call {
	struct sim_gpu_alloc alloc;
	__u64 handle;
	struct sim_gpu_map map;
	struct sim_gpu_range range;
	struct sim_gpu_tokens tokens;
	struct sim_gpu_counters counters;
	struct sim_gpu_set set;
	struct sim_gpu_gate_op gate;
	struct sim_gpu_export export;
};

/* The calls that use memory and addresses. */
static int call_locked(struct sim_client *client, unsigned int number, union call *call)
{
	switch (number) {
	case SIM_GPU_ALLOC:
		return call_alloc(client, &call->alloc);
	case SIM_GPU_FREE:
		return sim_memory_free(client, call->handle);
	case SIM_GPU_MAP:
		return call_map(client, &call->map);
	case SIM_GPU_UNMAP:
		return sim_unmap(client, call->range.va, call->range.size);
	}
	return -ENOTTY;
}

static int call_one(struct sim_client *client, unsigned int number, union call *call)
{
	int error;

	switch (number) {
	case SIM_GPU_TOKENS:
		call->tokens = (struct sim_gpu_tokens){.p2p_token = client->p2p_token,
						       .va_space = client->va_space};
		return 0;
	case SIM_GPU_SIZE:
		call->handle = (u64)gpu.bar_pages << SIM_PAGE_SHIFT;
		return 0;
	case SIM_GPU_COUNT:
		return call_count(&call->counters);
	case SIM_GPU_SET:
		return sim_knob_set(call->set.knob, call->set.value);
	case SIM_GPU_RESET:
		sim_knobs_reset();
		return 0;
	case SIM_GPU_GATE:
		return sim_gate_op(call->gate.gate, call->gate.op);
	}
	if (client->tgid != task_tgid(current))
		return -EPERM;
	if (number == SIM_GPU_EXPORT)
		return sim_export(&call->export);
	mutex_lock(&gpu.api_lock);
	error = call_locked(client, number, call);
	mutex_unlock(&gpu.api_lock);
	return error;
}

static long gpu_ioctl(struct file *file, unsigned int number, unsigned long argument)
{
	void __user *from = (void __user *)argument;
	union call call = {};
	int error;

	if (_IOC_SIZE(number) > sizeof(call))
		return -ENOTTY;
	if (_IOC_DIR(number) & _IOC_WRITE && copy_from_user(&call, from, _IOC_SIZE(number)))
		return -EFAULT;
	error = call_one(file->private_data, number, &call);
	if (!error && _IOC_DIR(number) & _IOC_READ && copy_to_user(from, &call, _IOC_SIZE(number)))
		return -EFAULT;
	return error;
}

static int gpu_open(struct inode *inode, struct file *file)
{
	struct sim_client *client = kzalloc(sizeof(*client), GFP_KERNEL);

	if (!client)
		return -ENOMEM;
	client->tgid = get_task_pid(current, PIDTYPE_TGID);
	client->va_space = VA_SPACE;
	INIT_LIST_HEAD(&client->memories);
	client->mappings = RB_ROOT;
	mutex_lock(&gpu.api_lock);
	client->p2p_token = ++gpu.last_p2p_token;
	gpu.inode_mapping = inode->i_mapping;
	list_add(&client->all, &gpu.clients);
	mutex_unlock(&gpu.api_lock);
	file->private_data = client;
	return 0;
}

/* The process has died, or closes CUDA's descriptor: all of its memory ends. */
static int gpu_release(struct inode *inode, struct file *file)
{
	struct sim_client *client = file->private_data;

	mutex_lock(&gpu.api_lock);
	sim_client_end(client);
	list_del(&client->all);
	mutex_unlock(&gpu.api_lock);
	put_pid(client->tgid);
	kfree(client);
	return 0;
}

static const struct file_operations gpu_fops = {
	.owner = THIS_MODULE,
	.open = gpu_open,
	.release = gpu_release,
	.unlocked_ioctl = gpu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = gpu_mmap,
};

static struct miscdevice gpu_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "sim_gpu",
	.fops = &gpu_fops,
	.mode = 0666,
};

/* ---- coming and going ---- */

static int gpu_tables(void)
{
	gpu.memory_used = bitmap_zalloc(gpu.bar_pages, GFP_KERNEL);
	gpu.bar_used = kvcalloc(2 * gpu.bar_pages, sizeof(*gpu.bar_used), GFP_KERNEL);
	return gpu.memory_used && gpu.bar_used ? 0 : -ENOMEM;
}

/* Restores the PCI device. */
static void gpu_leave(void)
{
	if (gpu.pci)
		gpu.pci->class = gpu.pci_class;
	gpu.pci = NULL;
}

static int gpu_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	int error;

	if (gpu.pci)
		return -EBUSY;
	error = pci_enable_device_mem(pci);
	if (error)
		return error;
	error = pci_request_region(pci, MEMORY_BAR, "sim_gpu");
	if (error)
		goto disable;
	error = -ENODEV;
	gpu.bar_start = pci_resource_start(pci, MEMORY_BAR);
	gpu.bar_pages = pci_resource_len(pci, MEMORY_BAR) >> SIM_PAGE_SHIFT;
	if (!gpu.bar_pages || pci_resource_len(pci, MEMORY_BAR) > 1ull << MAP_SHIFT)
		goto release;
	error = -ENOMEM;
	gpu.bar = ioremap_wc(gpu.bar_start, pci_resource_len(pci, MEMORY_BAR));
	if (!gpu.bar)
		goto release;
	error = gpu_tables();
	if (error)
		goto tables;
	gpu.pci = pci;
	gpu.pci_class = pci->class;
	pci->class = PCI_CLASS_DISPLAY_3D << 8; /* the kernel takes it for a GPU */
	error = misc_register(&gpu_device);
	if (error)
		goto tables;
	error = sim_counters_show();
	if (error)
		goto device;
	pci_info(pci, "simulated GPU, %u MiB of memory\n", gpu.bar_pages >> 4);
	return 0;

device:
	misc_deregister(&gpu_device);
tables:
	gpu_leave();
	kvfree(gpu.bar_used);
	bitmap_free(gpu.memory_used);
	iounmap(gpu.bar);
release:
	pci_release_region(pci, MEMORY_BAR);
disable:
	pci_disable_device(pci);
	return error;
}

static void gpu_remove(struct pci_dev *pci)
{
	sim_counters_hide();
	misc_deregister(&gpu_device);
	kfree(gpu.spare_table);
	gpu_leave();
	kvfree(gpu.bar_used);
	bitmap_free(gpu.memory_used);
	iounmap(gpu.bar);
	pci_release_region(pci, MEMORY_BAR);
	pci_disable_device(pci);
}

/* No module alias is made from this: the kernel does not load the module by itself. */
static const struct pci_device_id gpu_ids[] = {{PCI_DEVICE(PCI_REDHAT, PCI_IVSHMEM)}, {}};

static struct pci_driver gpu_driver = {
	.name = "sim_gpu",
	.id_table = gpu_ids,
	.probe = gpu_probe,
	.remove = gpu_remove,
	.driver.suppress_bind_attrs = true,
};

/* QEMU's arm64 machine has no DMI, but a device tree of this name. */
static bool is_test_guest(void)
{
	if (!dmi_match(DMI_SYS_VENDOR, "QEMU") && !of_machine_is_compatible("linux,dummy-virt")) {
		pr_err("sim_gpu: for a QEMU guest only, and this machine's vendor is '%s'\n",
		       dmi_get_system_info(DMI_SYS_VENDOR) ?: "unknown");
		return false;
	}
	return true;
}

static int __init gpu_init(void)
{
	int error;

	if (!is_test_guest())
		return -ENODEV;
	if (table_major != 1 && table_major != 2) {
		pr_err("sim_gpu: table_major=%u: must be 1 or 2\n", table_major);
		return -EINVAL;
	}
	gpu.table_major = table_major;
	mutex_init(&gpu.api_lock);
	mutex_init(&gpu.pins_lock);
	mutex_init(&gpu.memory_lock);
	INIT_LIST_HEAD(&gpu.clients);
	INIT_LIST_HEAD(&gpu.memories);
	hash_init(gpu.pins);
	error = pci_register_driver(&gpu_driver);
	if (error)
		return error;
	if (!gpu.pci) {
		pr_err("sim_gpu: no PCI device 1af4:1110 (ivshmem-plain) with memory in BAR 2\n");
		pci_unregister_driver(&gpu_driver);
		return -ENODEV;
	}
	error = sim_provider_init();
	if (error)
		pci_unregister_driver(&gpu_driver);
	return error;
}

static void __exit gpu_exit(void)
{
	sim_provider_exit();
	pci_unregister_driver(&gpu_driver);
}

module_init(gpu_init);
module_exit(gpu_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(SIM_DRIVER);
MODULE_DESCRIPTION("Simulated GPU and provider of nvidia_p2p_* for pindown's test guest");
