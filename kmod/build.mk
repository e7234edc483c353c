# SPDX-License-Identifier: MIT
# The kernel module. Not part of `make`: it needs a kernel's headers.
#
#   make kmod [KDIR=folder] [NVIDIA_SRC=folder|none] [PINDOWN_SIM=1] [PINDOWN_WERROR=1]
#
# leaves build/kmod/pindown.ko. It is built there, from links to the sources, so that nothing is
# written among them.

KDIR ?= /lib/modules/$(shell uname -r)/build
KMOD_SRC := $(wildcard kmod/*.c kmod/*.h kmod/Kbuild)

# Options given to this make reach the kernel's by themselves.
kmod:
	@if ! test -e '$(KDIR)/Makefile'; then \
		echo "make kmod: no kernel headers at '$(KDIR)': install linux-headers-$$(uname -r)," \
			"or give KDIR=" >&2; exit 1; fi
	@mkdir -p $(B)/kmod
	@ln -sf $(addprefix $(CURDIR)/,$(KMOD_SRC)) $(B)/kmod/
	+$(MAKE) -C '$(KDIR)' M=$(abspath $(B)/kmod) modules

# DKMS source, the device's rule, and the header of its calls. No module is built or loaded.
KMOD_VERSION := $(shell sed -n 's/^.define PD_RELEASE "\(.*\)"/\1/p' kmod/internal.h)
KMOD_DEST = $(DESTDIR)$(PREFIX)/src/pindown-$(KMOD_VERSION)

install: install-kmod
install-kmod:
	install -d $(KMOD_DEST) $(DESTDIR)$(PREFIX)/lib/udev/rules.d $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(KMOD_SRC) kmod/dkms.conf kmod/pindown.conf.example $(KMOD_DEST)/
	install -m 644 kmod/70-pindown.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d/
	install -m 644 kmod/pindown_ioctl.h $(DESTDIR)$(INCLUDEDIR)/

MAN += kmod/pindown.4

.PHONY: kmod install-kmod
