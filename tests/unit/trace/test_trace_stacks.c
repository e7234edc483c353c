// SPDX-License-Identifier: MIT
/*
 * Call stacks: of ordinary functions, which keep no frame pointer, and in places where a careless
 * walk would read memory that is not there. The module of the tests is not libpindown.so, so the
 * stacks also contain the writer's frames, before the frames that the tests look for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "cache/hook_events.h"
#include "cache/base/thread/thread.h"
#include "cache/trace/stack/modules.h"
#include "cache/trace/stack/stack.h"
#include "cache/trace/stack/unwind.h"
#include "tests/unit/support/trace_test.h"

/* Where the functions below must return to, outermost first. */
static uint64_t returns[100];
static unsigned depth;
#define ANYWHERE 1

static void mark(void *address)
{
	returns[depth++] = (uint64_t)(uintptr_t)address;
}

/* The barriers keep the compiler from turning calls into jumps. */
#define FUNCTION __attribute__((noinline)) static
#define HERE	 mark(__builtin_return_address(0))
#define BEHIND	 __asm__ volatile("" ::: "memory")

FUNCTION void make_event(void)
{
	HERE;
	call_at(0x1000);
	BEHIND;
}

FUNCTION void inner(unsigned more)
{
	HERE;
	if (more)
		inner(more - 1);
	else
		make_event();
	BEHIND;
}

/* Its frame has no fixed size, so the compiler keeps a frame pointer. */
FUNCTION void with_array(size_t size)
{
	volatile char array[size];

	HERE;
	array[0] = array[size - 1] = 1;
	inner(1);
	BEHIND;
}

FUNCTION void outer(void)
{
	HERE;
	with_array(100 + depth);
	BEHIND;
}

static void stacks(const char *max)
{
	depth = 0;
	if (max)
		setenv("PINDOWN_TRACE_STACKS", max, 1);
	pdn_trace_open();
}

/* The address in this process that a frame stands for. */
static uint64_t address_of(const struct trace_file *file, uint64_t frame)
{
	const struct trace_module *module =
		trace_file_module(file, (unsigned)(frame >> PDN_FRAME_OFFSET_BITS));

	if (!(frame >> PDN_FRAME_OFFSET_BITS))
		return frame;
	ck_assert_ptr_nonnull(module);
	return (frame & ((1ull << PDN_FRAME_OFFSET_BITS) - 1)) + module->bias;
}

static uint64_t frames[PDN_TRACE_MAX_FRAMES];

static unsigned frames_of(const struct event *event)
{
	unsigned count = trace_file_stack(event->file, event->record.stack, frames);

	for (unsigned i = 0; i < count; i++)
		frames[i] = address_of(event->file, frames[i]);
	return count;
}

/* The event's stack has the marked functions, one after the other. */
static void is_complete(const struct event *event)
{
	unsigned count = frames_of(event), at = 0;

	while (at < count && frames[at] != returns[depth - 1])
		at++;
	ck_assert_msg(at + depth <= count, "%u frames, of which %u are expected", count, depth);
	for (unsigned i = 0; i < depth; i++)
		if (returns[depth - 1 - i] != ANYWHERE)
			ck_assert_uint_eq(frames[at + i], returns[depth - 1 - i]);
}

START_TEST(ordinary_functions)
{
	stacks("64");
	outer();
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 1);
	is_complete(&events[0]);
}
END_TEST

START_TEST(none_unless_asked_for)
{
	stacks(NULL);
	outer();
	read_back("t.pdt");
	ck_assert_uint_eq(events[0].record.stack, 0);
	ck_assert_uint_eq(events[0].file->stack_count, 0);
}
END_TEST

START_TEST(at_most_that_many)
{
	stacks("3");
	outer();
	read_back("t.pdt");
	ck_assert_uint_eq(frames_of(&events[0]), 3);
}
END_TEST

START_TEST(written_once)
{
	stacks("64");
	for (unsigned i = 0; i < 100; i++) {
		depth = 0;
		inner(i % 4);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 100);
	ck_assert_uint_eq(events[0].file->stack_count, 4);
	for (unsigned i = 4; i < 100; i++)
		ck_assert_uint_eq(events[i].record.stack, events[i % 4].record.stack);
}
END_TEST

START_TEST(not_for_hits)
{
	struct pdn_trace_region what = {.addr = 1, .size = 1};

	setenv("PINDOWN_TRACE_EVENTS", "all", 1);
	stacks("64");
	call_at(1);
	pdn_trace_region(PDN_EV_HIT, &what, 0, pdn_ticks());
	pdn_trace_region(PDN_EV_PIN, &what, 0, pdn_ticks());
	pdn_trace_error("wrong", 0, 0, 1);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(events[i].record.stack != 0, events[i].record.event != PDN_EV_HIT);
}
END_TEST

static void *in_thread(void *nothing)
{
	(void)nothing;
	depth = 0;
	outer();
	return NULL;
}

START_TEST(other_threads)
{
	pthread_t thread;

	stacks("64");
	for (unsigned i = 0; i < 3; i++) {
		pthread_create(&thread, NULL, in_thread, NULL);
		pthread_join(thread, NULL);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 3);
	for (unsigned i = 0; i < 3; i++)
		is_complete(&events[i]);
}
END_TEST

/* ---- stacks that are not the thread's ------------------------------------------------------- */

static ucontext_t main_context, other_context;

static void coroutine(void)
{
	outer();
	swapcontext(&other_context, &main_context);
}

/* Memory on either side of it can't be read. */
static char *guarded_stack(size_t bytes)
{
	char *map = mmap(NULL, bytes + 2 * 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_int_eq(mprotect(map + 65536, bytes, PROT_READ | PROT_WRITE), 0);
	return map + 65536;
}

START_TEST(a_coroutine)
{
	stacks("64");
	call_at(1);
	ck_assert_int_eq(getcontext(&other_context), 0);
	other_context.uc_stack.ss_sp = guarded_stack(65536);
	other_context.uc_stack.ss_size = 65536;
	other_context.uc_link = NULL;
	makecontext(&other_context, coroutine, 0);
	ck_assert_int_eq(swapcontext(&main_context, &other_context), 0);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2);
	is_complete(&events[1]);
}
END_TEST

static void on_signal(int number)
{
	(void)number;
	outer();
	BEHIND;
}

START_TEST(a_signal_handler)
{
	stack_t stack = {.ss_sp = guarded_stack(65536), .ss_size = 65536};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

	stacks("64");
	call_at(1);
	ck_assert_int_eq(sigaltstack(&stack, NULL), 0);
	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	raise(SIGUSR1);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2);
	is_complete(&events[1]);
}
END_TEST

/* Deeper than one look reaches: the stack of the first thread grows meanwhile. */
FUNCTION void far_down(unsigned pages)
{
	volatile char page[4096];

	page[0] = (char)pages;
	if (pages)
		far_down(pages - 1);
	else
		outer();
	BEHIND;
	depth += page[0] != (char)pages;
}

START_TEST(a_deep_stack)
{
	stacks("64");
	outer();
	depth = 0;
	far_down(20);
	depth = 0;
	far_down(600);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 3);
	is_complete(&events[2]);
}
END_TEST

/* ---- unwind information that compilers do not write ---- */

#if defined(__x86_64__)

/* One function of 64 bytes, its index, and its entry, which ends with some instructions. */
struct unwound {
	uint8_t code[64];
	struct {
		uint8_t form[4];
		int32_t frame;
		uint32_t count;
		int32_t function, entry;
	} index;
	/* Its return address is on top of the stack: CFA = stack pointer + 8. */
	struct {
		uint32_t length, id;
		uint8_t rest[16];
	} common;
	struct {
		uint32_t length, common;
		int32_t function;
		uint32_t bytes;
		uint8_t rest[8]; /* the augmentation's length, 0, and the instructions */
	} entry;
};

static int32_t between(const void *from, const void *to)
{
	return (int32_t)((const char *)to - (const char *)from);
}

/* The rule in the function when its entry has these instructions (the others are nops). */
static struct pdn_rule rule_after(const char *instructions, size_t count)
{
	static const uint8_t common[16] = {
		1,    'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, /* addresses: 4 bytes, from their place */
		0x0c, 7,   8,				 /* def_cfa: rsp + 8 */
		0x90, 1};				 /* the return address: at CFA - 8 */
	static struct unwound all;

	all = (struct unwound){.index = {.form = {1, 0x1b, 0x03, 0x3b}, .count = 1}};
	all.index.function = between(&all.index, all.code);
	all.index.entry = between(&all.index, &all.entry);
	all.common.length = sizeof(all.common) - 4;
	memcpy(all.common.rest, common, sizeof(common));
	all.entry.length = sizeof(all.entry) - 4;
	all.entry.common = (uint32_t)between(&all.common, &all.entry.common);
	all.entry.function = between(&all.entry.function, all.code);
	all.entry.bytes = sizeof(all.code);
	ck_assert_uint_lt(count, sizeof(all.entry.rest));
	memcpy(all.entry.rest + 1, instructions, count);
	return pdn_unwind_rule((uint64_t)(uintptr_t)&all.index, sizeof(all.index),
			       (uint64_t)(uintptr_t)all.code + 8);
}

#define RULE_AFTER(instructions) rule_after(instructions, sizeof(instructions) - 1)

START_TEST(instructions_that_are_rare)
{
	struct pdn_rule rule = RULE_AFTER("");

	ck_assert_int_eq(rule.step, PDN_STEP_STACK);
	ck_assert_int_eq(rule.cfa, 8);
	rule = RULE_AFTER("\x12\x07\x7d"); /* def_cfa_sf: rsp - 3 * -8 */
	ck_assert_int_eq(rule.step, PDN_STEP_STACK);
	ck_assert_int_eq(rule.cfa, 24);
	rule = RULE_AFTER("\x13\x7c"); /* def_cfa_offset_sf */
	ck_assert_int_eq(rule.cfa, 32);
	rule = RULE_AFTER("\x0a\x0e\x30\x0b"); /* remember_state, def_cfa_offset, restore_state */
	ck_assert_int_eq(rule.step, PDN_STEP_STACK);
	ck_assert_int_eq(rule.cfa, 8);
	/* There is none to restore. */
	ck_assert_int_eq(RULE_AFTER("\x0b").step, PDN_STEP_POINTER);
}
END_TEST

#endif

/* ---- code without unwind information --------------------------------------------------------- */

#if defined(__x86_64__)

/* No unwind information, and another value in the frame pointer. */
void strange(uint64_t in_frame_pointer, void (*function)(void));
__asm__(".text\n.type strange, @function\nstrange:\n"
	"	push %rbp\n	mov %rdi, %rbp\n	push %rbp\n	sub $24, %rsp\n"
	"	call *%rsi\n"
	"	add $24, %rsp\n	pop %rbp\n	pop %rbp\n	ret\n.size strange, . - strange\n");

START_TEST(a_wild_frame_pointer)
{
	static uint64_t self_pointing[2];
	/* It looks like a frame, but no call ends at its return address. */
	uint64_t on_stack[4] = {1, (uint64_t)(uintptr_t)make_event, 3, 4};
	char *edge = guarded_stack(4096) + 4096;
	const uint64_t wild[] = {0,
				 1,
				 8,
				 4096,
				 0x123456789a,
				 UINT64_MAX,
				 UINT64_MAX - 7,
				 1ull << 63,
				 0x00007ffffffffff8,
				 (uint64_t)(uintptr_t)self_pointing,
				 (uint64_t)(uintptr_t)on_stack,
				 (uint64_t)(uintptr_t)on_stack + 1,
				 (uint64_t)(uintptr_t)edge,
				 (uint64_t)(uintptr_t)edge - 8,
				 (uint64_t)(uintptr_t)&wild};

	self_pointing[0] = (uint64_t)(uintptr_t)self_pointing;
	self_pointing[1] = (uint64_t)(uintptr_t)make_event;
	stacks("64");
	for (unsigned i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		depth = 0;
		strange(wild[i], outer);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, sizeof(wild) / sizeof(wild[0]));
	for (unsigned i = 0; i < event_count; i++)
		is_complete(&events[i]); /* as far as the walk gets */
	for (unsigned i = 0; i < event_count; i++)
		for (unsigned n = frames_of(&events[i]); n-- > 0;)
			ck_assert_uint_ne(frames[n], (uint64_t)(uintptr_t)make_event);
}
END_TEST

static uint64_t edge_of_stack;

static void coroutine_at_the_edge(void)
{
	for (uint64_t i = 0; i < 3; i++) {
		depth = 0;
		strange(edge_of_stack - 8 + 8 * i, outer);
	}
	swapcontext(&other_context, &main_context);
}

/* A plausible place for a frame, if it were not beyond the end of the stack. */
START_TEST(a_frame_pointer_beyond_the_stack)
{
	char *stack = guarded_stack(65536);

	edge_of_stack = (uint64_t)(uintptr_t)stack + 65536;
	stacks("64");
	ck_assert_int_eq(getcontext(&other_context), 0);
	other_context.uc_stack.ss_sp = stack;
	other_context.uc_stack.ss_size = 65536;
	other_context.uc_link = NULL;
	makecontext(&other_context, coroutine_at_the_edge, 0);
	ck_assert_int_eq(swapcontext(&main_context, &other_context), 0);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 3);
}
END_TEST

/*
 * Code that the program generated has no file. With a frame pointer the walk continues behind it.
 */
START_TEST(code_without_a_file)
{
	static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
	void (*made)(void (*)(void)) = (void (*)(void (*)(void)))mmap(
		NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned count, at = 0;

	if ((void *)made == MAP_FAILED) {
		/* Not every system allows that. */
		return;
	}
	memcpy((void *)made, code, sizeof(code));
	stacks("64");
	made(outer);
	read_back("t.pdt");
	count = frames_of(&events[0]);
	is_complete(&events[0]);
	while (at < count && frames[at] != (uint64_t)(uintptr_t)made + 6)
		at++;
	ck_assert_uint_lt(at + 1, count);
	trace_file_stack(events[0].file, events[0].record.stack, frames);
	ck_assert_uint_eq(frames[at] >> PDN_FRAME_OFFSET_BITS, 0);
}
END_TEST

#endif

/* ---- lifetime -------------------------------------------------------------------------------- */

/* Known modules are looked at again, and found to be the same. */
START_TEST(after_unloading)
{
	stacks("64");
	for (unsigned i = 0; i < 50; i++) {
		depth = 0;
		inner(1);
		pdn_stacks_unloading();
		pdn_stacks_loading();
	}
	read_back("t.pdt");
	ck_assert_uint_eq(events[0].file->stack_count, 1);
	ck_assert_uint_lt(events[0].file->module_count, 4);
	for (unsigned i = 1; i < 50; i++)
		ck_assert_uint_eq(events[i].record.stack, events[0].record.stack);
}
END_TEST

/* The table of stacks is for traces; a line that names code needs what is known about code only. */
START_TEST(unloading_without_a_trace)
{
	uint64_t caller;
	uint32_t before;

	pdn_stack_callers(&caller, 1);
	before = pdn_modules_generation();
	pdn_stacks_unloading();
	ck_assert_uint_eq(pdn_modules_generation(), before + 1);
	pdn_stacks_loading();
	ck_assert_uint_eq(pdn_modules_generation(), before + 2);
}
END_TEST

static void child(void)
{
	pdn_fork_child();
	depth = 0;
	outer();
	BEHIND;
}

START_TEST(a_forked_child_writes_all_stacks_again)
{
	int pid;

	stacks("64");
	outer();
	returns[0] = ANYWHERE; /* the child calls from elsewhere */
	ck_assert_int_eq(in_child(child, &pid), 0);
	read_back(own_name(pid, ""));
	ck_assert_uint_eq(event_count, 1);
	is_complete(&events[0]);
}
END_TEST

static void the_same_in_a_child(void)
{
	pdn_fork_child();
	outer();
}

/* Makes the parent's stack and the child's the same, with as few addresses as possible. */
START_TEST(a_forked_child_knows_none_to_be_written)
{
	int pid;

	stacks("4");
	outer();
	ck_assert_int_eq(in_child(the_same_in_a_child, &pid), 0);
	read_back(own_name(pid, ""));
	ck_assert_uint_eq(event_count, 1);
	ck_assert_uint_eq(frames_of(&events[0]), 4);
}
END_TEST

START_TEST(errno_stays)
{
	stacks("64");
	errno = 77;
	outer();
	ck_assert_int_eq(errno, 77);
	errno = 78;
	outer();
	ck_assert_int_eq(errno, 78);
}
END_TEST

START_TEST(modules_have_build_ids)
{
	const struct trace_file *file;
	char own[4096] = "";
	bool found = false;

	stacks("64");
	outer();
	ck_assert_int_gt(readlink("/proc/self/exe", own, sizeof(own) - 1), 0);
	read_back("t.pdt");
	file = events[0].file;
	for (unsigned i = 0; i < file->module_count; i++) {
		const struct trace_module *module = &file->modules[i];

		found = found || strcmp(module->path, own) == 0;
		ck_assert_uint_lt(module->begin, module->end);
		ck_assert_uint_le(module->bias, module->begin);
	}
	ck_assert_msg(found, "%s is not among the modules", own);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		ordinary_functions,
		none_unless_asked_for,
		at_most_that_many,
		written_once,
		not_for_hits,
		other_threads,
		a_coroutine,
		a_signal_handler,
		a_deep_stack,
#if defined(__x86_64__)
		instructions_that_are_rare,
		a_wild_frame_pointer,
		a_frame_pointer_beyond_the_stack,
		code_without_a_file,
#endif
		after_unloading,
		unloading_without_a_trace,
		a_forked_child_writes_all_stacks_again,
		a_forked_child_knows_none_to_be_written,
		errno_stays,
		modules_have_build_ids,
		NULL
	};
	Suite *suite = suite_create("call stacks");

	add_case(suite, "stacks", tests);
	return run_suite(suite);
}
