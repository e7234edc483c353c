/* SPDX-License-Identifier: MIT */
/*
 * A scripted pindown.ko for the cache's unit tests: /dev/pindown is a memory file, whose bytes are
 * the state area, and its calls are answered in this process. It pins what the NVIDIA driver's
 * interface pins: memory of the scripted CUDA driver (fake_driver.h), of one allocation at a time.
 */
#ifndef FAKE_KMOD_H
#define FAKE_KMOD_H

#include <stdint.h>

/* From now on the module is there. */
void fake_kmod_load(void);

/* What is pinned now. */
unsigned fake_kmod_pins(void);
uint64_t fake_kmod_bytes(void);

/* How many calls to pin there were. */
unsigned fake_kmod_calls(void);

/* The nth pin from now (0: the next) fails with this errno, and so do all from then on for `times`. */
void fake_kmod_fail(unsigned nth, unsigned times, int error);

/* At most so many bytes are pinned at once. */
void fake_kmod_space(uint64_t bytes);

/* At the nth pin from now fn runs, before anything is looked at; once. */
void fake_kmod_at_pin(unsigned nth, void (*fn)(void));

/* The device's last descriptor and mapping are gone, and with them all pins. */
void fake_kmod_last_close(void);

/* The memory at this address is freed behind the cache's back: what is pinned of it is revoked. */
void fake_kmod_revoke(uint64_t addr);

#endif
