/* SPDX-License-Identifier: MIT */
/* A library that takes its time while the loader relocates it; see loading.c. */
void loading_now(void);
__attribute__((visibility("default"))) void waits(void);

static void nothing(void)
{
}

/* clang does not see that the attribute below uses it. */
static __attribute__((used)) void (*chosen(void))(void)
{
	loading_now();
	return nothing;
}

static void chooses(void) __attribute__((ifunc("chosen")));

void waits(void)
{
	chooses();
}
