// SPDX-License-Identifier: MIT
/*
 * Draws a flame graph: a box for each function on a call stack, as wide as the bytes that it and
 * the functions that it called allocated. The boxes are text of the page, so that they stay
 * readable on a narrow screen; narrow ones show their text in a tooltip.
 */
#include <string.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"
#include "tools/report/html.h"
#include "tools/report/html_sections.h"
#include "tools/trace/symbols.h"

enum { MAX_STACKS = 1000, MAX_CHAIN = 48, ROW = 20 /* pixels, as in page.css */, NONE = 0 };

struct box {
	char *text;
	uint64_t bytes;
	unsigned first, next; /* indexes of a child and of a sibling; NONE: there is none */
	unsigned depth;
};

/* boxes[0] is everything. */
struct tree {
	struct box *boxes;
	unsigned count, capacity, depth;
};

/* ---- the tree ------------------------------------------------------------------------------- */

static unsigned add_box(struct tree *tree, const char *text, unsigned depth)
{
	tree->boxes = grow(tree->boxes, &tree->capacity, tree->count, sizeof(*tree->boxes));
	tree->boxes[tree->count] = (struct box){.text = text_of("%s", text), .depth = depth};
	if (depth > tree->depth)
		tree->depth = depth;
	return tree->count++;
}

static unsigned child_of(struct tree *tree, unsigned parent, const char *text)
{
	unsigned i = tree->boxes[parent].first;

	while (i != NONE && strcmp(tree->boxes[i].text, text) != 0)
		i = tree->boxes[i].next;
	if (i != NONE)
		return i;
	i = add_box(tree, text, tree->boxes[parent].depth + 1);
	tree->boxes[i].next = tree->boxes[parent].first;
	tree->boxes[parent].first = i;
	return i;
}

static uint64_t bytes_of(const struct stack_memory *stack, enum flame flame)
{
	return flame == FLAME_AT_PEAK ? stack->at_peak : stack->unfreed;
}

static void add_stack(struct tree *tree, const struct trace_file *file,
		      const struct stack_memory *stack, uint64_t bytes)
{
	const char *call = trace_file_call(file, stack->call);
	struct place places[MAX_CHAIN];
	unsigned count = stack->stack ? symbols_chain(file, stack->stack, places, MAX_CHAIN) : 0;
	char text[PLACE_TEXT_SIZE];
	unsigned box = 0;

	tree->boxes[box].bytes += bytes;
	while (count-- > 0) {
		box = child_of(tree, box, place_text(&places[count], text));
		tree->boxes[box].bytes += bytes;
	}
	box = child_of(tree, box, call && strlen(call) < PLACE_TEXT_SIZE ? call : "(unknown)");
	tree->boxes[box].bytes += bytes;
}

/* A stack and its bytes; a comparison for sort() knows nothing of what it sorts by. */
struct ranked {
	const struct stack_memory *stack;
	uint64_t bytes;
};

static int compare_bytes(const void *a, const void *b)
{
	const struct ranked *one = a, *other = b;

	if (one->bytes != other->bytes)
		return one->bytes > other->bytes ? -1 : 1;
	return (one->stack > other->stack) - (one->stack < other->stack);
}

/* The stacks with most bytes by name, and the others together. */
static struct tree make_tree(const struct reader *reader, const struct allocations *all,
			     enum flame flame)
{
	struct ranked *ranked = allocate((all->stack_count + 1) * sizeof(*ranked));
	struct tree tree = {0};
	uint64_t others = 0;

	add_box(&tree, "all allocations", 0);
	for (unsigned i = 0; i < all->stack_count; i++)
		ranked[i] = (struct ranked){&all->stacks[i], bytes_of(&all->stacks[i], flame)};
	sort(ranked, all->stack_count, sizeof(*ranked), compare_bytes);
	for (unsigned i = 0; i < all->stack_count && ranked[i].bytes; i++) {
		if (i >= MAX_STACKS)
			others += ranked[i].bytes;
		else
			add_stack(&tree, reader_file(reader, ranked[i].stack->file),
				  ranked[i].stack, ranked[i].bytes);
	}
	if (others) {
		tree.boxes[child_of(&tree, 0, "other stacks")].bytes = others;
		tree.boxes[0].bytes += others;
	}
	release(ranked);
	return tree;
}

/* ---- drawing -------------------------------------------------------------------------------- */

/* `left` and the widths are percentages. A box that nobody could see is left out. */
static void put_box(FILE *page, const struct tree *tree, unsigned i, double left)
{
	const struct box *box = &tree->boxes[i];
	double whole = (double)tree->boxes[0].bytes, width = 100.0 * (double)box->bytes / whole;

	if (width < 0.05)
		return;
	fprintf(page, "<div%s style=\"left:%.2f%%;width:%.2f%%;bottom:%upx\" title=\"",
		width < 3 ? " class=\"narrow\"" : "", left, width, box->depth * ROW);
	html_text(page, box->text);
	fprintf(page, ": %s, %.1f %%\">", bytes_text(box->bytes).text, width);
	html_text(page, box->text);
	fputs("</div>\n", page);
	for (unsigned child = box->first; child != NONE; child = tree->boxes[child].next) {
		put_box(page, tree, child, left);
		left += 100.0 * (double)tree->boxes[child].bytes / whole;
	}
}

void html_flame(FILE *page, const struct reader *reader, const struct allocations *all,
		enum flame flame)
{
	struct tree tree = make_tree(reader, all, flame);
	bool at_peak = flame == FLAME_AT_PEAK;

	if (tree.boxes[0].bytes) {
		fprintf(page,
			"<h2>%s</h2>\n<p class=\"dim\">%s. A box is as wide as the bytes that a "
			"function and those above it, which it called, have allocated.</p>\n"
			"<div class=\"flame%s\" role=\"img\" aria-label=\"flame graph\" "
			"style=\"height:%upx\">\n",
			at_peak ? "Allocations at the peak, by caller"
				: "Allocations that no call freed, by caller",
			bytes_text(tree.boxes[0].bytes).text, at_peak ? "" : " u",
			(tree.depth + 1) * ROW + 2);
		put_box(page, &tree, 0, 0);
		fputs("</div>\n", page);
	}
	for (unsigned i = 0; i < tree.count; i++)
		release(tree.boxes[i].text);
	release(tree.boxes);
}
