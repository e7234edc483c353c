/* SPDX-License-Identifier: MIT */
/* A program whose calls are all made by a library that it is linked with. */
#include "app.h"

int main(int argc, char **argv)
{
	return app_main(argc, argv, 1);
}
