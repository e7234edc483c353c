# SPDX-License-Identifier: MIT
# The programs of tests/gpu/run. They are linked with the simulated libcuda.so.1 and run on the real
# one, which has the same name.

gpu_bin := $(B)/gpu

$(gpu_bin)/miss: $(B)/obj/tests/gpu/miss.c.o $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)
$(gpu_bin)/pins: $(B)/obj/tests/gpu/pins.c.o $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)
# Its libibverbs.so.1 is the recording one on a real GPU, too.
$(gpu_bin)/verbs: $(B)/obj/tests/gpu/verbs.c.o $(apps_cuda) $(B)/verbs/libibverbs.so.1
	$(apps_link) $^ -o $@ $(apps_libs)
CHECK_WITH += $(gpu_bin)/verbs

# Registrations that the program holds over the free; a few seconds on the simulated driver, too.
$(gpu_bin)/held: $(B)/obj/tests/gpu/held.c.o $(apps_cuda) $(B)/verbs/libibverbs.so.1
	$(apps_link) $^ -o $@ $(apps_libs)
CHECK_WITH += $(gpu_bin)/held

# All processors use memory while it is freed; for a few seconds on the simulated driver, too.
$(gpu_bin)/races: $(patsubst %,$(B)/obj/tests/gpu/%.c.o,races races_slots races_kinds races_crash) \
		$(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)
CHECK_WITH += $(gpu_bin)/races
CHECK_SIM += tests/gpu/check-races tests/gpu/check-no-gpu

# The driver is asked about memory that others free; on the simulated driver, too.
$(gpu_bin)/asked: $(B)/obj/tests/gpu/asked.c.o $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)
CHECK_WITH += $(gpu_bin)/asked

# Another process makes checkpoints; for a real GPU (tests/apps/checkpointed is for the simulated
# one, whose dma-bufs can be read).
$(gpu_bin)/checkpoint: $(B)/obj/tests/gpu/checkpoint.c.o $(apps_cuda) $(B)/verbs/libibverbs.so.1
	$(apps_link) $^ -o $@ $(apps_libs)

# Memory that is unmapped and mapped again under registrations.
$(gpu_bin)/sleep: $(B)/obj/tests/gpu/sleep.c.o $(apps_cuda) $(B)/verbs/libibverbs.so.1 \
		$(B)/libpindown.so
	$(apps_link) $^ -o $@ $(apps_libs)
CHECK_WITH += $(gpu_bin)/sleep
CHECK_SIM += tests/gpu/check-sleep tests/gpu/check-segments

# CUDA's runtime, as programs are linked with it; only for machines that have its compiler.
gpu_runtime := $(addprefix $(gpu_bin)/runtime-,static static-per-thread shared shared-per-thread)
$(gpu_runtime): tests/gpu/runtime.cu
	@mkdir -p $(@D)
	nvcc -O1 --cudart $(if $(findstring static,$@),static,shared) \
		--default-stream $(if $(findstring per-thread,$@),per-thread,legacy) -o $@ $<

gpu-programs: $(apps_built) $(DEMO_WITH) $(BENCH) \
	$(addprefix $(gpu_bin)/,miss pins verbs held races asked checkpoint sleep)
gpu-runtime: $(gpu_runtime)
.PHONY: gpu-programs gpu-runtime
