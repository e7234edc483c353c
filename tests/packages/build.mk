# SPDX-License-Identifier: MIT
# Tests of packaging/. Those that build packages take a minute or two each, and tools that nothing
# else needs: make check does without them.
CHECK_TREE += tests/packages/check-packaging tests/packages/check-signing

check-packages: $(B)/apps/regions $(B)/sim/libcuda.so.1
	@$(IN_BUILD) TEST_JOBS=1 TEST_TIMEOUT=1800 tests/run tests/packages/check-packages \
		tests/packages/check-rpm

.PHONY: check-packages
