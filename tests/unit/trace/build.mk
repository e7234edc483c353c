# SPDX-License-Identifier: MIT
# Tests of the trace writer. They read the trace back with the command's reader.
UNIT_TRACE := $(addprefix $(B)/unit/,test_trace_file test_trace_events test_trace_threads \
	test_trace_stacks test_trace_exports test_trace_journal test_trace_handlers \
	test_trace_modules test_trace_name)
CHECK_UNIT += $(UNIT_TRACE)

$(UNIT_TRACE): $(B)/unit/%: $(B)/obj/tests/unit/trace/%.c.o $(call unit_support,trace_test) \
		$(UNIT_SUITE) $(B)/tools.a $(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) $(CHECK_LIBS) -ldl -lpthread

# With consumer objects on the scripted driver.
UNIT_TRACE_OBJECTS := $(B)/unit/test_trace_holders
CHECK_UNIT += $(UNIT_TRACE_OBJECTS)
$(UNIT_TRACE_OBJECTS): $(B)/unit/%: $(B)/obj/tests/unit/trace/%.c.o \
		$(call unit_support,trace_test objects_test) $(UNIT_HELPERS) $(B)/tools.a \
		$(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) $(CHECK_LIBS) -ldl -lpthread
