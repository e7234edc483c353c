# SPDX-License-Identifier: MIT
# The table of watched calls against the library's exports, and against a CUDA toolkit where there is one.
CHECK_TREE += tests/unit/test_table
CHECK_WITH += $(B)/unit/table_rows

$(B)/obj/tests/unit/table_rows.c.o: INCLUDE += -Ihook
$(B)/unit/table_rows: $(B)/obj/tests/unit/table_rows.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)
