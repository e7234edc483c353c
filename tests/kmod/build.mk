# SPDX-License-Identifier: MIT
# pindown.ko compiles in all its variants. Its behaviour is tested in the guest, see tests/guest.
check-kmod:
	@tests/kmod/check-kmod $(if $(filter command environment,$(origin KDIR)),'$(KDIR)')
.PHONY: check-kmod
