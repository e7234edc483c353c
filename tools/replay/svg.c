// SPDX-License-Identifier: MIT
/* Draws the results of pindown replay as an SVG picture. */
#include "tools/replay/svg.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/base/out.h"

enum { WIDTH = 720, HEIGHT = 300, LEFT = 90, RIGHT = 110, TOP = 40, BOTTOM = 50 };

static const char *const colours[] = {"#1f6f8b", "#b3452c", "#4d7c2a", "#8a6d1f"};
enum { COLOURS = sizeof(colours) / sizeof(colours[0]) };

struct plot {
	const struct replay_result *results;
	unsigned count;
	uint64_t min_bytes, max_bytes, max_ns;
	FILE *file;
};

static double hit_share(const struct plot *plot, unsigned i)
{
	return plot->results[i].gets ? (double)plot->results[i].hits / (double)plot->results[i].gets
				     : 0;
}

static double pin_share(const struct plot *plot, unsigned i)
{
	return plot->max_ns ? (double)plot->results[i].pin_ns / (double)plot->max_ns : 0;
}

static double x_of(const struct plot *plot, uint64_t bytes)
{
	double range = (double)(plot->max_bytes - plot->min_bytes);
	double share = range > 0 ? (double)(bytes - plot->min_bytes) / range : 0.5;

	return LEFT + (WIDTH - LEFT - RIGHT) * share;
}

static double y_of(double top, double share)
{
	return top + TOP + (HEIGHT - TOP - BOTTOM) * (1 - share);
}

static void draw_frame(const struct plot *plot, double top, const char *title, const char *max)
{
	fprintf(plot->file, "<text x=\"%d\" y=\"%.0f\" font-size=\"15\">%s</text>\n", LEFT,
		top + 22, title);
	for (unsigned quarter = 0; quarter <= 4; quarter++)
		fprintf(plot->file,
			"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n",
			LEFT, WIDTH - RIGHT, y_of(top, quarter / 4.0), y_of(top, quarter / 4.0));
	fprintf(plot->file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">0</text>\n", LEFT - 8,
		y_of(top, 0) + 4);
	fprintf(plot->file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
		y_of(top, 1) + 4, max);
	for (unsigned i = 0; i < plot->count; i++)
		if (i == 0 || plot->results[i].max_bytes != plot->results[i - 1].max_bytes)
			fprintf(plot->file,
				"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
				x_of(plot, plot->results[i].max_bytes), y_of(top, 0) + 20,
				bytes_text(plot->results[i].max_bytes).text);
}

static bool is_first_of_policy(const struct plot *plot, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (plot->results[j].policy == plot->results[i].policy)
			return false;
	return true;
}

static void draw_curve(const struct plot *plot, double top, unsigned first, unsigned place,
		       double share(const struct plot *, unsigned))
{
	const char *policy = plot->results[first].policy;

	fprintf(plot->file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
		colours[place % COLOURS]);
	for (unsigned i = first; i < plot->count; i++)
		if (plot->results[i].policy == policy)
			fprintf(plot->file, "%.1f,%.1f ", x_of(plot, plot->results[i].max_bytes),
				y_of(top, share(plot, i)));
	fprintf(plot->file, "\"/>\n");
	fprintf(plot->file, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">%s</text>\n", WIDTH - RIGHT + 12,
		top + TOP + 14 + 18 * place, colours[place % COLOURS], policy);
}

static void draw_curves(const struct plot *plot, double top,
			double share(const struct plot *, unsigned))
{
	unsigned place = 0;

	for (unsigned i = 0; i < plot->count; i++)
		if (is_first_of_policy(plot, i))
			draw_curve(plot, top, i, place++, share);
}

static void measure(struct plot *plot)
{
	plot->min_bytes = UINT64_MAX;
	for (unsigned i = 0; i < plot->count; i++) {
		const struct replay_result *result = &plot->results[i];

		if (result->max_bytes < plot->min_bytes)
			plot->min_bytes = result->max_bytes;
		if (result->max_bytes > plot->max_bytes)
			plot->max_bytes = result->max_bytes;
		if (result->pin_ns > plot->max_ns)
			plot->max_ns = result->pin_ns;
	}
}

bool replay_svg(const char *path, const struct replay_result *results, unsigned count)
{
	struct plot plot = {.results = results, .count = count, .file = fopen(path, "w")};
	bool ok = plot.file != NULL;

	if (ok) {
		measure(&plot);
		fprintf(plot.file,
			"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
			"font-family=\"sans-serif\" font-size=\"12\">\n"
			"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
			WIDTH, 2 * HEIGHT);
		draw_frame(&plot, 0, "Hit ratio against the budget", "100 %");
		draw_curves(&plot, 0, hit_share);
		draw_frame(&plot, HEIGHT, "Time in pins against the budget",
			   duration_text(plot.max_ns).text);
		draw_curves(&plot, HEIGHT, pin_share);
		fprintf(plot.file, "</svg>\n");
		ok = !ferror(plot.file);
		ok = fclose(plot.file) == 0 && ok;
	}
	if (!ok)
		complain("%s: %s", path, strerror(errno));
	return ok;
}
