# SPDX-License-Identifier: MIT
# Programs that measure; tests/bench/run runs and compares them.

bench_bin := $(B)/bench
bench_obj := $(B)/obj/tests/bench

# They are linked with a libcuda.so.1 that has only the functions that they call; tests/bench/run
# chooses the one on which they run.
bench_cuda := calls stacks events resident hits patterns vectors objects
BENCH += $(addprefix $(bench_bin)/,$(bench_cuda) startup null/libcuda.so.1)

$(bench_bin)/null/libcuda.so.1: $(bench_obj)/null_cuda.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libcuda.so.1 $^ -o $@ $(ALL_LDFLAGS)

$(addprefix $(bench_bin)/,$(bench_cuda)): $(bench_bin)/%: $(bench_obj)/%.c.o \
		$(bench_bin)/null/libcuda.so.1
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) $(bench_bin)/null/libcuda.so.1 \
		$(bench_libs)
$(bench_bin)/calls: $(B)/obj/hook/loader/loaded/symtab.c.o
$(bench_bin)/resident: bench_libs := -lpthread
$(bench_bin)/events: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..' -lpthread
$(bench_bin)/events: $(B)/libpindown.so
$(bench_bin)/patterns: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..' -lm
$(bench_bin)/patterns: $(B)/libpindown.so
$(bench_bin)/vectors: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..'
$(bench_bin)/vectors: $(B)/libpindown.so
$(bench_bin)/objects: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..'
$(bench_bin)/objects: $(B)/libpindown.so
$(bench_bin)/hits: bench_libs = $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..' -lpthread
$(bench_bin)/hits: $(bench_obj)/hits_pindown.c.o $(B)/libpindown.so

# They map memory, or make graphs, which only the simulated driver and a real one can do.
bench_sim := $(bench_bin)/segment $(bench_bin)/graphs
BENCH += $(bench_sim)
$(bench_sim): $(bench_bin)/%: $(bench_obj)/%.c.o $(B)/sim/libcuda.so.1 $(B)/libpindown.so
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/..'

BENCH += $(bench_bin)/pace
$(bench_bin)/startup $(bench_bin)/pace: $(bench_bin)/%: $(bench_obj)/%.c.o
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

# The caches' programs: one for each cache, from the same main(). workloads compares them, and scale
# lets the number of regions, threads and devices grow.
bench_peers := pindown
# UCX's cache beside pindown's, of any version from 1.13 to 1.22: in UCX, a folder into which it is
# installed (include/, lib/) or an archive of one; tests/middleware/ucx.sh says which is taken if
# UCX is not set. Else where the compiler looks for its headers.
ucx_header_in = $(wildcard $(1)/include/ucs/memory/rcache.h)
ifneq ($(if $(UCX),$(call ucx_header_in,$(UCX))),)
ucx_root := $(abspath $(UCX))
else ifneq ($(filter bench%,$(MAKECMDGOALS)),)
ucx_root := $(shell . tests/middleware/ucx.sh && BUILD=$(abspath $(B)) UCX='$(UCX)' ucx_folder)
endif
ucx_header := $(if $(ucx_root),$(call ucx_header_in,$(ucx_root)))
ifneq ($(ucx_header),)
bench_peers += ucx
ucx_cflags := -isystem $(ucx_root)/include
ucx_libs := -L$(ucx_root)/lib -Wl,-rpath,$(ucx_root)/lib
else ifneq ($(if $(UCX),$(filter bench%,$(MAKECMDGOALS))),)
$(error UCX=$(UCX): there is no include/ucs/memory/rcache.h in it)
else ifeq ($(call has_header,ucs/memory/rcache.h),yes)
ucx_header = $(shell echo | $(CC) -E -M -x c -include ucs/memory/rcache.h - | tr ' ' '\n' | \
	grep -m 1 'ucs/memory/rcache.h$$')
bench_peers += ucx
endif
BENCH += $(bench_peers:%=$(bench_bin)/workloads-%) $(bench_peers:%=$(bench_bin)/scale-%) \
	$(bench_bin)/workloads-floor

bench_peer = $(CC) $(ALL_CFLAGS) $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) $(bench_peer_libs) -ldl \
	-lm -lpthread
$(bench_bin)/workloads-%: $(bench_obj)/workloads.c.o $(bench_obj)/peer_%.c.o
	@mkdir -p $(@D)
	$(bench_peer)
$(bench_bin)/scale-%: $(bench_obj)/scale.c.o $(bench_obj)/peer_%.c.o
	@mkdir -p $(@D)
	$(bench_peer)
$(addprefix $(bench_bin)/,workloads-ucx scale-ucx): bench_peer_libs = $(ucx_libs) -lucs -lucm
$(addprefix $(bench_bin)/,workloads-pindown scale-pindown): bench_peer_libs = \
	$(bench_bin)/null/libcuda.so.1 $(B)/libpindown.so -Wl,-rpath,'$$ORIGIN/..'
$(addprefix $(bench_bin)/,workloads-pindown scale-pindown): $(B)/libpindown.so \
		$(bench_bin)/null/libcuda.so.1

# The headers have no number of their version: their parts tell which arguments a call has. Another
# folder than the last time has these programs built again.
ucx_has = $(shell grep -qE '$(1)' '$(ucx_header)' && echo -DPEER_UCX_$(2))
ucx_flags = $(ucx_cflags) $(call ucx_has,size_t +max_alignment,ALIGNS_ALL) \
	$(call ucx_has,\(\*merge\),MERGES) $(call ucx_has,NEED_LRU_LOCK,LOCKS_LRU)
$(bench_obj)/peer_ucx.c.o: tests/bench/peer_ucx.c $(bench_bin)/ucx
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(CC) $(ALL_CFLAGS) $(INCLUDE) $(ucx_flags) -MMD -MP -c $< -o $@
$(bench_bin)/ucx: FORCE
	@mkdir -p $(@D)
	@echo '$(ucx_header)' | cmp -s - $@ || echo '$(ucx_header)' >$@
FORCE:

# Linked with the cache's objects. cache/build.mk has been read by now.
BENCH += $(bench_bin)/inside $(bench_bin)/misses
$(bench_bin)/inside: $(bench_bin)/null/libcuda.so.1
$(bench_bin)/misses: $(B)/sim/libcuda.so.1
$(bench_bin)/inside $(bench_bin)/misses: $(bench_bin)/%: $(bench_obj)/%.c.o \
		$(patsubst %,$(B)/obj/%.o,$(filter cache/%,$(LIB_SRC)))
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) $(filter %/libcuda.so.1,$^) \
		-ldl -lpthread

# The verbs wrappers, on a libibverbs that does nothing.
BENCH += $(bench_bin)/verbs
$(bench_bin)/null-verbs/libibverbs.so.1: $(bench_obj)/null_verbs.c.o tests/bench/null_verbs.map
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script=tests/bench/null_verbs.map $< -o $@ \
		$(ALL_LDFLAGS)
$(bench_bin)/verbs: $(bench_obj)/verbs.c.o $(B)/obj/hook/loader/loaded/symtab.c.o \
		$(B)/sim/libcuda.so.1 $(bench_bin)/null-verbs/libibverbs.so.1
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/null-verbs' -lpthread
