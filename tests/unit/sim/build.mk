# SPDX-License-Identifier: MIT
# Tests of the simulated driver itself.
UNIT_SIM := test_sim_memory test_sim_kinds test_sim_graphs test_sim_driver test_sim_processes \
	test_sim_reserved
UNIT_SIM_BIN := $(UNIT_SIM:%=$(B)/unit/%)
CHECK_UNIT += $(UNIT_SIM_BIN)

$(B)/obj/tests/unit/sim/%.o $(call unit_support,sim_support): INCLUDE += -D_GNU_SOURCE \
	-DSIM_LIBRARY='"$(abspath $(B)/sim/libcuda.so.1)"'

$(UNIT_SIM_BIN): $(B)/unit/%: $(B)/obj/tests/unit/sim/%.c.o $(UNIT_SUITE) \
		$(call unit_support,sim_support) | $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread
