/* SPDX-License-Identifier: MIT */
/* The demo's network card: reads memory by its dma-buf, without knowing whose memory it is. */
#ifndef DEMO_CARD_H
#define DEMO_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: nothing here can read through this dma-buf. */
bool demo_card_read(int dmabuf, uint64_t offset, void *bytes, size_t length);

#endif
