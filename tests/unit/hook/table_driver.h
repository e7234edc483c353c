/* SPDX-License-Identifier: MIT */
/* The functions that test_table_lookup needs of its driver, besides those of every driver. */
#ifndef TABLE_DRIVER_H
#define TABLE_DRIVER_H

/* Functions newer than this are missing. */
extern int table_driver_age;

/* What the driver finds when it looks up one of its own functions. */
void *table_driver_finds(const char *name);

#endif
