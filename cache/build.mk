# SPDX-License-Identifier: MIT
CACHE_SRC := $(wildcard cache/*.c cache/*/*.c)
LIB_SRC += $(CACHE_SRC)
LIB_NEEDS += cache/pindown.map
LIB_LDFLAGS += -Wl,--version-script=cache/pindown.map

# The library is in every process: where time is no matter, room is. Time matters to hits and frees.
CACHE_FAST := account evict get hook_events index invalidate pin race region base/lock \
	base/barrier objects/object
$(patsubst %,$(B)/obj/%.o,$(filter-out $(CACHE_FAST:%=cache/%.c),$(CACHE_SRC))): ALL_CFLAGS += -Os
