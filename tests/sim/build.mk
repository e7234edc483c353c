# SPDX-License-Identifier: MIT
# The simulated CUDA driver: build/sim/libcuda.so.1. Programs find it through LD_LIBRARY_PATH; it is
# never installed.

SIM_SRC := $(wildcard tests/sim/*.c)
SIM_OBJ := $(patsubst %,$(B)/obj/%.o,$(SIM_SRC))
SIM := $(B)/sim/libcuda.so.1

$(B)/obj/tests/sim/%.o: INCLUDE += -Itests/sim -D_GNU_SOURCE

# Like NVIDIA's driver, it binds its calls of its own exports to itself.
$(SIM): $(SIM_OBJ) tests/sim/build.mk
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,now \
		-Wl,--no-undefined $(SIM_OBJ) -o $@ $(ALL_LDFLAGS) -ldl -lpthread
	@ln -sf libcuda.so.1 $(@D)/libcuda.so

$(B)/sim/libcuda.so: $(SIM) ;

# Questions to a driver, asked of the simulated one by the tests.
SIM_FACTS := $(B)/sim/facts
$(SIM_FACTS): $(patsubst %,$(B)/obj/%.o,$(wildcard tests/sim/facts/*.c)) $(SIM)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl -lpthread

CHECK_SIM += tests/sim/check-facts tests/sim/check-platforms tests/sim/check-overlaps
CHECK_WITH += $(SIM_FACTS)

ALL += $(SIM)
CHECK_WITH += $(SIM)
DEMO_WITH += $(SIM)
