# SPDX-License-Identifier: MIT
# pindown.ko compiles in all its variants. Its behaviour is tested in the guest, see tests/guest.
check-kmod:
	@tests/kmod/check-kmod $(if $(filter command environment,$(origin KDIR)),'$(KDIR)')
# The same for kernels of arm64, with a cross compiler.
check-kmod-arm64:
	@tests/kmod/check-kmod --arm64
.PHONY: check-kmod check-kmod-arm64
