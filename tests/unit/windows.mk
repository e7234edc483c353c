# SPDX-License-Identifier: MIT
# The random races once more, with a cache in which threads are held up between any two steps.
WINDOWS_BIN := $(B)/unit/test_races_windows
CHECK_UNIT += $(WINDOWS_BIN)
CHECK_TREE += tests/unit/test_no_points

$(B)/obj/points/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  CC      $< (with points)"
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -DPD_POINTS -MMD -MP -c $< -o $@

$(WINDOWS_BIN): $(patsubst %,$(B)/obj/points/%.o,$(filter cache/%,$(LIB_SRC)) tests/unit/windows.c \
		tests/unit/test_races_stress.c) $(UNIT_HELPERS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread
