// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * A GPU of NVIDIA for the test guest, made in software, so that nvidia.ko finds a device and stays
 * loaded: a PCI bus of its own (domain 1) with one device on it, whose configuration space is an
 * array in this file.
 *
 * It computes nothing. Of its registers (BAR 0) only the two that name the chip have content; they
 * are in memory that the kernel's command line reserves (memmap=). Its memory (BAR 2, as the 64-bit
 * BARs of these GPUs are numbered) is a real BAR of the machine: that of the ivshmem-plain device,
 * which is also the simulated GPU's, so that other devices can reach it.
 *
 * For the guest only: it does not load on a machine other than QEMU's.
 */
#include <linux/dmi.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>

/* The device, as an H100 describes itself. */
#define VENDOR	       0x10de
#define DEVICE	       0x2330
#define REVISION       0xa1
#define SUBSYSTEM      0x16c110de
#define REGISTERS_SIZE SZ_16M
#define BOOT_0	       0x000 /* registers: the chip's name, in the old coding and in the new */
#define BOOT_0_H100    0x180000a1
#define BOOT_42	       0xa00
#define BOOT_42_H100   0x18000000
#define INTERRUPT_LINE 10
#define REGISTERS_BAR  0
#define MEMORY_BAR     2
#define IVSHMEM_BAR    2
#define GPU_DOMAIN     1
#define GPU_BUS	       0

#define PCI_REDHAT  0x1af4
#define PCI_IVSHMEM 0x1110

static unsigned long registers = 0x30000000;
module_param(registers, ulong, 0444);
MODULE_PARM_DESC(registers, "address of 16 MiB of memory that memmap= has reserved");

/* Capabilities: power management, then PCI Express. */
#define CAP_POWER   0x60
#define CAP_EXPRESS 0x78

static struct {
	u8 config[PCI_CFG_SPACE_SIZE];
	u8 writable[PCI_CFG_SPACE_SIZE]; /* a mask for each byte */
	struct pci_sysdata sysdata;
	struct resource registers, memory; /* the bus' windows */
	struct pci_dev *ivshmem;
	struct pci_bus *bus;
} gpu;

static void config_put(unsigned int at, unsigned int size, u32 value, u32 writable)
{
	for (; size--; at++, value >>= 8, writable >>= 8) {
		gpu.config[at] = value;
		gpu.writable[at] = writable;
	}
}

/* A 64-bit BAR: the bits below its size are fixed, by which the kernel determines the size. */
static void config_bar(unsigned int number, u64 start, u64 size)
{
	u64 mask = ~(size - 1);
	u32 flags = PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;
	unsigned int at = PCI_BASE_ADDRESS_0 + 4 * number;

	config_put(at, 4, lower_32_bits(start) | flags, lower_32_bits(mask));
	config_put(at + 4, 4, upper_32_bits(start), upper_32_bits(mask));
}

static void config_init(void)
{
	config_put(PCI_VENDOR_ID, 4, DEVICE << 16 | VENDOR, 0);
	config_put(PCI_COMMAND, 2, PCI_COMMAND_MEMORY, 0xffff);
	config_put(PCI_STATUS, 2, PCI_STATUS_CAP_LIST, 0);
	config_put(PCI_CLASS_REVISION, 4, PCI_CLASS_DISPLAY_3D << 16 | REVISION, 0);
	config_bar(REGISTERS_BAR, gpu.registers.start, REGISTERS_SIZE);
	config_bar(MEMORY_BAR, gpu.memory.start, resource_size(&gpu.memory));
	config_put(PCI_SUBSYSTEM_VENDOR_ID, 4, SUBSYSTEM, 0);
	config_put(PCI_CAPABILITY_LIST, 1, CAP_POWER, 0);
	config_put(PCI_INTERRUPT_LINE, 1, INTERRUPT_LINE, 0xff);
	config_put(CAP_POWER, 4, 3 << 16 | CAP_EXPRESS << 8 | PCI_CAP_ID_PM, 0);
	config_put(CAP_EXPRESS, 4, PCI_EXP_TYPE_ENDPOINT << 20 | 2 << 16 | PCI_CAP_ID_EXP, 0);
	config_put(CAP_EXPRESS + PCI_EXP_DEVCTL, 2, 0, 0xffff);
}

/* ---- the bus ---- */

static bool is_there(struct pci_bus *bus, unsigned int function, int at, int size)
{
	return bus->number == GPU_BUS && function == 0 && at >= 0 &&
	       at + size <= PCI_CFG_SPACE_SIZE;
}

static int config_read(struct pci_bus *bus, unsigned int function, int at, int size, u32 *value)
{
	int i;

	if (!is_there(bus, function, at, size)) {
		PCI_SET_ERROR_RESPONSE(value);
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	*value = 0;
	for (i = 0; i < size; i++)
		*value |= (u32)gpu.config[at + i] << 8 * i;
	return PCIBIOS_SUCCESSFUL;
}

static int config_write(struct pci_bus *bus, unsigned int function, int at, int size, u32 value)
{
	int i;

	if (!is_there(bus, function, at, size))
		return PCIBIOS_DEVICE_NOT_FOUND;
	for (i = 0; i < size; i++, value >>= 8) {
		u8 mask = gpu.writable[at + i];

		gpu.config[at + i] = (gpu.config[at + i] & ~mask) | (value & mask);
	}
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config_ops = {.read = config_read, .write = config_write};

/* Needs the kernel's lock of all PCI devices. */
static int bus_scan(void)
{
	struct pci_dev *device;
	LIST_HEAD(windows);

	pci_add_resource(&windows, &gpu.registers);
	pci_add_resource(&windows, &gpu.memory);
	gpu.bus = pci_scan_root_bus(NULL, GPU_BUS, &config_ops, &gpu.sysdata, &windows);
	if (!gpu.bus) {
		pci_free_resource_list(&windows);
		return -ENOMEM;
	}
	pci_bus_claim_resources(gpu.bus);
	device = pci_get_slot(gpu.bus, 0);
	if (!device)
		return -ENODEV;
	device->irq = INTERRUPT_LINE;
	pci_dev_put(device);
	pci_bus_add_devices(gpu.bus);
	return 0;
}

static void bus_remove(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(gpu.bus);
	pci_remove_root_bus(gpu.bus);
	pci_unlock_rescan_remove();
}

/* ---- coming and going ---- */

static int registers_init(void)
{
	void __iomem *at;

	if (region_intersects(registers, REGISTERS_SIZE, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	    REGION_DISJOINT) {
		pr_err("nvidia_gpu: the kernel uses the memory at %#lx: boot with "
		       "memmap=16M$%#lx\n",
		       registers, registers);
		return -EBUSY;
	}
	at = ioremap(registers, REGISTERS_SIZE);
	if (!at)
		return -ENOMEM;
	memset_io(at, 0, REGISTERS_SIZE);
	writel(BOOT_0_H100, at + BOOT_0);
	writel(BOOT_42_H100, at + BOOT_42);
	iounmap(at);
	return 0;
}

static void windows_init(void)
{
	gpu.registers = (struct resource)DEFINE_RES_MEM_NAMED(registers, REGISTERS_SIZE,
							      "nvidia_gpu registers");
	gpu.registers.flags |= IORESOURCE_PREFETCH | IORESOURCE_MEM_64;
	gpu.memory = (struct resource)DEFINE_RES_MEM_NAMED(
		pci_resource_start(gpu.ivshmem, IVSHMEM_BAR),
		pci_resource_len(gpu.ivshmem, IVSHMEM_BAR), "nvidia_gpu memory");
	gpu.memory.flags |= IORESOURCE_PREFETCH | IORESOURCE_MEM_64;
}

static int __init gpu_init(void)
{
	int error;

	if (!dmi_match(DMI_SYS_VENDOR, "QEMU")) {
		pr_err("nvidia_gpu: for a QEMU guest only, and this machine's vendor is '%s'\n",
		       dmi_get_system_info(DMI_SYS_VENDOR) ?: "unknown");
		return -ENODEV;
	}
	gpu.ivshmem = pci_get_device(PCI_REDHAT, PCI_IVSHMEM, NULL);
	if (!gpu.ivshmem || !pci_resource_len(gpu.ivshmem, IVSHMEM_BAR)) {
		pr_err("nvidia_gpu: no PCI device 1af4:1110 (ivshmem-plain) with memory in BAR "
		       "2\n");
		error = -ENODEV;
		goto put;
	}
	error = registers_init();
	if (error)
		goto put;
	windows_init();
	config_init();
	gpu.sysdata.domain = GPU_DOMAIN;
	gpu.sysdata.node = NUMA_NO_NODE;
	pci_lock_rescan_remove();
	error = bus_scan();
	pci_unlock_rescan_remove();
	if (!error)
		return 0;
	if (gpu.bus)
		bus_remove();
put:
	pci_dev_put(gpu.ivshmem);
	return error;
}

static void __exit gpu_exit(void)
{
	bus_remove();
	pci_dev_put(gpu.ivshmem);
}

module_init(gpu_init);
module_exit(gpu_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("A PCI GPU made in software, for pindown's test guest");
