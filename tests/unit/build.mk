# SPDX-License-Identifier: MIT
# Unit tests, in folders named after the rooms that they test. This file builds the tests that link
# the cache's own objects with Check and a scripted driver; other folders have a build.mk of their
# own. All programs are built in build/unit.
CHECK_LIBS = $(shell $(PKG_CONFIG) --libs check)

UNIT_CACHE := test_cache_get test_cache_trust test_cache_peers test_cache_regions \
	test_cache_budget test_cache_invalidate test_cache_subscribe test_cache_dmabuf \
	test_cache_kmod test_cache_fallback test_cache_exports test_cache_exports_table \
	test_cache_growth test_cache_scale test_scale_threads test_scale_holds test_scale_miss \
	test_scale_queues test_index test_fork test_fork_threads test_refused test_limits_memory \
	test_scale_volatile test_scale_bytes test_refusals test_cache_past test_kmod_process
UNIT_EDGES := test_races_pin test_races_pins test_races_recordless
UNIT_ASKS := test_races_asks test_races_recheck test_races_neighbours
UNIT_RACE := $(UNIT_EDGES) $(UNIT_ASKS) test_races_growth test_races_free test_races_threads \
	test_races_steps test_races_steps_ends test_races_steps_alloc test_races_order \
	test_races_order_objects test_races_stress test_races_lock test_races_waits
UNIT_CACHE_API := test_cache_api test_cache_nowait test_cache_vectors test_cache_lists \
	test_cache_callbacks
UNIT_CANCEL := test_cancel test_cancel_steps test_cancel_ends
# With consumer objects.
UNIT_CACHE_OBJECTS := test_fork_company test_fork_signals $(UNIT_CANCEL) test_cache_objects \
	test_cache_objects_ends test_cache_replaced test_misuse test_scale_objects $(UNIT_CACHE_API)
UNIT_RACE_OBJECTS := test_races_steps_objects test_races_objects test_races_owners
UNIT_CACHE += $(UNIT_CACHE_OBJECTS)
UNIT_RACE += $(UNIT_RACE_OBJECTS)
UNIT_CACHE_BIN := $(patsubst %,$(B)/unit/%,$(UNIT_CACHE) $(UNIT_RACE))
CHECK_UNIT += $(UNIT_CACHE_BIN)

# cache/build.mk has been read by now. Tests need all of the C library's strtoull() and its like.
TESTED_CACHE := $(filter-out cache/base/environment/text.c,$(filter cache/%,$(LIB_SRC)))
CACHE_OBJ := $(patsubst %,$(B)/obj/%.o,$(TESTED_CACHE))
unit_support = $(patsubst %,$(B)/obj/tests/unit/support/%.c.o,$(1))
UNIT_SUITE := $(call unit_support,suite)
UNIT_HELPERS := $(UNIT_SUITE) $(call unit_support,cache_test asleep descriptors stepping \
	fake_driver fake_exports fake_calls)

$(UNIT_CACHE:%=$(B)/unit/%): $(B)/unit/%: $(B)/obj/tests/unit/cache/%.c.o
$(UNIT_RACE:%=$(B)/unit/%): $(B)/unit/%: $(B)/obj/tests/unit/race/%.c.o
$(UNIT_CACHE_BIN): $(UNIT_HELPERS) $(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread

# The tests play /dev/pindown themselves.
UNIT_KMOD := $(addprefix $(B)/unit/,test_cache_kmod test_kmod_process test_cache_fallback)
$(UNIT_KMOD) $(B)/unit/test_fork_points: $(call unit_support,fake_kmod)
$(UNIT_KMOD): $(call unit_support,kmod_test)

# They play system calls of the cache: those of /dev/pindown and of memory; or act just before its
# close of a descriptor or look at one, its look for a thread, its sleep for a lock or another
# thread, its look at the clock, or in its pauses.
UNIT_SYSCALLS := $(patsubst %,$(B)/unit/test_%,fork_threads scale_threads races_lock \
	races_waits cache_exports_table fork_company fork_points refusals cache_past) $(UNIT_KMOD)
UNIT_PAGES := $(patsubst %,$(B)/unit/test_pages_%,index cache_regions cache_objects fork)
$(UNIT_SYSCALLS) $(UNIT_PAGES): ALL_LDFLAGS += -Wl,--wrap=pdn_system_call
$(UNIT_SYSCALLS) $(UNIT_PAGES): $(call unit_support,syscalls)
$(B)/unit/test_races_order $(B)/unit/test_races_order_objects: \
	$(call unit_support,order_test duel refuse)
$(patsubst %,$(B)/unit/test_%,refused scale_volatile scale_holds races_stress): \
	$(call unit_support,refuse)
$(B)/unit/test_scale_threads $(B)/unit/test_scale_holds: $(call unit_support,crowd)
$(patsubst %,$(B)/unit/test_cache_%,exports exports_table past): $(call unit_support,exports_test)
$(B)/unit/test_cache_growth $(B)/unit/test_cache_replaced: $(call unit_support,growth_test)

# Who lets go of the lock must have it. Where single steps are counted, they are the library's own.
UNIT_LOCK_BALANCE := $(patsubst %,$(B)/unit/%,$(filter-out test_races_steps% test_races_order% \
	test_races_lock test_cancel_steps,$(UNIT_CACHE) $(UNIT_RACE)))
$(UNIT_LOCK_BALANCE): ALL_LDFLAGS += -Wl,--wrap=pdn_lock -Wl,--wrap=pdn_unlock
$(UNIT_LOCK_BALANCE): $(call unit_support,lock_balance)

$(patsubst %,$(B)/unit/%,$(UNIT_CACHE_OBJECTS) $(UNIT_RACE_OBJECTS)): \
	$(call unit_support,objects_test)

$(patsubst %,$(B)/unit/%,$(UNIT_CACHE_API)): $(call unit_support,api_test)
$(patsubst %,$(B)/unit/%,$(UNIT_EDGES)): $(call unit_support,edges_test)
$(patsubst %,$(B)/unit/%,$(UNIT_ASKS)): $(call unit_support,freer)
$(B)/unit/test_races_neighbours: ALL_LDFLAGS += -Wl,--wrap=pdn_free_waits_on
$(patsubst %,$(B)/unit/%,$(UNIT_CANCEL)): $(call unit_support,cancel_test)

# Some of them once more with the processor's pages of 64 KiB, as arm64 may have them, in those
# files of the cache that know of pages.
PAGES_SRC := $(patsubst %,cache/%.c,\
	base/memory/address_space base/process/process base/memory/table hit/index_nodes)
PAGES_OBJ := $(PAGES_SRC:%=$(B)/obj/pages/%.o) $(B)/obj/pages/tests/unit/support/large_pages.c.o
CHECK_UNIT += $(UNIT_PAGES)

$(B)/obj/pages/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  CC      $< (with large pages)"
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -DPDN_CPU_PAGE=65536 -MMD -MP -c $< -o $@
$(UNIT_PAGES): $(B)/unit/test_pages_%: $(B)/obj/tests/unit/cache/test_%.c.o $(PAGES_OBJ) \
		$(UNIT_HELPERS) $(call unit_support,objects_test) \
		$(filter-out $(PAGES_SRC:%=$(B)/obj/%.o),$(CACHE_OBJ))
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread

# On the simulated driver, with the dma-buf backend on its real descriptors.
UNIT_CACHE_SIM := $(B)/unit/test_cache_sim $(B)/unit/test_limits_sim \
	$(B)/unit/test_mapping_sim $(B)/unit/test_cache_segment $(B)/unit/test_cache_windows \
	$(B)/unit/test_cache_retired $(B)/unit/test_cache_later \
	$(B)/unit/test_cache_handed_out
UNIT_RACE_SIM := $(B)/unit/test_races_sim
CHECK_UNIT += $(UNIT_CACHE_SIM) $(UNIT_RACE_SIM)

$(UNIT_CACHE_SIM): $(B)/unit/%: $(B)/obj/tests/unit/cache/%.c.o
$(UNIT_RACE_SIM): $(B)/unit/%: $(B)/obj/tests/unit/race/%.c.o
$(UNIT_CACHE_SIM) $(UNIT_RACE_SIM): $(UNIT_HELPERS) $(CACHE_OBJ) $(SIM)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) $(SIM) -o $@ $(ALL_LDFLAGS) \
		-Wl,-rpath,'$$ORIGIN/../sim' $(CHECK_LIBS) -ldl -lpthread

$(B)/unit/test_cache_retired: $(call unit_support,retired_test)
$(B)/unit/test_cache_handed_out: $(call unit_support,retired_test)
$(B)/unit/test_cache_later: $(call unit_support,retired_test)

# The part of hook/ that finds out about a library, single-stepped.
$(B)/unit/test_races_library: $(B)/obj/tests/unit/race/test_races_library.c.o $(UNIT_HELPERS) \
		$(CACHE_OBJ) \
		$(patsubst %,$(B)/obj/hook/loader/%.c.o,library loaded/loaded loaded/symtab)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread
CHECK_UNIT += $(B)/unit/test_races_library

# The part of hook/ that makes the program's ibv_mr, single-stepped.
$(B)/unit/test_races_mr: $(B)/obj/tests/unit/race/test_races_mr.c.o $(UNIT_HELPERS) $(CACHE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread
CHECK_UNIT += $(B)/unit/test_races_mr

$(B)/unit/test_config: $(B)/obj/tests/unit/cache/test_config.c.o $(UNIT_SUITE) $(CACHE_OBJ) \
		$(B)/obj/cache/base/environment/options.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -ldl -lpthread
CHECK_UNIT += $(B)/unit/test_config

$(B)/unit/test_safe_read: $(B)/obj/tests/unit/cache/test_safe_read.c.o $(UNIT_SUITE) \
		$(patsubst %,$(B)/obj/cache/base/%.c.o,memory/safe_read process/system) \
		$(call unit_support,refuse)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS) -lpthread
# What the library's own functions are compiled with, see cache/build.mk.
$(B)/obj/tests/unit/cache/test_text.c.o: ALL_CFLAGS += -fno-builtin -U_FORTIFY_SOURCE
$(B)/unit/test_text: $(B)/obj/tests/unit/cache/test_text.c.o $(UNIT_SUITE) \
		$(B)/obj/cache/base/process/system.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS)
CHECK_UNIT += $(B)/unit/test_safe_read $(B)/unit/test_text

include $(wildcard tests/unit/*/*.mk)
