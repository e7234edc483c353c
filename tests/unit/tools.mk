# SPDX-License-Identifier: MIT
# Configuration, trace and command: what the writer writes is read back with the command's reader.
UNIT_TRACE := $(addprefix $(B)/unit/,test_trace_file test_trace_events test_trace_threads \
	test_trace_stacks test_trace_exports test_trace_journal)
CHECK_UNIT += $(B)/unit/test_config $(UNIT_TRACE) $(B)/unit/test_tools

# The command without its main(): a test takes from it what it uses.
TOOLS_PARTS := $(B)/tools.a
$(TOOLS_PARTS): $(filter-out %/main.c.o,$(TOOLS_OBJ))
	rm -f $@
	$(AR) qcs $@ $^ # not r: two rooms may have files of one name

$(B)/unit/test_config: $(B)/obj/tests/unit/test_config.c.o $(UNIT_SUITE) $(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) $(CHECK_LIBS) -ldl -lpthread
$(UNIT_TRACE): $(B)/unit/%: $(B)/obj/tests/unit/%.c.o $(B)/obj/tests/unit/trace_test.c.o $(UNIT_SUITE) $(TOOLS_PARTS) $(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) $(CHECK_LIBS) -ldl -lpthread
$(B)/unit/test_tools: $(B)/obj/tests/unit/test_tools.c.o $(B)/obj/tests/unit/made_trace.c.o $(UNIT_SUITE) $(TOOLS_PARTS) $(TOOLS_SHARED)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) $(CHECK_LIBS) -lpthread

# The command from outside: traces made by hand, and what is to be printed of them.
CHECK_SIM += tests/unit/check-tools tests/unit/check-bounds tests/unit/check-chrome tests/unit/check-symbols tests/unit/check-traces tests/unit/check-programs tests/unit/check-doctor tests/unit/check-roots tests/unit/check-top tests/unit/check-bar tests/unit/check-completion tests/unit/check-replay
CHECK_WITH += $(B)/bench/patterns $(B)/unit/make_trace $(B)/unit/live_app

$(B)/unit/make_trace: $(patsubst %,$(B)/obj/tests/unit/%.c.o,make_trace made_trace)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# A program for check-top, linked with the simulated driver.
$(B)/unit/live_app: $(B)/obj/tests/unit/live_app.c.o $(SIM)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl -lpthread
