# SPDX-License-Identifier: MIT
# Programs that measure; tests/bench/run runs and compares them.

bench_bin := $(B)/bench
bench_obj := $(B)/obj/tests/bench

# They are linked with a libcuda.so.1 that has only the functions that they call; tests/bench/run
# chooses the one on which they run.
bench_cuda := calls stacks events resident hits patterns vectors
BENCH += $(addprefix $(bench_bin)/,$(bench_cuda) startup null/libcuda.so.1)

$(bench_bin)/null/libcuda.so.1: $(bench_obj)/null_cuda.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libcuda.so.1 $^ -o $@ $(ALL_LDFLAGS)

$(addprefix $(bench_bin)/,$(bench_cuda)): $(bench_bin)/%: $(bench_obj)/%.c.o \
		$(bench_bin)/null/libcuda.so.1
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) $(bench_bin)/null/libcuda.so.1 \
		$(bench_libs)
$(bench_bin)/calls: $(B)/obj/hook/loader/symtab.c.o
$(bench_bin)/resident: bench_libs := -lpthread
$(bench_bin)/events: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..' -lpthread
$(bench_bin)/events: $(B)/libpindown.so
$(bench_bin)/patterns: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..' -lm
$(bench_bin)/patterns: $(B)/libpindown.so
$(bench_bin)/vectors: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..'
$(bench_bin)/vectors: $(B)/libpindown.so
$(bench_bin)/hits: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..' -lpthread
$(bench_bin)/hits: $(bench_obj)/hits_pindown.c.o $(B)/libpindown.so

# It maps memory, which only the simulated driver and a real one can do.
BENCH += $(bench_bin)/segment
$(bench_bin)/segment: $(bench_obj)/segment.c.o $(B)/sim/libcuda.so.1 $(B)/libpindown.so
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/..'

$(bench_bin)/startup: $(bench_obj)/startup.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# Compares system calls that could tell which file a descriptor is.
BENCH += $(bench_bin)/descriptors
$(bench_bin)/descriptors: $(bench_obj)/descriptors.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# Compares ways to write an event into the trace's file.
BENCH += $(bench_bin)/trace_ways
$(bench_bin)/trace_ways: $(bench_obj)/trace_ways.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -lpthread

# The cache's workloads: one program for each cache, from the same main().
bench_workloads := pindown floor
# UCX's cache beside pindown's, if its headers are installed.
ifeq ($(call has_header,ucs/memory/rcache.h),yes)
bench_workloads += ucx
endif
BENCH += $(bench_workloads:%=$(bench_bin)/workloads-%) $(bench_bin)/inside

$(bench_bin)/workloads-%: $(bench_obj)/workloads.c.o $(bench_obj)/peer_%.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) $(bench_peer_libs) -lm -lpthread
$(bench_bin)/workloads-ucx: bench_peer_libs := -lucs -lucm
$(bench_bin)/workloads-pindown: bench_peer_libs = $(bench_bin)/null/libcuda.so.1 \
		$(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..'
$(bench_bin)/workloads-pindown: $(B)/libpindown.so $(bench_bin)/null/libcuda.so.1

# cache/build.mk has been read by now.
$(bench_bin)/inside: $(bench_obj)/inside.c.o \
		$(patsubst %,$(B)/obj/%.o,$(filter cache/%,$(LIB_SRC))) \
		$(bench_bin)/null/libcuda.so.1
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) $(bench_bin)/null/libcuda.so.1 \
		-ldl -lpthread

# The verbs wrappers, on a libibverbs that does nothing.
BENCH += $(bench_bin)/verbs
$(bench_bin)/null-verbs/libibverbs.so.1: $(bench_obj)/null_verbs.c.o tests/bench/null_verbs.map
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script=tests/bench/null_verbs.map $< -o $@ \
		$(ALL_LDFLAGS)
$(bench_bin)/verbs: $(bench_obj)/verbs.c.o $(B)/obj/hook/loader/symtab.c.o $(B)/sim/libcuda.so.1 \
		$(bench_bin)/null-verbs/libibverbs.so.1
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/null-verbs' -lpthread
