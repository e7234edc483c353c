// SPDX-License-Identifier: MIT
/* Output for people: the list of pins, tracepoints, the log. And calls of 32-bit programs. */
#include <fcntl.h>
#include <sys/klog.h>

#include "guest.h"

#define DEBUG	"/sys/kernel/debug/pindown/"
#define TRACING "/sys/kernel/tracing/"

static char *content(const char *path)
{
	static char text[1 << 18];
	size_t length = 0;
	ssize_t more;
	int fd = open(path, O_RDONLY);

	works(fd);
	while ((more = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += more;
	works(more);
	text[length] = 0;
	close(fd);
	return text;
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	works(fd);
	works(write(fd, text, strlen(text)));
	close(fd);
}

TEST(who_pins_what)
{
	struct memory memory = gpu_alloc(3 * PAGE, 0);
	int fd = pdn_open();
	struct pindown_pin pin;
	char line[64], *found;

	works(pdn_pin(fd, memory.va, memory.size, PINDOWN_PIN_PERSISTENT, &pin));
	snprintf(line, sizeof(line), "%7d %7u %#14llx %12llu", getpid(), pin.region,
		 (unsigned long long)memory.va, (unsigned long long)memory.size);
	found = strstr(content(DEBUG "regions"), line);
	if (!found)
		fail("no line '%s' in:\n%s", line, content(DEBUG "regions"));
	*strchrnul(found, '\n') = 0;
	check(strstr(found, "persistent") && strstr(found, "live"));
	works(pdn_unpin(fd, pin.region));
	check(!strstr(content(DEBUG "regions"), line));
}

TEST(a_revoked_region_is_shown_as_such)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open();
	struct pindown_pin pin;

	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	gpu_free(&memory);
	check(strstr(content(DEBUG "regions"), "revoked"));
}

TEST(only_root_sees_the_lists)
{
	check(setuid(12345) == 0);
	check(open(DEBUG "regions", O_RDONLY) < 0);
	check(open(DEBUG "counters", O_RDONLY) < 0);
}

TEST(any_user_can_open_the_device)
{
	/*
	 * Its rule in udev sets the mode, and the guest does not run udev: so this only checks that
	 * a descriptor works for a process without privileges.
	 */
	int fd = pdn_open(), gpu_fd = gpu();
	struct pindown_pin pin;
	struct memory memory = gpu_alloc(PAGE, 0);

	check(gpu_fd >= 0 && setuid(12345) == 0);
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	works(pdn_unpin(fd, pin.region));
}

static unsigned lines_with(const char *text, const char *a, const char *b)
{
	unsigned count = 0;
	const char *line, *end;

	for (line = text; *line; line = end + !!*end) {
		end = strchrnul(line, '\n');
		count += memmem(line, end - line, a, strlen(a)) &&
			 memmem(line, end - line, b, strlen(b));
	}
	return count;
}

TEST(tracepoints)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open(), peer, buffer;
	struct edu_import import;
	struct pindown_pin pin, other;
	char region[32];
	const char *trace;

	if (access(TRACING "events/pindown/enable", W_OK))
		test_skipped("no tracing in this kernel");
	put(TRACING "trace", "");
	put(TRACING "events/pindown/enable", "1");
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	works(pdn_pin(fd, memory.va, PAGE, 0, &other));
	buffer = pdn_export(fd, pin.region);
	works(buffer);
	peer = peer_open();
	works(peer_import(peer, buffer, EDU_DYNAMIC, &import));
	works(pdn_unpin(fd, other.region));
	gpu_free(&memory);
	put(TRACING "events/pindown/enable", "0");
	trace = content(TRACING "trace");
	snprintf(region, sizeof(region), "region=%u ", pin.region);
	check_equal(lines_with(trace, "pindown_pin:", region), 1);
	check_equal(lines_with(trace, "pindown_export:", region), 1);
	check_equal(lines_with(trace, "pindown_attach:", region), 1);
	check_equal(lines_with(trace, "pindown_revoke:", region), 1);
	snprintf(region, sizeof(region), "region=%u ", other.region);
	check_equal(lines_with(trace, "pindown_unpin:", region), 1);
	check_equal(lines_with(trace, "pindown_revoke:", region), 0);
	put(TRACING "trace", "");
}

/* A failing pin is logged; the log has no addresses of the kernel. */
TEST(the_log)
{
	static char log[1 << 20];
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open(), length;
	char *line, *end;
	struct pindown_pin pin;

	gpu_set(SIM_GPU_TABLE_MAJOR, 3);
	check(pdn_pin(fd, memory.va, PAGE, 0, &pin) < 0);
	length = klogctl(3, log, sizeof(log) - 1);
	works(length);
	log[length] = 0;
	check(strstr(log, "pindown: page table of the driver has version 0x30000"));
	for (line = log; (line = strstr(line, "pindown: ")); line = end) {
		end = strchrnul(line, '\n');
		if (memmem(line, end - line, "ffff8", 5) || memmem(line, end - line, "ffffc", 5) ||
		    memmem(line, end - line, "ffffffff", 8))
			fail("an address in the log: %.*s", (int)(end - line), line);
	}
}

/* ---- 32-bit programs: the same calls, through the old gate, with the argument below 4 GiB ---- */

#ifdef __x86_64__
static int ioctl32(int fd, unsigned long number, void *argument)
{
	int result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(54), "b"(fd), "c"((uint32_t)number),
			   "d"((uint32_t)(uintptr_t)argument)
			 : "memory", "r8", "r9", "r10", "r11");
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

static void *below_4_gib(size_t size)
{
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	check(map != MAP_FAILED);
	return map;
}
#else
#define ioctl32 ioctl
static void *below_4_gib(size_t size)
{
	(void)size;
	test_skipped("only on x86 a 64-bit program can make calls of a 32-bit one");
}
#endif

TEST(a_32_bit_program)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	struct pindown_version *version = below_4_gib(sizeof(*version));
	struct pindown_pin *pin = (void *)version;
	struct pindown_unpin *unpin = (void *)version;
	uint32_t region;

	*version = (struct pindown_version){.size = sizeof(*version)};
	if (ioctl32(fd, PINDOWN_IOC_VERSION, version) < 0)
		test_skipped("this kernel runs no 32-bit programs");
	check_equal(version->abi, PINDOWN_ABI);
	*pin = (struct pindown_pin){.size = sizeof(*pin), .address = memory.va, .length = PAGE};
	works(ioctl32(fd, PINDOWN_IOC_PIN, pin));
	check(pdn_valid(state, pin));
	check_equal(pin->page_count, 1);
	region = pin->region;
	*unpin = (struct pindown_unpin){.size = sizeof(*unpin), .region = region};
	works(ioctl32(fd, PINDOWN_IOC_UNPIN, unpin));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	fails_with(ioctl32(fd, PINDOWN_IOC_UNPIN, unpin), ENOENT);
}
