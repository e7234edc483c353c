# SPDX-License-Identifier: MIT
# The software card: build/softnic/libibverbs.so.1. Programs find it through LD_LIBRARY_PATH; it is
# never installed. It is built with rdma-core's header, where that is installed.

ifeq ($(call has_header,infiniband/verbs.h),yes)
softnic_bin := $(B)/softnic
softnic_obj := $(B)/obj/tests/softnic
SOFTNIC_LIB := $(softnic_bin)/libibverbs.so.1
softnic_src := access checks completion datagram device extended gpu memory names options post \
	queue_pair receive refused requester responder transport

$(SOFTNIC_LIB): $(softnic_src:%=$(softnic_obj)/%.c.o) tests/softnic/libibverbs.map
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script=tests/softnic/libibverbs.map $(filter %.o,$^) -o $@ \
		$(ALL_LDFLAGS) -ldl -lpthread

CHECK_WITH += $(SOFTNIC_LIB)

SOFTNIC_TESTS := $(addprefix $(softnic_bin)/,test_softnic test_softnic_errors)
CHECK_UNIT += $(SOFTNIC_TESTS)
$(SOFTNIC_TESTS): $(softnic_bin)/%: $(softnic_obj)/%.c.o $(softnic_obj)/end.c.o \
		$(softnic_obj)/partner.c.o $(B)/obj/tests/unit/support/suite.c.o $(SIM) \
		$(SOFTNIC_LIB)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../sim:$$ORIGIN' \
		$(CHECK_LIBS) -ldl -lpthread

# Programs that free memory early under a registration that their middleware keeps.
STALE := ucx libfabric grdma nixl nccl
STALE_BIN := $(STALE:%=$(softnic_bin)/stale-%)
$(softnic_bin)/libstale_%.so: $(softnic_obj)/stale/%.c.o $(softnic_obj)/stale/cache.c.o $(SIM) \
		$(SOFTNIC_LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) $^ -o $@ $(ALL_LDFLAGS)
# What endure.c says, for as many rounds as one wants.
ENDURE_BIN := $(addprefix $(softnic_bin)/endure-,libfabric grdma nccl)
$(STALE_BIN): $(softnic_bin)/stale-%: $(softnic_obj)/stale/program.c.o $(softnic_bin)/libstale_%.so
$(ENDURE_BIN): $(softnic_bin)/endure-%: $(softnic_obj)/stale/endure.c.o $(softnic_bin)/libstale_%.so
$(STALE_BIN) $(ENDURE_BIN): $(softnic_obj)/stale/card.c.o $(SIM) $(SOFTNIC_LIB)
	$(CC) $(ALL_CFLAGS) $(filter %.o,$^) $(filter %.so %.so.1,$^) -o $@ $(ALL_LDFLAGS) \
		-Wl,-rpath,'$$ORIGIN/../sim:$$ORIGIN' -lpthread
$(softnic_bin)/stale-two: $(softnic_obj)/stale/two.c.o $(softnic_obj)/stale/card.c.o $(SIM) \
		$(SOFTNIC_LIB) $(STALE:%=$(softnic_bin)/libstale_%.so)
	$(CC) $(ALL_CFLAGS) $(filter-out $(softnic_bin)/libstale_%,$^) \
		-o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../sim:$$ORIGIN' -ldl -lpthread
CHECK_WITH += $(STALE_BIN) $(ENDURE_BIN) $(softnic_bin)/stale-two
endif

# Without the header they say so and are skipped.
CHECK_SIM += tests/softnic/check-softnic tests/softnic/check-stale
CHECK_SIM += tests/softnic/check-softnic-ucx tests/softnic/check-softnic-gtest
