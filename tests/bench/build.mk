# SPDX-License-Identifier: MIT
# Programs that measure; tests/bench/run runs and compares them.

bench_bin := $(B)/bench
bench_obj := $(B)/obj/tests/bench

# Linked with a libcuda.so.1 that only has what they call; which one they run on is the runner's choice.
bench_cuda := calls stacks resident hits
$(bench_obj)/%: INCLUDE += -Ihook
BENCH += $(addprefix $(bench_bin)/,$(bench_cuda) startup null/libcuda.so.1)

$(bench_bin)/null/libcuda.so.1: $(bench_obj)/null_cuda.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libcuda.so.1 $^ -o $@ $(ALL_LDFLAGS)

$(addprefix $(bench_bin)/,$(bench_cuda)): $(bench_bin)/%: $(bench_obj)/%.c.o $(bench_bin)/null/libcuda.so.1
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) $(bench_bin)/null/libcuda.so.1 $(bench_libs)
$(bench_bin)/calls: $(B)/obj/hook/symtab.c.o
$(bench_bin)/resident: bench_libs := -lpthread
$(bench_bin)/hits: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..' -lpthread
$(bench_bin)/hits: $(bench_obj)/hits_pindown.c.o $(B)/libpindown.so

$(bench_bin)/startup: $(bench_obj)/startup.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# UCX's cache beside ours, where its headers are.
ifneq ($(wildcard /usr/include/ucs/memory/rcache.h),)
BENCH += $(bench_bin)/hits_ucx
$(bench_bin)/hits_ucx: $(bench_obj)/hits.c.o $(bench_obj)/hits_ucx.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -lucs -lpthread
endif
