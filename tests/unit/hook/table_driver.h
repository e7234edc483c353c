/* SPDX-License-Identifier: MIT */
/* The functions that test_table_lookup needs of its driver, besides those of every driver. */
#ifndef TABLE_DRIVER_H
#define TABLE_DRIVER_H

/* Functions that are younger than this are not there. */
extern int table_driver_age;

/* What the driver finds when it looks one of its own functions up. */
void *table_driver_finds(const char *name);

#endif
