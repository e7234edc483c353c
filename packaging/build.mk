# SPDX-License-Identifier: MIT
# Packages, each from a release that is made of this tree: see packaging/README.md.

release := $(shell packaging/release version)

dist:
	packaging/dist $(B)/pindown-$(release).tar.gz
	@echo "$(B)/pindown-$(release).tar.gz"

# dpkg's tools get nothing of this make but the number of compilers.
deb:
	packaging/deb $(B)/deb
deb-module:
	@if ! test -e '$(KDIR)/include/generated/utsrelease.h'; then \
		echo "make deb-module: no headers of a built kernel at '$(KDIR)': give KDIR=" >&2; \
		exit 1; fi
	packaging/deb --module '$(KDIR)' $(B)/deb
rpm:
	packaging/rpm/build $(B)/rpm

.PHONY: dist deb deb-module rpm
