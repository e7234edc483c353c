# SPDX-License-Identifier: MIT
# Man pages. The list of variables in pindown(7) and that of options in pindown-run(1) come from the
# table in cache/base/config.def.

man_made := $(B)/docs/pindown.7 $(B)/docs/pindown-run.1
MAN += $(wildcard docs/*.[137]) $(man_made)
CHECK_WITH += $(man_made)

$(B)/docs/environment: $(B)/obj/docs/environment.c.o $(B)/cache.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl -lpthread

$(B)/docs/pindown.7: docs/pindown.7.in $(B)/docs/environment
	$(B)/docs/environment > $@.list
	sed -e '/^@ENVIRONMENT@$$/{r $@.list' -e 'd}' $< > $@
	@rm $@.list

$(B)/docs/pindown-run.1: docs/pindown-run.1.in $(B)/docs/environment
	$(B)/docs/environment options > $@.list
	sed -e '/^@OPTIONS@$$/{r $@.list' -e 'd}' $< > $@
	@rm $@.list
