# SPDX-License-Identifier: MIT
# The recording libibverbs and libmlx5: build/verbs/lib*.so.1, and the first as of an older
# rdma-core in build/verbs/old. Programs find them through LD_LIBRARY_PATH; they are never
# installed.

verbs_bin := $(B)/verbs
verbs_obj := $(B)/obj/tests/verbs
VERBS_LIB := $(verbs_bin)/libibverbs.so.1
verbs_old := $(verbs_bin)/old/libibverbs.so.1
MLX5_LIB := $(verbs_bin)/libmlx5.so.1
recorder_src := recorder recorder_control recorder_mr recorder_other recorder_rdma recorder_umem

verbs_link = @mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
	-Wl,--version-script=tests/verbs/libibverbs.map $(filter %.o,$^) -o $@ $(ALL_LDFLAGS) \
		-lpthread

$(verbs_obj)/old/%.c.o: tests/verbs/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DRECORDER_OLD $(INCLUDE) -MMD -MP -c $< -o $@

$(VERBS_LIB): $(recorder_src:%=$(verbs_obj)/%.c.o) tests/verbs/libibverbs.map
	$(verbs_link)
$(verbs_old): $(recorder_src:%=$(verbs_obj)/old/%.c.o) tests/verbs/libibverbs.map
	$(verbs_link)

$(MLX5_LIB): $(verbs_obj)/recorder_mlx5.c.o tests/verbs/libmlx5.map $(VERBS_LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libmlx5.so.1 \
		-Wl,--version-script=tests/verbs/libmlx5.map $< $(VERBS_LIB) -o $@ $(ALL_LDFLAGS)

CHECK_WITH += $(VERBS_LIB) $(verbs_old) $(MLX5_LIB)

# Tests of the wrappers, with the Check library. They preload libpindown.so themselves.
VERBS_TESTS := test_verbs test_verbs_dmabuf test_verbs_dmabuf_left test_verbs_flags \
	test_verbs_ends test_verbs_rereg test_verbs_threads test_verbs_mapping test_verbs_mlx5 \
	test_verbs_umem test_verbs_segment test_verbs_windows test_verbs_retire test_verbs_kept \
	test_verbs_retire_rare test_verbs_stale
VERBS_TESTS_BIN := $(VERBS_TESTS:%=$(verbs_bin)/%)
CHECK_UNIT += $(VERBS_TESTS_BIN)
$(VERBS_TESTS_BIN) $(verbs_bin)/test_verbs_modes $(verbs_bin)/test_verbs_parts: $(verbs_bin)/%: \
		$(verbs_obj)/%.c.o $(verbs_obj)/verbs_test.c.o \
		$(patsubst %,$(B)/obj/tests/unit/support/%.c.o,asleep descriptors) $(UNIT_SUITE) \
		$(B)/obj/hook/loader/loaded/symtab.c.o $(SIM) $(VERBS_LIB) $(MLX5_LIB) \
		$(B)/libpindown.so
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) \
		-Wl,-rpath,'$$ORIGIN/../sim:$$ORIGIN:$$ORIGIN/..' $(CHECK_LIBS) -ldl -lpthread
$(addprefix $(verbs_bin)/test_verbs_,dmabuf dmabuf_left retire kept): $(verbs_obj)/dmabuf_test.c.o
$(addprefix $(verbs_bin)/test_verbs_,retire kept): $(verbs_obj)/retire_test.c.o

# One program with a name for each configuration.
VERBS_MODES := $(addprefix $(verbs_bin)/test_verbs_,exact off revoke none few keep)
CHECK_UNIT += $(VERBS_MODES)
$(VERBS_MODES): $(verbs_bin)/test_verbs_modes
	@ln -f $< $@

VERBS_PARTS := $(addprefix $(verbs_bin)/test_verbs_parts_,keep warn revoke retire)
CHECK_UNIT += $(VERBS_PARTS)
$(VERBS_PARTS): $(verbs_bin)/test_verbs_parts
	@ln -f $< $@

# The same with a trace.
CHECK_UNIT += $(verbs_bin)/test_verbs_threads_traced
$(verbs_bin)/test_verbs_threads_traced: $(verbs_bin)/test_verbs_threads
	@ln -f $< $@

# The same programs with another setting.
CHECK_UNIT += $(verbs_bin)/test_verbs_mapping_pcie $(verbs_bin)/test_verbs_windows_keep
$(verbs_bin)/test_verbs_mapping_pcie: $(verbs_bin)/test_verbs_mapping
	@ln -f $< $@
$(verbs_bin)/test_verbs_windows_keep: $(verbs_bin)/test_verbs_windows
	@ln -f $< $@

verbs_app = @mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(INCLUDE)
verbs_libs = $(ALL_LDFLAGS) -ldl -lpthread

# Several copies of libibverbs in one process.
verbs_renamed := $(verbs_bin)/libibverbs-1de1263b.so.1.14.48.0
verbs_copies := $(addprefix $(verbs_bin)/copy-,system.so renamed.so static.so static-again.so \
	more.so shim.so)
$(verbs_renamed): $(recorder_src:%=$(verbs_obj)/%.c.o) tests/verbs/libibverbs.map
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(@F) -Wl,-Bsymbolic \
		-Wl,--version-script=tests/verbs/libibverbs.map $(filter %.o,$^) -o $@ \
		$(ALL_LDFLAGS) -lpthread
copy_plugin = $(verbs_app) -shared -fvisibility=default -DCOPIES_PLUGIN tests/verbs/copies.c
$(verbs_copies) $(verbs_bin)/copies: tests/verbs/copies.c tests/verbs/recorder.h hook/verbs/abi.h
$(verbs_bin)/copy-system.so: $(VERBS_LIB) $(SIM)
	$(copy_plugin) $(VERBS_LIB) $(SIM) -o $@ $(verbs_libs)
$(verbs_bin)/copy-renamed.so: $(verbs_renamed) $(SIM)
	$(copy_plugin) $(verbs_renamed) $(SIM) -o $@ $(verbs_libs)
$(verbs_obj)/static/%.c.o: tests/verbs/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DRECORDER_STATIC $(INCLUDE) -MMD -MP -c $< -o $@
$(addprefix $(verbs_bin)/copy-,static.so static-again.so more.so): \
		$(recorder_src:%=$(verbs_obj)/static/%.c.o) $(SIM)
	$(copy_plugin) $(filter %.o,$^) $(SIM) -o $@ $(verbs_libs)
# Without DT_GNU_HASH.
$(verbs_bin)/copy-more.so: verbs_libs += -Wl,--hash-style=sysv
$(verbs_bin)/copy-shim.so: tests/verbs/copies_shim.c $(verbs_renamed) $(SIM)
	$(copy_plugin) '-DSHIM_OPENS="$(notdir $(verbs_renamed))"' $< $(SIM) -o $@ $(verbs_libs)
$(verbs_bin)/copies-linked: tests/verbs/copies_linked.c $(VERBS_LIB) $(verbs_renamed) $(SIM)
	$(verbs_app) -Wl,--no-as-needed $^ -o $@ $(verbs_libs)
$(verbs_bin)/copies: tests/verbs/copies.c
	$(verbs_app) $< -o $@ $(verbs_libs)
CHECK_WITH += $(verbs_copies) $(verbs_bin)/copies $(verbs_bin)/copies-linked
CHECK_SIM += tests/verbs/check-verbs-copies

# A program on each road to libibverbs.
verbs_deps = tests/verbs/recorder.h hook/verbs/abi.h $(VERBS_LIB) $(MLX5_LIB) $(SIM)
mlx5_libs = $(SIM) $(VERBS_LIB) $(MLX5_LIB)
verbs_apps := $(addprefix $(verbs_bin)/,libfinds.so finds app-linked app-noplt app-table \
	app-global app-old app-held app-mlx5-linked app-mlx5-noplt app-mlx5-table \
	app-mlx5-global plugin plugin-table.so plugin-linked.so plugin-mlx5-table.so \
	plugin-mlx5-linked.so \
	libinterposer-dlsym.so libinterposer-dlvsym.so abi)

$(verbs_bin)/libfinds.so: tests/verbs/finds.c $(VERBS_LIB)
	$(verbs_app) -DFINDS_LIBRARY -shared -Wl,-soname,$(@F) -Wl,--no-as-needed $^ -o $@ \
		$(verbs_libs)
$(verbs_bin)/finds: tests/verbs/finds.c $(verbs_bin)/libfinds.so
	$(verbs_app) $^ -o $@ $(verbs_libs) -Wl,-rpath,'$$ORIGIN' -Wl,--allow-shlib-undefined
$(verbs_bin)/app-linked: tests/verbs/app.c $(verbs_deps)
	$(verbs_app) -DAPP_LINKED -Wl,-z,lazy $< $(SIM) $(VERBS_LIB) -o $@ $(verbs_libs)
$(verbs_bin)/app-noplt: tests/verbs/app.c $(verbs_deps)
	$(verbs_app) -DAPP_LINKED -fno-plt -Wl,-z,now $< $(SIM) $(VERBS_LIB) -o $@ $(verbs_libs)
$(verbs_bin)/app-table: tests/verbs/app.c $(verbs_deps)
	$(verbs_app) $< $(SIM) -o $@ $(verbs_libs)
$(verbs_bin)/app-global: tests/verbs/app.c $(verbs_deps)
	$(verbs_app) -Wl,--no-as-needed $< $(SIM) $(VERBS_LIB) -o $@ $(verbs_libs)
$(verbs_bin)/app-old: tests/verbs/app_old.c $(verbs_deps)
	$(verbs_app) $< $(SIM) $(VERBS_LIB) -o $@ $(verbs_libs)
$(verbs_bin)/app-held: tests/verbs/app_held.c $(verbs_deps)
	$(verbs_app) -rdynamic $< $(mlx5_libs) -o $@ $(verbs_libs)
$(verbs_bin)/app-mlx5-linked: tests/verbs/app_mlx5.c $(verbs_deps)
	$(verbs_app) -DAPP_LINKED -Wl,-z,lazy $< $(mlx5_libs) -o $@ $(verbs_libs)
$(verbs_bin)/app-mlx5-noplt: tests/verbs/app_mlx5.c $(verbs_deps)
	$(verbs_app) -DAPP_LINKED -fno-plt -Wl,-z,now $< $(mlx5_libs) -o $@ $(verbs_libs)
$(verbs_bin)/app-mlx5-table: tests/verbs/app_mlx5.c $(verbs_deps)
	$(verbs_app) $< $(SIM) -o $@ $(verbs_libs)
$(verbs_bin)/app-mlx5-global: tests/verbs/app_mlx5.c $(verbs_deps)
	$(verbs_app) -Wl,--no-as-needed $< $(mlx5_libs) -o $@ $(verbs_libs)
$(verbs_bin)/plugin-mlx5-table.so: tests/verbs/app_mlx5.c $(verbs_deps)
	$(verbs_app) -shared -fvisibility=default $< $(SIM) -o $@ $(verbs_libs)
$(verbs_bin)/plugin-mlx5-linked.so: tests/verbs/app_mlx5.c $(verbs_deps)
	$(verbs_app) -shared -fvisibility=default -DAPP_LINKED $< $(mlx5_libs) -o $@ $(verbs_libs)
$(verbs_bin)/plugin: tests/verbs/plugin.c
	$(verbs_app) $< -o $@ $(verbs_libs)
$(verbs_bin)/plugin-table.so: tests/verbs/app.c $(verbs_deps)
	$(verbs_app) -shared -fvisibility=default $< $(SIM) -o $@ $(verbs_libs)
$(verbs_bin)/plugin-linked.so: tests/verbs/app.c $(verbs_deps)
	$(verbs_app) -shared -fvisibility=default -DAPP_LINKED $< $(SIM) $(VERBS_LIB) -o $@ \
		$(verbs_libs)
$(verbs_bin)/libinterposer-dlsym.so: tests/verbs/interposer.c hook/verbs/abi.h
	$(verbs_app) -shared '-DINTERPOSER_LOOK(name)=dlsym(RTLD_NEXT, name)' $< -o $@ $(verbs_libs)
$(verbs_bin)/libinterposer-dlvsym.so: tests/verbs/interposer.c hook/verbs/abi.h
	$(verbs_app) -shared '-DINTERPOSER_LOOK(name)=dlvsym(RTLD_NEXT, name, "IBVERBS_1.1")' $< \
		-o $@ $(verbs_libs)
$(verbs_bin)/abi: tests/verbs/abi.c tests/verbs/recorder_parts.h $(verbs_deps)
	$(verbs_app) $< -o $@ $(verbs_libs)

# Built with rdma-core's header, if it is installed.
ifeq ($(call has_header,infiniband/verbs.h),yes)
verbs_apps += $(verbs_bin)/app-header
$(verbs_bin)/app-header: tests/verbs/app_header.c $(verbs_deps)
	$(verbs_app) $< $(SIM) $(VERBS_LIB) -o $@ $(verbs_libs)
endif

CHECK_WITH += $(verbs_apps)
CHECK_SIM += tests/verbs/check-abi tests/verbs/check-verbs-roads tests/verbs/check-verbs-mapping
