# SPDX-License-Identifier: MIT
# Programs under the preload where they run: in containers, by schedulers, among strangers.
places_bin := $(B)/places
CHECK_SIM += $(wildcard tests/places/check-*)
CHECK_WITH += $(addprefix $(places_bin)/,forger)

$(places_bin)/forger: $(B)/obj/tests/places/forger.c.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)
