# SPDX-License-Identifier: MIT
# Man pages. The environment's part of pindown(7) comes from the table in cache/config.def.

MAN += $(wildcard docs/*.[137]) $(B)/docs/pindown.7
CHECK_WITH += $(B)/docs/pindown.7

$(B)/docs/environment: $(B)/obj/docs/environment.c.o $(B)/cache.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl -lpthread

$(B)/docs/pindown.7: docs/pindown.7.in $(B)/docs/environment
	$(B)/docs/environment > $@.list
	sed -e '/^@ENVIRONMENT@$$/{r $@.list' -e 'd}' $< > $@
	rm $@.list
