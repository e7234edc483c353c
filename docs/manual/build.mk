# SPDX-License-Identifier: MIT
# Man pages. The list of variables in pindown(7) and that of options in pindown-run(1) come from the
# table in cache/base/environment/config.def.

man_made := $(B)/docs/pindown.7 $(B)/docs/pindown-run.1
MAN += $(wildcard docs/manual/*.[137]) $(man_made)
CHECK_WITH += $(man_made)

# It runs on the machine that builds.
man_sources := docs/manual/environment.c cache/base/thread/pthread.S \
	$(patsubst %,cache/base/%.c,environment/config environment/options environment/log \
		environment/event process/system)
ifeq ($(CROSS),)
$(B)/docs/environment: $(man_sources:%=$(B)/obj/%.o)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS)
else
$(B)/docs/environment: $(man_sources) cache/base/environment/config.def
	@mkdir -p $(@D)
	gcc -std=gnu11 $(INCLUDE) $(man_sources) -o $@
endif

$(B)/docs/pindown.7: docs/manual/pindown.7.in $(B)/docs/environment
	$(B)/docs/environment > $@.list
	sed -e '/^@ENVIRONMENT@$$/{r $@.list' -e 'd}' $< > $@
	@rm $@.list

$(B)/docs/pindown-run.1: docs/manual/pindown-run.1.in $(B)/docs/environment
	$(B)/docs/environment options > $@.list
	sed -e '/^@OPTIONS@$$/{r $@.list' -e 'd}' $< > $@
	@rm $@.list
