# SPDX-License-Identifier: MIT
CHECK_TREE += tests/abi/check-releases tests/abi/check-older
