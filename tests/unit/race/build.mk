# SPDX-License-Identifier: MIT
# With a cache that has points (cache/base/test_point.h), where threads are held up: the random races once
# more, between any two steps, threads of other priorities, and forks.
WINDOWS_BIN := $(B)/unit/test_races_windows
POINTS_BIN := $(WINDOWS_BIN) $(B)/unit/test_priorities $(B)/unit/test_fork_points
CHECK_UNIT += $(POINTS_BIN)
CHECK_TREE += tests/unit/race/check-no-points

$(B)/obj/points/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  CC      $< (with points)"
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -DPD_POINTS -MMD -MP -c $< -o $@

WINDOWS_CACHE := $(patsubst %,$(B)/obj/points/%.o,$(filter cache/%,$(LIB_SRC)))
$(WINDOWS_BIN): $(patsubst %,$(B)/obj/points/tests/unit/%.c.o,support/windows race/test_races_stress)
$(B)/unit/test_priorities: $(patsubst %,$(B)/obj/points/tests/unit/%.c.o,race/test_priorities support/objects_test)
$(B)/unit/test_fork_points: $(B)/obj/points/tests/unit/race/test_fork_points.c.o
$(POINTS_BIN): $(WINDOWS_CACHE) $(UNIT_HELPERS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread
