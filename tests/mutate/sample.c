// SPDX-License-Identifier: MIT
/* Not compiled: the faults that mutate finds here are in the file `expected`. */
#define NOT_HERE(x)          \
	do {                 \
		if (x > 1)   \
			y(); \
	} while (0)

static const int table[] = {1, 2};

static int f(char *text, int count)
{
	char buffer[16]; /* not < here */
	const char *said = "a < b && c(1);";

	if (count >= 2 && !text[0])
		free(text);
	for (int i = 0; i < count; i++)
		table[i] = buffer[i] + 3;
	return -count;
}
