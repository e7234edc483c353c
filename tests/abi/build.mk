# SPDX-License-Identifier: MIT
CHECK_TREE += tests/abi/check-releases tests/abi/check-older
CHECK_GUEST += tests/abi/check-older-guest
