# SPDX-License-Identifier: MIT
# pindown for arm64, built on another machine and run by an emulator there: docs/internals/arm64.md.

check-arm64:
	@tests/arm64/run $(T)

# The tests that this build has.
arm64-list:
	@printf '%s\n' $(abspath $(CHECK_UNIT) $(CHECK_SIM) $(CHECK_TREE))
.PHONY: check-arm64 arm64-list
