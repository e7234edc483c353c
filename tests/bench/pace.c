// SPDX-License-Identifier: MIT
/* pace: how long a fixed computation takes here and now, in ns (pace.h): the median of many. */
#include "pace.h"

int main(void)
{
	for (unsigned i = 0; i < PACE_LOOKS; i++)
		pace_look();
	printf("%.1f\n", pace_since());
	return 0;
}
