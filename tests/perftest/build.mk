# SPDX-License-Identifier: MIT
# perftest on the software card. perftest itself is built by tests/perftest/build-perftest.
perftest_bin := $(B)/perftest

$(perftest_bin)/libperftest_kernels.so: $(B)/obj/tests/perftest/checker.c.o $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) $^ -o $@ $(ALL_LDFLAGS)
# perftest requires the CUDA runtime to be there before it loads its plugin. It calls none of it.
$(perftest_bin)/libcudart.so: tests/perftest/runtime.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) $< -o $@ $(ALL_LDFLAGS)
# perftest loads the driver by this name.
$(perftest_bin)/libcuda.so: $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	ln -sf ../sim/libcuda.so.1 $@

# Before the tests, since their time is limited. check-perftest says why it could not be built.
$(B)/peers/perftest/built:
	tests/perftest/build-perftest $(@D) >/dev/null || true

CHECK_WITH += $(B)/peers/perftest/built
CHECK_WITH += $(addprefix $(perftest_bin)/,libperftest_kernels.so libcudart.so libcuda.so)
CHECK_SIM += tests/perftest/check-perftest
