# SPDX-License-Identifier: MIT
# The recording libibverbs: build/verbs/libibverbs.so.1, and as an older rdma-core build/verbs/old. Found by
# programs through LD_LIBRARY_PATH, never installed.

verbs_bin := $(B)/verbs
verbs_obj := $(B)/obj/tests/verbs
VERBS_LIB := $(verbs_bin)/libibverbs.so.1
verbs_old := $(verbs_bin)/old/libibverbs.so.1
recorder_src := recorder recorder_control recorder_mr recorder_other recorder_rdma

$(verbs_obj)/%: INCLUDE += -Ihook -Itests/sim -Itests/verbs

verbs_link = @mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
	-Wl,--version-script=tests/verbs/libibverbs.map $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) -lpthread

$(verbs_obj)/old/%.c.o: tests/verbs/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DRECORDER_OLD $(INCLUDE) -MMD -MP -c $< -o $@

$(VERBS_LIB): $(recorder_src:%=$(verbs_obj)/%.c.o) tests/verbs/libibverbs.map
	$(verbs_link)
$(verbs_old): $(recorder_src:%=$(verbs_obj)/old/%.c.o) tests/verbs/libibverbs.map
	$(verbs_link)

CHECK_WITH += $(VERBS_LIB) $(verbs_old)

# Tests of the wrappers, with the Check library. They preload libpindown.so themselves.
VERBS_TESTS := test_verbs test_verbs_flags test_verbs_ends
VERBS_TESTS_BIN := $(VERBS_TESTS:%=$(verbs_bin)/%)
CHECK_UNIT += $(VERBS_TESTS_BIN)
$(VERBS_TESTS_BIN): $(verbs_bin)/%: $(verbs_obj)/%.c.o $(verbs_obj)/verbs_test.c.o $(B)/obj/hook/symtab.c.o \
		$(SIM) $(VERBS_LIB) $(B)/libpindown.so
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../sim:$$ORIGIN:$$ORIGIN/..' $(CHECK_LIBS) \
		-ldl -lpthread
