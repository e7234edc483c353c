// SPDX-License-Identifier: MIT
/* The driver as a module: the references that keep it loaded, and the effects of its version. */
#include "guest.h"

/* A file in sysfs of the module that exports the driver's calls. */
static unsigned long driver_number(const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/module/%s/%s", gpu_is_nvidias() ? "nvidia" : "sim_gpu",
		 file);
	return number_in(path);
}

static unsigned long users_of_driver(void)
{
	return driver_number("refcnt");
}

/* Until then `rmmod` of the driver fails, without naming a user. */
static void driver_is_let_go(unsigned long before)
{
	wait_until(users_of_driver() == before);
}

TEST(the_driver_is_kept_while_the_device_is_open)
{
	unsigned long before = (gpu(), users_of_driver()), one;
	int first = pdn_open(), second;

	one = users_of_driver();
	check(one > before);
	second = pdn_open();
	check_equal(users_of_driver(), one);
	works(close(first));
	check_equal(users_of_driver(), one);
	works(close(second));
	driver_is_let_go(before);
	works(close(pdn_open()));
	driver_is_let_go(before);
}

TEST(an_exported_region_keeps_the_driver)
{
	unsigned long before = (gpu(), users_of_driver());
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open(), buffer;
	struct pindown_pin pin;

	works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
	buffer = pdn_export(fd, pin.region);
	works(buffer);
	works(close(fd));
	check(users_of_driver() > before);
	works(close(buffer));
	driver_is_let_go(before);
	gpu_free(&memory);
}

/* A process that can't unpin closes the last descriptor. Then the free ends the region. */
TEST(an_orphan_keeps_the_driver)
{
	unsigned long before = (gpu(), users_of_driver());
	struct memory memory = gpu_alloc(PAGE, 0);
	int pair[2], fd = pdn_open();
	struct pindown_pin pin;
	pid_t child;

	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	works(pipe(pair));
	child = fork();
	works(child);
	if (child == 0) {
		char byte;

		/* Until the parent has closed its own. */
		works(close(pair[1]));
		works(read(pair[0], &byte, 1));
		works(close(fd));
		_exit(0);
	}
	works(close(fd));
	works(close(pair[0]));
	works(close(pair[1]));
	child_ends(child);
	check(users_of_driver() > before);
	gpu_free(&memory);
	driver_is_let_go(before);
}

/* Drivers before 570 return EINVAL, which does not tell the reason. */
TEST(bar1_is_forced_by_a_driver_that_can)
{
	bool can = driver_number("version") >= 570;
	struct pindown_version version = {.size = sizeof(version)};
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	works(ioctl(fd, PINDOWN_IOC_VERSION, &version));
	check_equal(!!(version.capabilities & PINDOWN_CAP_FORCE_BAR1), can);
	if (can)
		works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_FORCE_BAR1,
			      &pin));
	else
		fails_with(pdn_pin(fd, memory.va, PAGE,
				   PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_FORCE_BAR1, &pin),
			   EOPNOTSUPP);
	works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
}
