# SPDX-License-Identifier: MIT
# The reader of traces is given arbitrary bytes: see fuzz_trace.c and check-fuzz.
fuzz_bin := $(B)/fuzz
CHECK_SIM += tests/fuzz/check-fuzz
CHECK_WITH += $(fuzz_bin)/replay $(fuzz_bin)/pack

$(fuzz_bin)/replay: $(patsubst %,$(B)/obj/tests/fuzz/%.c.o,replay fuzz_trace) $(B)/tools.a \
		$(TOOLS_SHARED)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) -lpthread
$(fuzz_bin)/pack: $(B)/obj/tests/fuzz/pack.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# With clang's libFuzzer; an empty file where there is none. libdw's own parsing is left out, since
# symbols come from files that no trace can forge. There is no fuzzer in a sanitizer build, since it
# has sanitizers already.
fuzz_code := tests/fuzz/fuzz_trace.c cache/base/thread/pthread.S \
	$(patsubst %,cache/%.c,base/environment/config base/environment/log \
		base/environment/event base/memory/safe_read base/process/system \
		trace/journal/rescue) \
	$(filter-out tools/trace/symbols_dw.c,$(foreach room,base trace dump report replay,\
		$(wildcard tools/$(room)/*.c))) \
	$(patsubst %,tools/%.c,ui/json ui/names ui/pager ui/plot system/programs command)
fuzz_flags := -std=gnu11 -O1 -g -fno-strict-aliasing $(INCLUDE)
ifeq ($(SAN)$(CROSS),)
CHECK_WITH += $(fuzz_bin)/fuzz_trace
endif
$(fuzz_bin)/fuzz_trace: $(fuzz_code) $(wildcard tools/*.h tools/*/*.h cache/*.h cache/*/*.h \
		cache/*/*/*.h)
	@mkdir -p $(@D)
	@echo "  FUZZ    $@"
	if echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n)' \
			'{ return d && n ? 0 : 0; }' | \
			clang -xc - -fsanitize=fuzzer,address,undefined -o $@ 2>/dev/null; then \
		clang $(fuzz_flags) -fsanitize=fuzzer,address,undefined \
			-fno-sanitize-recover=undefined $(fuzz_code) -o $@; \
	else \
		: >$@; \
	fi

# The fuzzer of fuzz.c, which needs no more than a compiler with sanitizers: an empty file where
# there is none. For an hour with one target: make fuzz T=elf SECONDS=3600 [SEED=7]. What fails is
# left in build/fuzz.
fuzz_targets := environment elf doctor trace
fuzz_sanitize := -fsanitize=address,undefined
fuzz_sources := $(patsubst %,tests/fuzz/%.c,fuzz targets target_doctor fuzz_trace) \
	$(filter-out tools/main.c tools/system/tree.c,$(TOOLS_SRC)) \
	$(patsubst $(B)/obj/%.o,%,$(TOOLS_SHARED))
fuzz_objects := $(fuzz_sources:%=$(B)/obj/fuzz/%.o)
$(B)/obj/fuzz/%.o: %
	@mkdir -p $(@D)
	@echo "  CC      $< (for the fuzzer)"
	$(CC) $(fuzz_flags) $(fuzz_sanitize) -fno-sanitize-recover=undefined \
		-DPDN_LIBDIR='"$(LIBDIR)"' -MMD -MP -c $< -o $@
$(fuzz_bin)/fuzz: $(fuzz_objects)
	@mkdir -p $(@D)
	if echo 'int main(void) { return 0; }' | \
			$(CC) $(fuzz_sanitize) -x c - -o $@ 2>/dev/null; then \
		$(CC) $(fuzz_sanitize) $^ -o $@ $(TOOLS_LIBS) -lpthread; \
	else \
		: >$@; \
	fi
ifeq ($(SAN),)
CHECK_WITH += $(fuzz_bin)/fuzz
endif

SEED ?= 1
fuzz: $(fuzz_bin)/fuzz $(ALL)
	@BUILD=$(abspath $(B)) tests/fuzz/run --seed $(SEED) --seconds $(or $(SECONDS),60) \
		$(or $(T),$(fuzz_targets))
.PHONY: fuzz
