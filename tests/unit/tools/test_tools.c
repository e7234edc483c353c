// SPDX-License-Identifier: MIT
/*
 * Tests the reader on files that are cut or changed anywhere: it never crashes, hangs or reads out
 * of bounds, and everything it returns can be printed. Most useful under the sanitizers.
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/dump/filter.h"
#include "tools/dump/format.h"
#include "tests/unit/support/made_trace.h"
#include "tools/ui/names.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"
#include "tools/ui/plot.h"
#include "tools/trace/reader.h"
#include "tests/unit/support/sanitizers.h"
#include "tests/unit/support/suite.h"
#include "tools/trace/symbols.h"
#include "tools/report/tally.h"
#include "tools/system/tree.h"

/*
 * Separates this program from the other processes of the machine, if that is allowed: it opens
 * traces many thousand times, and each looks at the journals that killed processes have left.
 */
__attribute__((constructor)) static void be_apart(void)
{
	unshare(CLONE_NEWIPC);
}

static char path[] = "/tmp/pindown-tools-XXXXXX";
static int fd = -1;
static struct made made;
static uint64_t whole_events; /* of the unchanged trace */

static void write_at(const void *bytes, size_t length, size_t offset)
{
	ck_assert_int_eq(pwrite(fd, bytes, length, (off_t)offset), (ssize_t)length);
}

/* Reads the trace as dump and report do; returns the number of events. */
static uint64_t read_all(void)
{
	const struct format *formats[] = {&format_text, &format_json};
	char *names[] = {path};
	uint64_t count = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct reader *reader = reader_open(names, 1);
		struct event event;

		if (!reader)
			return 0;
		formats[i]->begin(reader);
		for (count = 0; reader_next(reader, &event); count++)
			formats[i]->event(&event);
		formats[i]->end(reader);
		symbols_free(); /* they are of this reader's files */
		reader_close(reader);
	}
	/* No more events than fit into a file of that length, apart from lost ones. */
	ck_assert_uint_le(count, made.size / 16 + 1);
	return count;
}

static void report_all(void)
{
	char *names[] = {path};
	struct reader *reader = reader_open(names, 1);
	struct tally *tally;

	if (!reader)
		return;
	tally = tally_make(reader, 60, 100);
	plot_bytes(tally->timeline, tally->columns, 8, tally->span);
	tally_free(tally, reader);
	symbols_free();
	reader_close(reader);
}

static void set_up(void)
{
	int nowhere = open("/dev/null", O_WRONLY);

	/* The output does not matter here; check-tools tests it. */
	ck_assert_int_ge(nowhere, 0);
	dup2(nowhere, STDERR_FILENO);
	out.fd = nowhere;
	out_begin(OUT_ALWAYS, false);
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	made_story(&made, 0);
	write_at(made.bytes, made.size, 0);
	whole_events = read_all();
	ck_assert_uint_eq(whole_events, 29);
}

static void tear_down(void)
{
	close(fd);
	unlink(path);
	made_free(&made);
}

/* Whether a byte is in use, or just behind a used one. */
static bool is_interesting(size_t offset)
{
	uint64_t word[2];

	if (offset < 16)
		return true;
	memcpy(word, made.bytes + offset / 8 * 8 - 8, 16);
	return word[0] || word[1];
}

/* Under AddressSanitizer, where all takes six times as long, short rounds try a quarter. */
static bool is_left_out(size_t number)
{
	return UNDER_ASAN && !wants_long_rounds() && number % 4 != 0;
}

START_TEST(cut_at_every_byte)
{
	uint64_t before = whole_events;

	for (size_t size = made.size; size-- > 0;) {
		uint64_t count;

		if (is_left_out(size) || (!is_interesting(size) && size % 4099))
			continue;
		ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
		count = read_all();
		/* A shorter file never has more events. */
		ck_assert_uint_le(count, before);
		before = count;
	}
	ck_assert_uint_eq(before, 0);
}
END_TEST

START_TEST(cut_and_reported)
{
	for (size_t size = made.size - 1; size > 64; size -= 7) {
		if (is_left_out(size) || !is_interesting(size))
			continue;
		ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
		report_all();
	}
}
END_TEST

/* One of eight parts of: each bit of each byte that matters. */
START_TEST(every_bit_flipped)
{
	for (size_t offset = 0; offset < made.size; offset++) {
		unsigned char changed = made.bytes[offset] ^ (unsigned char)(1 << _i);

		if (is_left_out(offset / 8 + (size_t)_i) || !is_interesting(offset))
			continue;
		write_at(&changed, 1, offset);
		read_all();
		if (offset % 8 == (unsigned)_i)
			report_all();
		write_at(&made.bytes[offset], 1, offset);
	}
	ck_assert_uint_eq(read_all(), whole_events);
}
END_TEST

static const uint64_t words[] = {0,
				 1,
				 0xff,
				 0xffff,
				 0x7fffffff,
				 0xffffffff,
				 0x100000000,
				 0x7fffffffffffffff,
				 0x8000000000000000,
				 UINT64_MAX,
				 0x01010101010101ff,
				 0xffffffff000001ff,
				 0xffffffff00000402,
				 0x00000000000004ff,
				 0x0000ffff00000305};

/* Whole words replaced by others that are likely to do harm. */
START_TEST(words_replaced)
{
	for (size_t offset = 0; offset < made.size; offset += 8) {
		if (is_left_out(offset / 64 + (size_t)_i) || !is_interesting(offset))
			continue;
		write_at(&words[_i], 8, offset);
		read_all();
		if (offset % 64 == 0)
			report_all();
		write_at(made.bytes + offset, 8, offset);
	}
	ck_assert_uint_eq(read_all(), whole_events);
}
END_TEST

static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* A unit of random bytes behind each kind of chunk header. */
START_TEST(noise)
{
	uint64_t unit[PDN_TRACE_UNIT / 8];

	random_state = 0x9e3779b97f4a7c15ull + (uint64_t)_i;
	for (unsigned round = 0; round < 20; round++) {
		size_t at = PDN_TRACE_UNIT * (1 + next_random() % (made.size / PDN_TRACE_UNIT - 1));

		for (size_t i = 0; i < PDN_TRACE_UNIT / 8; i++) {
			unit[i] = next_random();
			/* Make most first words valid, or reading ends at once. */
			if (i % 4 == 0)
				unit[i] = (unit[i] & 0xffffffff00000000) | 0x0104;
			if (i % 4 == 1)
				unit[i] &= 0xffff0003ffffffff;
		}
		memcpy(unit, made.bytes + at, 64);
		write_at(unit, sizeof(unit), at);
		read_all();
		report_all();
		write_at(made.bytes + at, PDN_TRACE_UNIT, at);
	}
}
END_TEST

/* A file of clocks and long calls: nothing in it may cost more than its length. */
START_TEST(a_clock_for_each_event)
{
	struct made other;
	uint64_t ns = BEGAN_NS, count = 0;

	made_begin(&other, 1, ns);
	for (unsigned chunk = 0; chunk < 64; chunk++) {
		made_chunk(&other, 0, chunk, 1, ns);
		while (other.at + 80 < other.chunk + PDN_TRACE_UNIT) {
			/* Forward and back, so that no place in the list is near the last. */
			ns = BEGAN_NS + (count * 7919 % 100000) * 200000000;
			made_clock(&other, ns);
			made_call(&other, 0, 1, 0, 0, 0, ns, ns);
			count++;
		}
	}
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	write_at(other.bytes, other.size, 0);
	made.size = other.size;
	ck_assert_uint_eq(read_all(), count);
	report_all();
	made_free(&other);
}
END_TEST

/* What is written down as the trace of this test. */
static void replace_by(const struct made *other)
{
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	write_at(other->bytes, other->size, 0);
	made.size = other->size;
}

/* The events have the number of a stack, and the file has no stack at all. */
START_TEST(a_stack_that_is_nowhere)
{
	static const char calls[] = "cuMemAlloc_v2";
	struct made other;

	made_begin(&other, 1, BEGAN_NS);
	made_info(&other, PDN_INFO_CALLS, calls, sizeof(calls));
	made_chunk(&other, 0, 0, 1, BEGAN_NS);
	other.stack = 7;
	made_call(&other, 0, 0x7f0000000000, 65536, 0, 0, BEGAN_NS, BEGAN_NS);
	made_end(&other, BEGAN_NS + 1);
	replace_by(&other);
	ck_assert_uint_eq(read_all(), 1);
	report_all();
	made_free(&other);
}
END_TEST

/* A record with eight bytes of a name is refused if it says that the name has more. */
START_TEST(a_name_longer_than_its_record)
{
	const struct pdn_trace_note what = {
		.addr = 0x7f0000000000, .size = 65536, .pin_size = 65536, .name = "eight by"};
	char *names[] = {path};
	struct made other;

	for (unsigned length = 8; length <= 9; length++) {
		struct reader *reader;
		struct event event;

		made_begin(&other, 1, BEGAN_NS);
		made_chunk(&other, 0, 0, 1, BEGAN_NS);
		made_note(&other, PDN_EV_HELD, &what, BEGAN_NS);
		/* The last byte of its second word; it has six more. */
		other.bytes[other.at - 6 * 8 - 1] = (unsigned char)length;
		made_end(&other, BEGAN_NS + 1);
		replace_by(&other);
		reader = reader_open(names, 1);
		ck_assert_ptr_nonnull(reader);
		while (reader_next(reader, &event))
			;
		ck_assert_int_eq(reader_damaged(reader), length > 8);
		reader_close(reader);
		made_free(&other);
	}
}
END_TEST

/* Every call began before all other events, so all are out of order in their chunks. */
START_TEST(all_began_first)
{
	uint64_t ns = BEGAN_NS + 1000000, count = 0, last = 0;
	char *names[] = {path};
	struct reader *reader;
	struct event event;
	struct made other;

	made_begin(&other, 1, ns);
	for (unsigned chunk = 0; chunk < 8; chunk++) {
		made_chunk(&other, 0, chunk, 1, ns);
		while (other.at + 80 < other.chunk + PDN_TRACE_UNIT) {
			ns += 10;
			count++;
			made_call(&other, 0, count, 0, 0, 0, BEGAN_NS + 1000000 - count, ns);
		}
	}
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	write_at(other.bytes, other.size, 0);
	reader = reader_open(names, 1);
	for (uint64_t i = count; i > 0; i--) {
		ck_assert(reader_next(reader, &event));
		ck_assert_uint_eq(event.record.addr, i);
		ck_assert_uint_ge(event.ts, last);
		last = event.ts;
	}
	ck_assert(!reader_next(reader, &event));
	reader_close(reader);
	made_free(&other);
}
END_TEST

/* A file that is cut or changed while it is read: the missing part is reported. */
START_TEST(changed_while_reading)
{
	unsigned char *noise = malloc(made.size);
	char *names[] = {path}, note[5000];

	ck_assert_ptr_nonnull(noise);
	memset(noise, _i, made.size);
	for (unsigned stop = 0; stop < 30; stop++) {
		struct reader *reader = reader_open(names, 1);
		unsigned count = stop;
		struct event event;

		ck_assert_ptr_nonnull(reader);
		for (unsigned i = 0; i < stop; i++)
			reader_next(reader, &event);
		if (_i)
			write_at(noise, made.size, 0);
		else
			ck_assert_int_eq(ftruncate(fd, 70000), 0);
		while (reader_next(reader, &event))
			count++;
		if (!_i && count < whole_events) {
			ck_assert(reader_note(reader_file(reader, 0), note, sizeof(note)));
			ck_assert_ptr_nonnull(strstr(note, "cut short: it has 70000 bytes of"));
		}
		reader_close(reader);
		write_at(made.bytes, made.size, 0);
	}
	free(noise);
}
END_TEST

/* The pin that uses a region's number again began before the unpin that made it free. */
START_TEST(a_number_used_again)
{
	struct pdn_trace_region old = {.addr = 0x10000,
				       .size = 65536,
				       .pin_addr = 0x10000,
				       .pin_size = 65536,
				       .buffer_id = 1,
				       .region = 1},
				new = old;
	char *names[] = {path};
	struct reader *reader;
	struct tally *tally;
	struct made other;
	uint64_t ns = BEGAN_NS;

	new.buffer_id = 2;
	new.pin_size = 3 * 65536;
	made_begin(&other, 1, ns);
	made_chunk(&other, 0, 0, 1, ns);
	made_region(&other, PDN_EV_PIN, &old, ns, ns + 10);
	made_region(&other, PDN_EV_UNPIN, &old, ns + 100, ns + 110);
	made_chunk(&other, 1, 0, 2, ns);
	made_region(&other, PDN_EV_PIN, &new, ns + 50, ns + 200);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	write_at(other.bytes, other.size, 0);
	reader = reader_open(names, 1);
	tally = tally_make(reader, 60, 100);
	ck_assert_uint_eq(tally->all.bytes, 3 * 65536);
	ck_assert_uint_eq(tally->all.pins, 2);
	ck_assert_uint_eq(tally->all.unpins, 1);
	ck_assert_uint_eq(tally->answers.all[ANSWER_LEFT].count, 1);
	ck_assert_uint_eq(tally->left.list[0].region.buffer_id, 2);
	tally_free(tally, reader);
	reader_close(reader);
	made_free(&other);
}
END_TEST

/* ---- names, against the toolkit where there is one ------------------------------------------- */

START_TEST(results_are_the_toolkits)
{
	FILE *header = fopen("/usr/local/cuda/include/cuda.h", "r");
	char line[512], name[128];
	unsigned seen = 0;
	int number;

	if (!header)
		header = fopen("/usr/include/cuda.h", "r");
	if (!header) {
		skip_test("names of results: there is no cuda.h here");
		return;
	}
	while (fgets(line, sizeof(line), header)) {
		if (sscanf(line, " %127[A-Z_0-9] = %d", name, &number) != 2 ||
		    (strncmp(name, "CUDA_ERROR_", 11) != 0 && strcmp(name, "CUDA_SUCCESS") != 0))
			continue;
		ck_assert_msg(driver_result_name(number) != NULL, "%s = %d has no name", name,
			      number);
		ck_assert_str_eq(driver_result_name(number), name);
		seen++;
	}
	fclose(header);
	ck_assert_uint_gt(seen, 50);
}
END_TEST

START_TEST(numbers_without_a_name)
{
	ck_assert_ptr_null(driver_result_name(-1));
	ck_assert_ptr_null(driver_result_name(9));
	ck_assert_ptr_null(driver_result_name(1000));
	ck_assert_ptr_null(driver_result_name(INT64_MAX));
	ck_assert_ptr_null(pindown_result_name(1));
	ck_assert_ptr_null(pindown_result_name(-99));
	ck_assert_ptr_null(reason_name(0));
	ck_assert_ptr_null(reason_name(99));
	ck_assert_str_eq(pindown_result_name(PINDOWN_ERR_NO_DMABUF), "PINDOWN_ERR_NO_DMABUF");
	ck_assert_str_eq(reason_name(PINDOWN_REASON_STALE), "stale");
}
END_TEST

/* ---- numbers for people --------------------------------------------------------------------- */

START_TEST(numbers)
{
	char text[64];

	out.utf8 = false;
	ck_assert_str_eq(duration_text(0).text, "0 ns");
	ck_assert_str_eq(duration_text(9999).text, "9999 ns");
	ck_assert_str_eq(duration_text(10000).text, "10.0 us");
	ck_assert_str_eq(duration_text(999999).text, "999 us");
	ck_assert_str_eq(duration_text(1000000).text, "1.00 ms");
	ck_assert_str_eq(duration_text(1234567890).text, "1.23 s");
	ck_assert_str_eq(duration_text(UINT64_MAX).text, "18446744073 s");
	ck_assert_str_eq(bytes_text(0).text, "0 B");
	ck_assert_str_eq(bytes_text(1023).text, "1023 B");
	ck_assert_str_eq(bytes_text(1024).text, "1 KiB");
	ck_assert_str_eq(bytes_text(1536).text, "1.50 KiB");
	ck_assert_str_eq(bytes_text(UINT64_MAX).text, "15.9 EiB");
	ck_assert_str_eq(count_text(0).text, "0");
	ck_assert_str_eq(count_text(999).text, "999");
	ck_assert_str_eq(count_text(1000).text, "1 000");
	ck_assert_str_eq(count_text(UINT64_MAX).text, "18 446 744 073 709 551 615");
	*put_hex(text, 0) = '\0';
	ck_assert_str_eq(text, "0x0");
	*put_hex(text, 0x10) = '\0';
	ck_assert_str_eq(text, "0x10");
	*put_hex(text, UINT64_MAX) = '\0';
	ck_assert_str_eq(text, "0xffffffffffffffff");
	*put_signed(text, INT64_MIN) = '\0';
	ck_assert_str_eq(text, "-9223372036854775808");
	*put_decimal_right(text, 5, 3) = '\0';
	ck_assert_str_eq(text, "  5");
	*put_left(text, "µs", 4) = '\0';
	ck_assert_str_eq(text, "µs  ");
}
END_TEST

/* ---- bytes that are no characters ------------------------------------------------------------ */

/* At each place beside the words by which the text is looked through, and at its end. */
START_TEST(bytes_become_valid)
{
	static const struct {
		const char *from, *utf8, *ascii;
	} rows[] = {
		{"", "", ""},
		{"\x9b", "?", "?"},
		{"\xc3\xa9", "\xc3\xa9", "?"},
		{"\xc2\x9b", "??", "??"},
		{"\xc2\xa0", "\xc2\xa0", "?"},
		{"\xe2\x86", "??", "??"},
		{"\xe2\x86\x92", "\xe2\x86\x92", "?"},
		{"\xe9\xe2\x86\x92\xf0\x9f\x98\x80", "?\xe2\x86\x92\xf0\x9f\x98\x80", "???"},
	};
	char text[80], expected[80];

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (unsigned place = 0; place < 400; place++) {
			int before = place % 20, behind = place / 20 % 10;
			bool utf8 = place >= 200;
			size_t length;

			snprintf(text, sizeof(text), "%.*s%s%.*s", before, "12345678901234567890",
				 rows[i].from, behind, "abcdefghij");
			snprintf(expected, sizeof(expected), "%.*s%s%.*s", before,
				 "12345678901234567890", utf8 ? rows[i].utf8 : rows[i].ascii,
				 behind, "abcdefghij");
			length = text_make_valid(text, strlen(text), utf8);
			ck_assert_uint_eq(length, strlen(expected));
			ck_assert_mem_eq(text, expected, length);
		}
}
END_TEST

/* Names may come from anybody: they begin no line, and turn no text around. */
START_TEST(lines_are_the_formats)
{
	static const struct {
		const char *name, *printed;
	} rows[] = {
		{"name", "name\n\tb\n"},
		{"x\ny\tz\r", "x?y?z?\n\tb\n"},
		{"x\1y", "x?y?\tb?"},
		{"x\2y", "x?y\n?b\n"},
		{"\xe2\x80\xae\xd8\x9c\xe2\x81\xa6\xe2\x80\xa8", "???????????\n\tb\n"},
		{"\xe2\x80\x9c\xd8\x9d", "\xe2\x80\x9c\xd8\x9d\n\tb\n"},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		out.used = 0;
		out_print("%s\n\tb\n", rows[i].name);
		ck_assert_uint_eq(out.used, strlen(rows[i].printed));
		ck_assert_mem_eq(out.buffer, rows[i].printed, out.used);
	}
	out.used = 0;
}
END_TEST

/* ---- the table of regions ------------------------------------------------------------------- */

START_TEST(regions_come_and_go)
{
	enum { MANY = 5000 };
	static uint32_t present[MANY];
	struct regions regions = {0};
	uint32_t count = 0;

	random_state = 42;
	ck_assert_ptr_null(regions_find(&regions, 0, 0, 0));
	for (unsigned i = 0; i < 200000; i++) {
		uint32_t number = (uint32_t)(next_random() % MANY), file = number % 3;
		uint64_t id = number % 7;
		struct region *region = regions_find(&regions, file, number / 2, id);

		ck_assert_int_eq(region != NULL, present[number] != 0);
		if (region) {
			ck_assert_uint_eq(region->addr, present[number]);
			regions_remove(&regions, region);
			present[number] = 0;
			count--;
		} else {
			present[number] = i + 1;
			regions_add(&regions, file, number / 2, id)->addr = i + 1;
			count++;
		}
		ck_assert_uint_eq(regions.count, count);
	}
	regions_free(&regions);
}
END_TEST

/* ---- the files of the machine ---------------------------------------------------------------- */

static void resolves(const char *path, const char *expected)
{
	char *inside = tree_resolve("%s", path);

	ck_assert_pstr_eq(inside, expected);
	free(inside);
}

/* As with --sysfs / and with a folder below it. */
START_TEST(names_are_below_the_root)
{
	ck_assert(tree_set_root("/"));
	ck_assert(tree_is_live());
	resolves("proc/../proc", "proc");
	ck_assert(tree_set_root("/proc"));
	ck_assert(!tree_is_live());
	resolves("sys/kernel", "sys/kernel");
	resolves("../sys", NULL);
	ck_assert(tree_set_root("/"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tools");
	TCase *hostile = suite_case(suite, "hostile", set_up, tear_down);
	TCase *plain = suite_case(suite, "plain", NULL, NULL);

	/* ThreadSanitizer would take ten minutes for these, each of which has one thread. */
	if (!UNDER_TSAN) {
		tcase_add_test(hostile, cut_at_every_byte);
		tcase_add_test(hostile, cut_and_reported);
		tcase_add_loop_test(hostile, every_bit_flipped, 0, 8);
		tcase_add_loop_test(hostile, words_replaced, 0, sizeof(words) / sizeof(words[0]));
		tcase_add_loop_test(hostile, noise, 0, 4);
	}
	tcase_add_test(hostile, a_clock_for_each_event);
	tcase_add_test(hostile, a_stack_that_is_nowhere);
	tcase_add_test(hostile, a_name_longer_than_its_record);
	tcase_add_test(hostile, all_began_first);
	tcase_add_loop_test(hostile, changed_while_reading, 0, 3);
	tcase_add_test(hostile, a_number_used_again);
	tcase_add_test(plain, results_are_the_toolkits);
	tcase_add_test(plain, numbers_without_a_name);
	tcase_add_test(plain, numbers);
	tcase_add_test(plain, bytes_become_valid);
	tcase_add_test(plain, lines_are_the_formats);
	tcase_add_test(plain, regions_come_and_go);
	tcase_add_test(plain, names_are_below_the_root);
	return run_suite(suite);
}
