# SPDX-License-Identifier: MIT
# The pindown tool.
CHECK_UNIT += $(B)/unit/test_tools

# The tool without its main(): tests link the parts that they use.
TOOLS_PARTS := $(B)/tools.a
$(TOOLS_PARTS): $(filter-out %/main.c.o,$(TOOLS_OBJ))
	rm -f $@
	$(AR) qcs $@ $^ # not r: two rooms may have files of one name

$(B)/unit/test_tools: $(B)/obj/tests/unit/tools/test_tools.c.o \
		$(call unit_support,made_trace made_retired) $(UNIT_SUITE) $(TOOLS_PARTS) \
		$(TOOLS_SHARED)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) $(CHECK_LIBS) -lpthread

# Tests of the tool as a whole: traces made by hand, and their expected output.
CHECK_SIM += $(wildcard tests/unit/tools/check-*)
CHECK_WITH += $(B)/bench/patterns $(B)/unit/make_trace $(B)/unit/live_app

$(B)/unit/make_trace: $(call unit_support,make_trace made_trace made_many made_retired)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# A program for check-top, linked with the simulated driver.
$(B)/unit/live_app: $(call unit_support,live_app) $(SIM)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl -lpthread

# A program for check-cured, on the software card.
ifeq ($(call has_header,infiniband/verbs.h),yes)
CHECK_WITH += $(B)/unit/held_app
$(B)/unit/held_app: $(B)/obj/tests/unit/tools/held_app.c.o $(SIM) $(B)/softnic/libibverbs.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)
endif
