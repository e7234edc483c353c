# SPDX-License-Identifier: MIT
# Programs whose middleware registers GPU memory itself.
middleware_bin := $(B)/middleware
middleware_obj := $(B)/obj/tests/middleware
middleware_built := $(middleware_bin)/exporting $(middleware_bin)/libmiddle.so

$(middleware_bin)/libmiddle.so: $(middleware_obj)/middle.c.o $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libmiddle.so $^ -o $@ $(ALL_LDFLAGS)
$(middleware_bin)/exporting: $(middleware_obj)/exporting.c.o $(middleware_bin)/libmiddle.so \
		$(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN' -lpthread

# The example of the documents, with the public header and a stand-in for cuda.h.
middleware_built += $(middleware_bin)/attach
$(middleware_bin)/attach: docs/examples/attach.c tests/middleware/cuda.h tests/middleware/middle.h \
		cache/pindown.h $(B)/libpindown.so $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(filter-out -Wextra,$(ALL_CFLAGS)) -Itests/middleware -Icache $(INCLUDE) \
		docs/examples/attach.c -o $@ $(ALL_LDFLAGS) -L$(B) -lpindown $(B)/sim/libcuda.so.1

# How other caches would sit on the API; pindown is looked up at run time.
middleware_examples := ucx_rcache libfabric_mr nixl_backend
middleware_built += $(addprefix $(middleware_bin)/,$(middleware_examples))
$(addprefix $(middleware_bin)/,$(middleware_examples)): $(middleware_bin)/%: docs/examples/%.c \
		tests/middleware/cuda.h tests/middleware/middle.h cache/pindown.h \
		cache/pindown_dl.h $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Itests/middleware -Icache $(INCLUDE) $< -o $@ $(ALL_LDFLAGS) \
		$(B)/sim/libcuda.so.1 -ldl

# Stand-ins for UCX's libucm, and a program that frees memory.
middleware_built += $(addprefix $(middleware_bin)/,libtold_a.so libtold_b.so told)
$(middleware_bin)/libtold_%.so: tests/middleware/told.c tests/middleware/cuda.h \
		$(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Itests/middleware -Icache $(INCLUDE) -DTOLD_NAME='"$*"' -shared $< \
		-o $@ $(ALL_LDFLAGS) $(B)/sim/libcuda.so.1 -ldl
$(middleware_bin)/told: tests/middleware/told.c tests/middleware/cuda.h cache/pindown_dl.h \
		$(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Itests/middleware -Icache $(INCLUDE) $< -o $@ $(ALL_LDFLAGS) \
		$(B)/sim/libcuda.so.1 -ldl

CHECK_SIM += tests/middleware/check-exports tests/middleware/check-example \
	tests/middleware/check-dl tests/middleware/check-told
CHECK_WITH += $(middleware_built)

# UCX's own tests, if UCX is installed.
ucx_bin := $(B)/middleware/ucx
$(ucx_bin)/libnvidia-ml.so.1: tests/middleware/ucx_support.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DUCX_NVML -shared -Wl,-soname,$(@F) $< -o $@ $(ALL_LDFLAGS)
$(ucx_bin)/libcontext.so: tests/middleware/ucx_support.c $(SIM)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -shared $^ -o $@ $(ALL_LDFLAGS)
$(ucx_bin)/libdevice.so: tests/middleware/ucx_device.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared $^ -o $@ $(ALL_LDFLAGS)
# In a folder of its own: NVIDIA's is used where this one isn't wanted.
$(ucx_bin)/cudart/libcudart.so.13: $(middleware_obj)/ucx_cudart.c.o \
		tests/middleware/ucx_cudart.map $(B)/sim/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) -Wl,--no-undefined \
		-Wl,--version-script=tests/middleware/ucx_cudart.map \
		$(filter-out %.map,$^) -o $@ $(ALL_LDFLAGS)
ucx_built := $(addprefix $(ucx_bin)/,libnvidia-ml.so.1 libcontext.so libdevice.so \
	cudart/libcudart.so.13)
CHECK_WITH += $(ucx_built)
CHECK_SIM += tests/middleware/check-ucx
