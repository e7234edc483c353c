# SPDX-License-Identifier: MIT
# The reader of traces against any bytes: see fuzz_trace.c and check.
fuzz_bin := $(B)/fuzz
CHECK_SIM += tests/fuzz/check
CHECK_WITH += $(fuzz_bin)/replay $(fuzz_bin)/pack

$(fuzz_bin)/replay: $(patsubst %,$(B)/obj/tests/fuzz/%.c.o,replay fuzz_trace) $(B)/tools.a $(TOOLS_SHARED)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) -lpthread
$(fuzz_bin)/pack: $(B)/obj/tests/fuzz/pack.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# With clang's libFuzzer; an empty file where there is none. Symbols come from files that no trace can
# make up, so that libdw's own parsing is left out. No sanitizer build fuzzes: this is one already.
fuzz_code := tests/fuzz/fuzz_trace.c $(addprefix cache/,trace_format.c trace_rescue.c config.c \
	log.c) tools/symbols_none.c $(addprefix tools/,reader.c journal.c stream.c record.c \
	trace_file.c trace_clock.c trace_stacks.c family.c memory.c out.c names.c filter.c format_text.c format_json.c format_chrome.c regions.c \
	tally.c holders.c plot.c sites.c symbols.c history.c html.c html_charts.c html_map.c html_text.c report_answers.c \
	report_diff.c report.c dump.c replay.c replay_svg.c uses.c policy.c pager.c program.c texts.c verb.c)
fuzz_flags := -std=gnu11 -O1 -g -fno-strict-aliasing $(INCLUDE)
ifeq ($(SAN),)
CHECK_WITH += $(fuzz_bin)/fuzz_trace
endif
$(fuzz_bin)/fuzz_trace: $(fuzz_code) $(wildcard tools/*.h cache/*.h)
	@mkdir -p $(@D)
	@echo "  FUZZ    $@"
	if echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' | \
			clang -xc - -fsanitize=fuzzer,address,undefined -o $@ 2>/dev/null; then \
		clang $(fuzz_flags) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
			$(fuzz_code) -o $@; \
	else \
		: >$@; \
	fi
