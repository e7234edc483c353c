# SPDX-License-Identifier: MIT
# Programs under the preload where they run: in containers, by schedulers, among strangers.
places_bin := $(B)/places
CHECK_SIM += $(wildcard tests/places/check-*)
CHECK_WITH += $(addprefix $(places_bin)/,forger confined)

$(places_bin)/forger: $(B)/obj/tests/places/forger.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)

# The engines' lists of system calls; a call that the headers of this system lack is left out.
$(places_bin)/%.h: tests/places/%.names
	@mkdir -p $(@D)
	sed 's/.*/#ifdef __NR_&\n__NR_&,\n#endif/' $< > $@
$(B)/obj/tests/places/confined.c.o: $(addprefix $(places_bin)/,docker.h podman.h)
$(B)/obj/tests/places/confined.c.o: ALL_CFLAGS += -I$(places_bin)
$(places_bin)/confined: $(B)/obj/tests/places/confined.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)
