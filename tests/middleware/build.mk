# SPDX-License-Identifier: MIT
# Programs with middleware that registers GPU memory itself.
middleware_bin := $(B)/middleware
middleware_obj := $(B)/obj/tests/middleware
$(middleware_obj)/%: INCLUDE += -Ihook
middleware_built := $(middleware_bin)/exporting $(middleware_bin)/libmiddle.so

$(middleware_bin)/libmiddle.so: $(middleware_obj)/middle.c.o $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libmiddle.so $^ -o $@ $(ALL_LDFLAGS)
$(middleware_bin)/exporting: $(middleware_obj)/exporting.c.o $(middleware_bin)/libmiddle.so $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN' -lpthread

CHECK_SIM += tests/middleware/check-exports
CHECK_WITH += $(middleware_built)
