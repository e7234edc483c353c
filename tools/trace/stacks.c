// SPDX-License-Identifier: MIT
/*
 * A trace's call stacks and modules. Only the offset of each stack is kept: there may be tens of
 * thousands, of which few are used.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"
#include "tools/base/texts.h"
#include "tools/trace/record.h"
#include "tools/trace/file.h"

void trace_file_take_stack(struct trace_file *file, const uint64_t *words, uint64_t offset)
{
	file->stacks =
		grow(file->stacks, &file->stack_capacity, file->stack_count, sizeof(*file->stacks));
	file->stacks[file->stack_count++] =
		(struct trace_stack){(uint32_t)words[1], record_what(words[0]), offset};
}

void trace_file_take_module(struct trace_file *file, const uint64_t *words)
{
	struct pdn_trace_module head;
	struct trace_module *module;
	const char *behind;

	if (file->module_count > UINT16_MAX)
		return; /* numbers are 16 bits wide */
	memcpy(&head, words + 1, sizeof(head));
	behind = (const char *)(words + 1) + sizeof(head);
	file->modules = grow(file->modules, &file->module_capacity, file->module_count,
			     sizeof(*file->modules));
	module = &file->modules[file->module_count++];
	*module = (struct trace_module){.begin = head.begin,
					.end = head.end,
					.bias = head.bias,
					.number = record_what(words[0])};
	if (head.id_length <= sizeof(module->id)) {
		module->id_length = head.id_length;
		memcpy(module->id, behind, head.id_length);
	}
	module->path = text_printable(behind + ((head.id_length + 7u) & ~7u), head.path_length);
}

static int compare_stacks(const void *a, const void *b)
{
	const struct trace_stack *one = a, *other = b;

	if (one->number != other->number)
		return one->number < other->number ? -1 : 1;
	return (one->offset > other->offset) - (one->offset < other->offset);
}

static int compare_modules(const void *a, const void *b)
{
	const struct trace_module *one = a, *other = b;

	return (one->number > other->number) - (one->number < other->number);
}

void trace_file_sort_stacks(struct trace_file *file)
{
	sort(file->stacks, file->stack_count, sizeof(*file->stacks), compare_stacks);
	sort(file->modules, file->module_count, sizeof(*file->modules), compare_modules);
}

static int compare_number(const void *key, const void *element)
{
	uint32_t number = *(const uint32_t *)key,
		 other = ((const struct trace_stack *)element)->number;

	return (number > other) - (number < other);
}

unsigned trace_file_stack(const struct trace_file *file, uint32_t number, uint64_t *frames)
{
	uint64_t words[2 + PDN_TRACE_MAX_FRAMES];
	const struct trace_stack *stack = NULL;

	if (number && file->stack_count)
		stack = bsearch(&number, file->stacks, file->stack_count, sizeof(*stack),
				compare_number);
	/* It was good when the file was opened, but anyone may have written to the file since. */
	if (!stack || !trace_file_read(file, words, (2 + stack->frames) * 8ul, stack->offset) ||
	    record_type(words[0]) != PDN_RECORD_STACK || record_what(words[0]) != stack->frames)
		return 0;
	memcpy(frames, words + 2, stack->frames * 8ul);
	return stack->frames;
}

static int compare_module_number(const void *key, const void *element)
{
	unsigned number = *(const unsigned *)key,
		 other = ((const struct trace_module *)element)->number;

	return (number > other) - (number < other);
}

const struct trace_module *trace_file_module(const struct trace_file *file, unsigned number)
{
	if (!number || !file->module_count)
		return NULL;
	return bsearch(&number, file->modules, file->module_count, sizeof(*file->modules),
		       compare_module_number);
}

void trace_file_free_stacks(struct trace_file *file)
{
	for (unsigned i = 0; i < file->module_count; i++)
		release(file->modules[i].path);
	release(file->modules);
	release(file->stacks);
}
