# SPDX-License-Identifier: MIT
# The driver's interface in the editions that Debian has. It downloads some 2 GB: make check does
# without, since check-table knows what it found.
check-editions: $(B)/unit/table_rows $(B)/libpindown.so
	@$(IN_BUILD) TEST_JOBS=1 tests/run tests/editions/check-editions

.PHONY: check-editions

# The simulated driver with the exports of one driver, and its CUDA version: an older one lacks what
# came later. Rows of exports.txt that the simulated driver does not have are ignored by the linker.
EDITIONS := $(shell sed -n 's/^\# driver \([0-9]*\)[.].*/\1/p' tests/editions/exports.txt)
editions := $(patsubst %,$(B)/editions/sim/%/libcuda.so.1,$(EDITIONS))
editions_obj := $(patsubst %,$(B)/obj/%.o,$(wildcard tests/sim/*.c))

$(editions): $(B)/editions/sim/%/libcuda.so.1: $(editions_obj) tests/editions/exports.txt
	@mkdir -p $(@D)
	@awk -v driver=$* 'BEGIN { print "{ global: sim_*;" } /^cu/ && $$2 <= driver { \
		print $$1 ";" } END { print "local: *; };" }' tests/editions/exports.txt >$(@D)/map
	@sed -n 's/^# driver $*[.].* \(.*\)/const int sim_edition = \1;/p' \
		tests/editions/exports.txt >$(@D)/edition.c
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,now \
		-Wl,--no-undefined -Wl,--version-script=$(@D)/map $(@D)/edition.c $(editions_obj) \
		-o $@ $(ALL_LDFLAGS) -ldl -lpthread

$(B)/editions/edition: $(B)/obj/tests/editions/edition.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl

CHECK_SIM += tests/editions/check-old-drivers
CHECK_WITH += $(editions) $(B)/editions/edition
