// SPDX-License-Identifier: MIT
/* The driver as a module: the references that keep it loaded. */
#include "guest.h"

static unsigned long users_of_driver(void)
{
	return number_in(gpu_is_nvidias() ? "/sys/module/nvidia/refcnt"
					  : "/sys/module/sim_gpu/refcnt");
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
