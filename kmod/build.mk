# SPDX-License-Identifier: MIT
# The kernel module. It is not part of `make`, since it needs a kernel's headers.
#
#   make kmod [KDIR=folder] [NVIDIA_SRC=folder|none] [PINDOWN_SIM=1] [PINDOWN_WERROR=1]
#
# makes build/kmod/pindown.ko. It is built there from links to the sources, so that the build writes
# nothing beside them.

KDIR ?= /lib/modules/$(shell uname -r)/build
KMOD_SRC := $(wildcard kmod/*.c kmod/*.h kmod/Kbuild)

# Variables given to this make are passed on to the kernel's make.
kmod:
	@if ! test -e '$(KDIR)/Makefile'; then \
		echo "make kmod: no kernel headers at '$(KDIR)':" \
			"install linux-headers-$$(uname -r), or give KDIR=" >&2; exit 1; fi
	@mkdir -p $(B)/kmod
	@ln -sf $(addprefix $(CURDIR)/,$(KMOD_SRC)) $(B)/kmod/
	+$(MAKE) -C '$(KDIR)' M=$(abspath $(B)/kmod) modules

# Installs the DKMS source, the device's udev rule, and the ioctl header. Builds and loads nothing.
KMOD_VERSION := $(shell sed -n 's/^.define PDN_RELEASE "\(.*\)"/\1/p' kmod/internal.h)
KMOD_DEST = $(DESTDIR)$(PREFIX)/src/pindown-$(KMOD_VERSION)

install: install-kmod
install-kmod:
	install -d $(KMOD_DEST) $(DESTDIR)$(PREFIX)/lib/udev/rules.d $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(KMOD_SRC) kmod/dkms.conf kmod/pindown.conf.example $(KMOD_DEST)/
	install -m 644 kmod/70-pindown.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d/
	install -m 644 kmod/pindown_ioctl.h $(DESTDIR)$(INCLUDEDIR)/

INSTALLED += $(PREFIX)/src/pindown-$(KMOD_VERSION)/pindown.conf.example \
	$(addprefix $(PREFIX)/src/pindown-$(KMOD_VERSION)/,$(notdir $(KMOD_SRC)) dkms.conf) \
	$(PREFIX)/lib/udev/rules.d/70-pindown.rules $(INCLUDEDIR)/pindown_ioctl.h
INSTALLED_FOLDERS += $(PREFIX)/src/pindown-$(KMOD_VERSION)

MAN += kmod/pindown.4

.PHONY: kmod install-kmod
