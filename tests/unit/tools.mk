# SPDX-License-Identifier: MIT
# Configuration, trace and command: what the writer writes is read back with the command's reader.
UNIT_TOOLS := test_config test_trace
UNIT_TOOLS_BIN := $(UNIT_TOOLS:%=$(B)/unit/%)
CHECK_UNIT += $(UNIT_TOOLS_BIN)

TOOLS_READER := $(patsubst %,$(B)/obj/tools/%.c.o,family filter memory names out reader record trace_file)
$(B)/obj/tests/unit/test_trace.c.o: INCLUDE += -Itools

$(UNIT_TOOLS_BIN): $(B)/unit/%: $(B)/obj/tests/unit/%.c.o $(TOOLS_READER) $(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread

# The command from outside: traces made by hand, and what is to be printed of them.
CHECK_SIM += tests/unit/check-tools
CHECK_WITH += $(B)/unit/make_trace

$(B)/unit/make_trace: $(patsubst %,$(B)/obj/tests/unit/%.c.o,make_trace made_trace)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)
