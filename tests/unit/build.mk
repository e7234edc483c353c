# SPDX-License-Identifier: MIT
# Unit tests: the cache's own objects with Check and a scripted driver. Other parts' tests have a
# .mk of their own in this folder.
CHECK_LIBS = $(shell pkg-config --libs check)

UNIT_CACHE := test_cache_get test_cache_trust test_cache_peers test_cache_regions \
	test_cache_budget test_cache_invalidate test_cache_subscribe test_cache_dmabuf test_cache_kmod test_races_pin test_races_free test_races_threads \
	test_races_steps test_races_steps_ends test_races_steps_alloc test_races_order test_races_order_objects \
	test_cache_scale test_index test_races_stress test_fork test_fork_threads test_refused \
	test_limits_memory
UNIT_OBJECTS := test_fork_company test_fork_signals test_cancel test_cache_objects test_cache_objects_ends \
	test_races_steps_objects test_races_objects test_races_owners test_misuse
UNIT_CACHE += $(UNIT_OBJECTS)
UNIT_CACHE_BIN := $(UNIT_CACHE:%=$(B)/unit/%)
CHECK_UNIT += $(UNIT_CACHE_BIN)

# cache/build.mk has been read by now.
CACHE_OBJ := $(patsubst %,$(B)/obj/%.o,$(filter cache/%,$(LIB_SRC)))
UNIT_SUITE := $(B)/obj/tests/unit/suite.c.o
UNIT_HELPERS := $(UNIT_SUITE) $(patsubst %,$(B)/obj/tests/unit/%.c.o,cache_test asleep descriptors \
	stepping fake_driver fake_exports fake_calls)

$(UNIT_CACHE_BIN): $(B)/unit/%: $(B)/obj/tests/unit/%.c.o $(UNIT_HELPERS) $(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread

# Its /dev/pindown is one of the test's own.
$(B)/unit/test_cache_kmod: ALL_LDFLAGS += -Wl,--wrap=open -Wl,--wrap=ioctl
$(B)/unit/test_cache_kmod: $(B)/obj/tests/unit/fake_kmod.c.o

# It comes by before the cache's membarrier.
$(B)/unit/test_races_order: ALL_LDFLAGS += -Wl,--wrap=syscall
$(B)/unit/test_races_order $(B)/unit/test_races_order_objects: \
	$(patsubst %,$(B)/obj/tests/unit/%.c.o,order_test duel refuse)
$(B)/unit/test_refused: $(B)/obj/tests/unit/refuse.c.o

$(UNIT_OBJECTS:%=$(B)/unit/%): $(B)/obj/tests/unit/objects_test.c.o

# On the simulated driver, with the dma-buf backend on its real descriptors.
UNIT_SIM := $(B)/unit/test_cache_sim $(B)/unit/test_limits_sim $(B)/unit/test_races_sim
CHECK_UNIT += $(UNIT_SIM)

$(UNIT_SIM): $(B)/unit/%: $(B)/obj/tests/unit/%.c.o $(UNIT_HELPERS) $(CACHE_OBJ) $(SIM)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../sim' $(CHECK_LIBS) -ldl -lpthread

# What hook/ does to know a library, single-stepped.
$(B)/unit/test_races_library: $(patsubst %,$(B)/obj/tests/unit/%.c.o,test_races_library stepping) \
	$(filter-out %/stepping.c.o,$(UNIT_HELPERS)) $(CACHE_OBJ) $(patsubst %,$(B)/obj/hook/loader/%.c.o,library objects symtab)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread
CHECK_UNIT += $(B)/unit/test_races_library

$(B)/unit/test_devicemap: $(B)/obj/tests/unit/test_devicemap.c.o $(UNIT_SUITE) $(B)/obj/hook/cuda/devicemap.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS)
CHECK_UNIT += $(B)/unit/test_devicemap

include $(filter-out tests/unit/build.mk,$(wildcard tests/unit/*.mk))
