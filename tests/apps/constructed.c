/* SPDX-License-Identifier: MIT */
/* A program that only calls a library; see early.c. */
void early_used(void);

int main(void)
{
	early_used();
	return 0;
}
