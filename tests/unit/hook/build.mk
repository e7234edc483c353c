# SPDX-License-Identifier: MIT
# The table of watched calls: compared with the library's exports, and with a CUDA toolkit where
# there is one; and the answers to look-ups, with a driver made for that.
table_bin := $(B)/unit
table_obj := $(B)/obj/tests/unit/hook
table_built := $(addprefix $(table_bin)/,table_rows libtable_second.so libtable_third.so \
	libtable_waits.so libtable_brings.so table_driver/libcuda.so.1)

CHECK_TREE += tests/unit/hook/check-table $(table_bin)/test_table_lookup \
	$(table_bin)/test_table_records \
	$(addprefix $(table_bin)/test_,contexts mappings owners ipc) \
	tests/unit/hook/check-driver-calls
CHECK_WITH += $(table_built)

table_tests := test_table_lookup test_table_records test_mappings test_owners test_ipc \
	test_contexts
$(addprefix $(table_bin)/test_,contexts mappings owners ipc): $(B)/obj/hook/cuda/memory/records.c.o
$(table_bin)/test_ipc: $(B)/obj/hook/cuda/devicemap.c.o
$(addprefix $(table_bin)/test_,contexts mappings owners ipc table_records): $(CACHE_OBJ)
$(addprefix $(table_bin)/,table_rows $(table_tests)): $(table_bin)/%: $(table_obj)/%.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl -lpthread
$(table_bin)/libtable_second.so $(table_bin)/libtable_third.so: $(table_obj)/table_other.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) $^ -o $@ $(ALL_LDFLAGS)
$(table_bin)/libtable_brings.so: $(table_bin)/libtable_third.so \
		$(table_bin)/table_driver/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) -Wl,--no-as-needed -x c /dev/null -x none $^ \
		-Wl,-rpath,'$$ORIGIN' -o $@ $(ALL_LDFLAGS)
$(table_bin)/libtable_waits.so: $(table_obj)/table_waits.c.o $(table_bin)/table_driver/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) $^ -o $@ $(ALL_LDFLAGS) -lpthread
# Like the real driver it binds its own calls to itself, and it must be on the stack when it looks
# something up.
$(table_obj)/table_driver.c.o: ALL_CFLAGS += -fno-optimize-sibling-calls
$(table_bin)/table_driver/libcuda.so.1: $(table_obj)/table_driver.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-Bsymbolic-functions -Wl,-soname,$(@F) $^ -o $@ \
		$(ALL_LDFLAGS) -ldl
$(table_bin)/test_table_lookup: | $(table_built) $(B)/libpindown.so

# Without the cache.
$(B)/unit/test_devicemap: $(table_obj)/test_devicemap.c.o $(UNIT_SUITE) \
	$(B)/obj/hook/cuda/devicemap.c.o \
	$(patsubst %,$(B)/obj/cache/base/%.c.o,memory/address_space process/system)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS)
CHECK_UNIT += $(B)/unit/test_devicemap

CHECK_UNIT += $(table_bin)/test_symtab
$(table_bin)/test_symtab: $(table_obj)/test_symtab.c.o \
		$(B)/obj/hook/loader/loaded/symtab.c.o $(UNIT_SUITE)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(CHECK_LIBS)
