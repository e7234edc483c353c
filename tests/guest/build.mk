# SPDX-License-Identifier: MIT
# The kernel modules' tests, in a QEMU guest: see tests/guest/run. The modules themselves are built
# by that script, for the guest's kernel.

GUEST_SHARED := $(patsubst %,$(B)/obj/tests/%.c.o,guest/guest guest/devices unit/support/asleep)
GUEST_PROGRAMS := $(patsubst tests/guest/%.c,$(B)/guest/bin/%,$(wildcard tests/guest/test_*.c))

$(B)/obj/tests/guest/%.o: INCLUDE += -Itests/guest/peer -Itests/sim/nvidia_p2p -Ikmod -D_GNU_SOURCE

GUEST_CACHES := $(addprefix $(B)/guest/bin/,test_cache test_card)
$(filter-out $(GUEST_CACHES),$(GUEST_PROGRAMS)): $(B)/guest/bin/%: $(B)/obj/tests/guest/%.c.o \
		$(GUEST_SHARED)
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -lpthread

# The files that programs under pindown need there.
GUEST_BUILD := $(B)/libpindown.so $(B)/pindown $(B)/sim/libcuda.so.1 $(B)/apps/regions \
	$(addprefix $(B)/perftest/,libperftest_kernels.so libcudart.so)

# The registration cache's tests run under the library itself.
$(GUEST_CACHES): $(B)/guest/bin/%: $(B)/obj/tests/guest/%.c.o $(GUEST_SHARED) \
		$(B)/libpindown.so $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..:$$ORIGIN/../../sim' \
		-Wl,-rpath,'$$ORIGIN/../build:$$ORIGIN/../build/sim' -lpthread

CHECK_GUEST += tests/guest/check-guest
CHECK_TREE += tests/guest/check-fetch
ifeq ($(SAN)$(CROSS),)
CHECK_WITH += $(GUEST_PROGRAMS) $(GUEST_BUILD)
endif

# A sanitizer's runtime would find nothing in the guest, where the kernel is tested.
check-guest check-guest-debug: $(GUEST_PROGRAMS) $(GUEST_BUILD)
ifeq ($(SAN),)
	@$(IN_BUILD) tests/guest/run $(if $(filter %-debug,$@),--debug)
else
	@echo '$@: skipped under SAN=$(SAN): what it tests is the kernel'
endif

# The same on arm64 machines, with programs of a cross compiler, in a build folder of their own.
# There some of the library's own tests are run, too, with the libraries of Debian for arm64.
GUEST_UNITS := $(patsubst %,$(B)/%,$(shell sed -n 's|^unit .* /build/||p' \
	tests/guest/boots/units))
check-guest-arm64:
	@tests/arm64/sysroot build/arm64-sysroot
	+$(MAKE) CROSS=aarch64-linux-gnu- SYSROOT=build/arm64-sysroot B=$(B)/arm64 guest-programs \
		guest-units
	@failed=0; for kernel in $(ARM64_KERNELS); do \
		BUILD=$(abspath $(B)/arm64) tests/guest/run --arm64=$$kernel || failed=1; \
	done; exit $$failed
guest-programs: $(GUEST_PROGRAMS) $(GUEST_BUILD)
guest-units: $(GUEST_UNITS)
ARM64_KERNELS ?= own backports backports-16k 64k


# make fuzz T=ioctl: see tests/fuzz/run.
fuzz: $(if $(filter ioctl,$(T)),$(GUEST_PROGRAMS) $(GUEST_BUILD))
.PHONY: check-guest check-guest-debug check-guest-arm64 guest-programs guest-units
