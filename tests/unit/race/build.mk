# SPDX-License-Identifier: MIT
# Tests on a cache built with points (cache/base/test_point.h), at which threads are held up: the
# random races again, real-time threads, and forks.
WINDOWS_BIN := $(B)/unit/test_races_windows
POINTS_BIN := $(WINDOWS_BIN) $(B)/unit/test_priorities $(B)/unit/test_fork_points
CHECK_UNIT += $(POINTS_BIN)
CHECK_TREE += tests/unit/race/check-no-points

$(B)/obj/points/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  CC      $< (with points)"
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -DPDN_POINTS -MMD -MP -c $< -o $@

WINDOWS_CACHE := $(patsubst %,$(B)/obj/points/%.o,$(filter %.c,$(TESTED_CACHE))) \
	$(patsubst %,$(B)/obj/%.o,$(filter %.S,$(TESTED_CACHE)))
with_points = $(patsubst %,$(B)/obj/points/tests/unit/%.c.o,$(1))
$(WINDOWS_BIN): $(call with_points,support/windows race/test_races_stress)
$(B)/unit/test_priorities: $(call with_points,race/test_priorities support/objects_test)
$(B)/unit/test_fork_points: $(call with_points,race/test_fork_points)
$(POINTS_BIN): $(WINDOWS_CACHE) $(UNIT_HELPERS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread

# On the simulated driver.
CHECK_UNIT += $(B)/unit/test_races_retired
$(B)/unit/test_races_retired: $(call with_points,race/test_races_retired support/retired_test) \
		$(WINDOWS_CACHE) $(UNIT_HELPERS) $(SIM)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) $(SIM) -o $@ $(ALL_LDFLAGS) \
		-Wl,-rpath,'$$ORIGIN/../sim' $(CHECK_LIBS) -ldl -lpthread
