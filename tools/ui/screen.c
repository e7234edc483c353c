// SPDX-License-Identifier: MIT
/* Draws a screen again and again, and reads single keys. */
#define _GNU_SOURCE
#include "tools/ui/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/base/out.h"

static struct termios before;
static volatile sig_atomic_t ended, stopped;

static void on_signal(int number)
{
	if (number == SIGTSTP)
		stopped = 1;
	else
		ended = 1;
}

static void catch_signals(void)
{
	static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP};
	struct sigaction action = {.sa_handler = on_signal};

	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaction(numbers[i], &action, NULL);
}

static void take_over(void)
{
	struct termios raw = before;

	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	out_control("\033[?1049h\033[?25l"); /* alternate screen, no cursor */
	out_flush();
}

bool screen_begin(void)
{
	if (!isatty(STDIN_FILENO) || !isatty(out.fd) || tcgetattr(STDIN_FILENO, &before) != 0)
		return false;
	catch_signals();
	take_over();
	return true;
}

void screen_end(void)
{
	out_control("\033[?25h\033[?1049l");
	out_flush();
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void screen_draw_begin(void)
{
	out_control("\033[H");
}

void screen_draw_end(void)
{
	out_control("\033[J");
	out_flush();
}

void screen_end_line(bool on_screen)
{
	if (on_screen)
		out_control("\033[K");
	out_print("\n");
}

unsigned screen_rows(void)
{
	struct winsize size;

	return ioctl(out.fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 3 ? size.ws_row : 24;
}

unsigned screen_columns(void)
{
	struct winsize size;

	return ioctl(out.fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : out.width;
}

/* Ctrl-Z: the shell gets the terminal until the command continues. */
static void stop(void)
{
	stopped = 0;
	screen_end();
	raise(SIGSTOP);
	take_over();
}

static unsigned interval = 2000; /* ms */

bool screen_take_interval(const char *text)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end != text && !*end && seconds >= 0.1 && seconds <= 3600) {
		interval = (unsigned)(seconds * 1000);
		return true;
	}
	complain("--interval %s: must be a number of seconds from 0.1 to 3600", text);
	return false;
}

int screen_key(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	char key = 0;

	if (!ended && !stopped && poll(&input, 1, (int)interval) > 0 &&
	    read(STDIN_FILENO, &key, 1) == 0)
		return 'q'; /* the terminal is gone */
	if (stopped)
		stop();
	return ended ? 'q' : key;
}
