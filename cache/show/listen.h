/* SPDX-License-Identifier: MIT */
/* The thread that waits for `pindown quiesce` (PINDOWN_QUIESCE). For page.c only. */
#ifndef PDN_LISTEN_H
#define PDN_LISTEN_H

#include "cache/show/format.h"

/* Lock not held. Starts the thread, which waits at this page until it has answered. */
void pdn_top_listen(struct pdn_top_page *page);

#endif
