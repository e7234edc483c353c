/* SPDX-License-Identifier: MIT */
/* A library whose opening and closing take time; see forked.c. */
void forked_in_constructor(void);
void forked_in_destructor(void);

__attribute__((constructor)) static void opened(void)
{
	forked_in_constructor();
}

__attribute__((destructor)) static void closed(void)
{
	forked_in_destructor();
}
