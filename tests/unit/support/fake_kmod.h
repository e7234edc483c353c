/* SPDX-License-Identifier: MIT */
/*
 * A scripted pindown.ko for the cache's unit tests. /dev/pindown is a memory file whose bytes are
 * the state area, and this process answers the device's calls. It pins what the NVIDIA driver's
 * interface pins: memory of the scripted CUDA driver (fake_driver.h), one allocation at a time.
 */
#ifndef FAKE_KMOD_H
#define FAKE_KMOD_H

#include <stdint.h>

/* From now on the module is loaded. */
void fake_kmod_load(void);

/* Before the load: the module is of a release with this ABI, and with these calls less. */
void fake_kmod_is_of_abi(uint32_t abi, uint64_t lacks);

/* What is pinned now. */
unsigned fake_kmod_pins(void);
uint64_t fake_kmod_bytes(void);

/* How often a pin was asked for. */
unsigned fake_kmod_calls(void);

/* From the nth pin on (0: the next one), `times` pins fail with this errno. */
void fake_kmod_fail(unsigned nth, unsigned times, int error);

/* At most this many bytes can be pinned at once. */
void fake_kmod_space(uint64_t bytes);

/* The next waits for the space of other processes are ended by a signal each. */
void fake_kmod_signals(unsigned times);

/* At the nth pin from now fn runs, once, before anything is looked at. */
void fake_kmod_at_pin(unsigned nth, void (*fn)(void));

/* The device's last descriptor and mapping are gone, and all pins with them. */
void fake_kmod_last_close(void);

/* The memory at this address is freed without the cache's knowledge: its pins are revoked. */
void fake_kmod_revoke(uint64_t addr);

#endif
