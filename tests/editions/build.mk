# SPDX-License-Identifier: MIT
# The driver's interface in the editions that Debian has. It downloads some 2 GB: make check does
# without, since check-table knows what it found.
check-editions: $(B)/unit/table_rows $(B)/libpindown.so
	@$(IN_BUILD) TEST_JOBS=1 tests/run tests/editions/check-editions

.PHONY: check-editions
