# SPDX-License-Identifier: MIT
# Programs that know nothing of pindown. A road is a way to reach the driver's functions. The groups
# of calls are built once for each road that depends on compiling and linking; the other roads are
# chosen when the program starts (road.c).

apps_bin := $(B)/apps
apps_obj := $(B)/obj/tests/apps
apps_cuda := $(B)/sim/libcuda.so.1
apps_groups := $(shell sed -n 's/^GROUP(\(.*\))/group_\1/p' tests/apps/groups.def)

# linked: calls through the PLT; noplt: calls through the GOT; table: see road.c.
apps_linked := $(patsubst %,$(apps_obj)/%.c.o,main app start $(apps_groups))
apps_noplt := $(patsubst %,$(apps_obj)/noplt/%.c.o,main app start $(apps_groups))
apps_table := $(patsubst %,$(apps_obj)/table/%.c.o,main app start road $(apps_groups))

$(apps_obj)/noplt/%.c.o: tests/apps/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fno-plt $(INCLUDE) -MMD -MP -c $< -o $@
$(apps_obj)/table/%.c.o: tests/apps/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DAPP_TABLE $(INCLUDE) -MMD -MP -c $< -o $@

apps_link = @mkdir -p $(@D) && $(CC) $(ALL_CFLAGS)
apps_libs = $(ALL_LDFLAGS) -ldl -lpthread
apps_built := $(addprefix $(apps_bin)/,linked noplt table next plugin-linked.so plugin-table.so \
	host constructed loader nothing trusted regions libownmalloc.so libnested.so \
	libregistrar.so libnext1.so libnext2.so libnext3.so libsysv.so)

$(apps_bin)/linked: $(apps_linked) $(apps_cuda)
	$(apps_link) -Wl,-z,lazy $^ -o $@ $(apps_libs)
$(apps_bin)/noplt: $(apps_noplt) $(apps_cuda)
	$(apps_link) -Wl,-z,now $^ -o $@ $(apps_libs)
$(apps_bin)/table: $(apps_table)
	$(apps_link) $^ -o $@ $(apps_libs)
$(apps_bin)/next: $(apps_table) $(apps_cuda)
	$(apps_link) -Wl,--no-as-needed $^ -o $@ $(apps_libs)

# A libcuda whose symbols have a version, for dlvsym.
apps_versioned := $(apps_bin)/versioned/libcuda.so.1
apps_built += $(apps_versioned)
$(apps_versioned): $(patsubst %,$(B)/obj/%.o,$(wildcard tests/sim/*.c)) tests/apps/versioned.map
	$(apps_link) -shared -Wl,-soname,libcuda.so.1 \
		-Wl,--version-script=tests/apps/versioned.map \
		$(filter %.o,$^) -o $@ $(apps_libs)

# The same as plugins, for a program that knows nothing of CUDA.
$(apps_bin)/plugin-linked.so: $(filter-out %/main.c.o,$(apps_linked)) $(apps_cuda)
	$(apps_link) -shared $^ -o $@ $(apps_libs)
$(apps_bin)/plugin-table.so: $(filter-out %/main.c.o,$(apps_table))
	$(apps_link) -shared $^ -o $@ $(apps_libs)
$(apps_bin)/host $(apps_bin)/nothing $(apps_bin)/trusted: $(apps_bin)/%: $(apps_obj)/%.c.o
	$(apps_link) $^ -o $@ $(apps_libs)

# A library that uses CUDA in its constructor and destructor.
$(apps_bin)/libearly.so: $(apps_obj)/early.c.o $(apps_obj)/app.c.o $(apps_cuda)
	$(apps_link) -shared -Wl,-soname,libearly.so $^ -o $@ $(apps_libs)
$(apps_bin)/constructed: $(apps_obj)/constructed.c.o $(apps_bin)/libearly.so
	$(apps_link) $^ -o $@ $(apps_libs) -Wl,-rpath,'$$ORIGIN' -Wl,--allow-shlib-undefined

# Preloaded libraries of other projects.
$(apps_bin)/libnext%.so: tests/apps/interposer.c
	$(apps_link) -DINTERPOSER='"interposer $*"' $(INCLUDE) -shared $< -o $@ $(apps_libs)
# The same with the hash table of older linkers alone.
$(apps_bin)/libsysv.so: tests/apps/interposer.c
	$(apps_link) -DINTERPOSER='"interposer"' $(INCLUDE) -shared $< -o $@ $(apps_libs) \
		-Wl,--hash-style=sysv
$(apps_bin)/libnested.so: $(patsubst %,$(apps_obj)/%.c.o,nested app) $(apps_cuda)
	$(apps_link) -shared $^ -o $@ $(apps_libs)
# The compiler must not turn parts of its calloc into a call of calloc.
$(apps_obj)/ownmalloc.c.o: ALL_CFLAGS += -fno-builtin
$(apps_bin)/libownmalloc.so $(apps_bin)/libregistrar.so: $(apps_bin)/lib%.so: $(apps_obj)/%.c.o
	$(apps_link) -shared $^ -o $@ $(apps_libs)

# Its calloc is a malloc and a memset, which the compiler would turn into a call of calloc.
$(apps_obj)/ownmalloc.c.o: ALL_CFLAGS += -fno-builtin-malloc

# Three libraries in a row, and one that only the RUNPATH of the first one leads to. The calling
# library must stay on the stack, so there are no tail calls.
apps_who = $(apps_link) -fno-optimize-sibling-calls -shared -Wl,-soname,$(@F) $< -o $@ $(apps_libs)
$(apps_bin)/libwho%.so: tests/apps/who.c
	$(apps_who) -DWHO='"library $*"' -Wl,-rpath,'$$ORIGIN/inner'
$(apps_bin)/inner/libwho-inner.so: tests/apps/who.c
	$(apps_who) -DWHO='"inner"'
$(apps_bin)/loader: $(apps_obj)/loader.c.o \
		$(addprefix $(apps_bin)/,libwho1.so libwho2.so libwho3.so) \
	| $(apps_bin)/inner/libwho-inner.so
	$(apps_link) -Wl,--no-as-needed $^ -o $@ $(apps_libs) -Wl,-rpath,'$$ORIGIN'

# Other libraries in the process: one that patches code, one that interposes dlsym, a plugin that
# defines a name of its own; and libraries behind libpindown.so that use RTLD_NEXT, loaded early or
# late.
apps_company := $(addprefix $(apps_bin)/,libpatcher.so plugin-patched.so libdlsymmer.so deep \
	plugin-deep.so plugin-deep-cuda.so plugin-deep-chain.so tail plugin-next.so behind)
apps_built += $(apps_company)
apps_here = -Wl,-rpath,'$$ORIGIN'

$(apps_bin)/libpatcher.so: $(apps_obj)/patcher.c.o $(apps_cuda)
	$(apps_link) -shared -Wl,-soname,$(@F) $^ -o $@ $(apps_libs)
$(apps_bin)/plugin-patched.so: $(filter-out %/main.c.o,$(apps_linked)) $(apps_cuda) \
		$(apps_bin)/libpatcher.so
	$(apps_link) -shared -Wl,--no-as-needed $^ -o $@ $(apps_libs) $(apps_here)
$(apps_bin)/libdlsymmer.so: $(apps_obj)/dlsymmer.c.o tests/apps/dlsymmer.map
	$(apps_link) -shared -Wl,--version-script=tests/apps/dlsymmer.map $< -o $@ $(apps_libs)
$(apps_bin)/libdeep.so: tests/apps/deep.c
	$(apps_link) -DDEEP_OWN -shared -Wl,-soname,$(@F) $< -o $@ $(apps_libs)
$(apps_bin)/plugin-deep.so: tests/apps/deep.c $(apps_bin)/libdeep.so
	$(apps_link) -shared $^ -o $@ $(apps_libs) $(apps_here)
$(apps_bin)/deep: tests/apps/deep.c
	$(apps_link) -DDEEP_PROGRAM -rdynamic $< -o $@ $(apps_libs) $(apps_here)
# It needs a library that needs another one, and so on.
$(apps_bin)/plugin-deep-chain.so: tests/apps/deep.c $(apps_bin)/libdeep.so
	before=libdeep.so; for i in {1..16}; do \
		$(CC) $(ALL_CFLAGS) -shared -Wl,--no-as-needed -x c /dev/null -x none \
			-L$(apps_bin) -l:$$before -o $(apps_bin)/libchain$$i.so $(apps_here) || \
			exit; \
		before=libchain$$i.so; done
	$(apps_link) -shared -Wl,--no-as-needed $^ -L$(apps_bin) -l:libchain16.so -o $@ \
		$(apps_libs) $(apps_here)
# It calls nothing of CUDA itself, but a library that it needs does.
$(apps_bin)/plugin-deep-cuda.so: $(apps_bin)/plugin-linked.so
	@mkdir -p $(@D)
	echo 'int app_main(int, char **, int); int deep_main(int n, char **v, int at);' \
		'int deep_main(int n, char **v, int at) { return app_main(n, v, at); }' | \
		$(CC) $(ALL_CFLAGS) -fvisibility=default -shared -x c - -x none -Wl,--no-as-needed \
		-L$(apps_bin) -l:plugin-linked.so -o $@ $(apps_libs) $(apps_here)
$(apps_bin)/tail: $(apps_obj)/tail.c.o $(apps_obj)/app.c.o $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)
$(apps_bin)/plugin-next.so $(apps_bin)/libbehind.so: $(filter-out %/main.c.o,$(apps_table)) \
		$(apps_cuda)
	$(apps_link) -shared -Wl,-soname,$(@F) -Wl,--no-as-needed $^ -o $@ $(apps_libs)
$(apps_bin)/behind: $(apps_obj)/behind.c.o $(apps_bin)/libbehind.so
	$(apps_link) $^ -o $@ $(apps_libs) $(apps_here) -Wl,--allow-shlib-undefined

# The program registers memory of every kind, as middleware does.
$(apps_bin)/regions: $(patsubst %,$(apps_obj)/%.c.o,regions regions_memory regions_owner \
		regions_process) $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)

# Another process makes checkpoints of the program. The second driver binds its calls late.
apps_built += $(apps_bin)/checkpointed $(apps_bin)/unbound/libcuda.so.1
$(apps_bin)/checkpointed: $(apps_obj)/checkpointed.c.o $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)
$(apps_bin)/unbound/libcuda.so.1: $(patsubst %,$(B)/obj/%.o,$(wildcard tests/sim/*.c))
	$(apps_link) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,lazy $^ -o $@ \
		$(apps_libs)

# Forks while the loader is busy with another library.
apps_built += $(apps_bin)/forked $(apps_bin)/libslow.so
$(apps_bin)/forked: $(apps_obj)/forked.c.o $(B)/obj/tests/unit/support/asleep.c.o
	$(apps_link) -rdynamic $^ -o $@ $(apps_libs)
$(apps_bin)/libslow.so: $(apps_obj)/slow.c.o
	$(apps_link) -shared $^ -o $@ $(apps_libs)

# Asks pindown while the loader is busy with libcuda, in a dlopen() that fails if the plugin is
# broken: it calls what nobody defines.
apps_built += $(addprefix $(apps_bin)/,loading libwaits.so plugin-good.so plugin-broken.so)
$(apps_bin)/loading: $(apps_obj)/loading.c.o $(B)/obj/tests/unit/support/asleep.c.o
	$(apps_link) -rdynamic $^ -o $@ $(apps_libs)
$(apps_bin)/libwaits.so: $(apps_obj)/waits.c.o
	$(apps_link) -fvisibility=default -shared -Wl,-soname,$(@F) $^ -o $@ $(apps_libs)
$(apps_bin)/plugin-good.so $(apps_bin)/plugin-broken.so: $(apps_bin)/plugin-%.so: \
		$(apps_bin)/libwaits.so $(apps_cuda)
	@mkdir -p $(@D)
	echo 'void plugin(void); void nobody_defines_this(void);' \
		'void plugin(void) { $(if $(filter broken,$*),nobody_defines_this();) }' | \
		$(CC) $(ALL_CFLAGS) -fvisibility=default -shared -x c - -x none \
		-Wl,--no-as-needed $^ -o $@ $(apps_libs) $(apps_here)

# Functions of the C library that use CUDA: the program's own, or those of a preloaded library.
apps_built += $(addprefix $(apps_bin)/,ownlibc ownlibc-none libownlibc.so)
$(apps_obj)/ownlibc.c.o: ALL_CFLAGS += -fno-builtin -U_FORTIFY_SOURCE -fno-optimize-sibling-calls
$(apps_bin)/ownlibc: $(apps_obj)/ownlibc_program.c.o $(apps_obj)/ownlibc.c.o $(apps_cuda)
	$(apps_link) -rdynamic $^ -o $@ $(apps_libs)
$(apps_bin)/ownlibc-none: $(apps_obj)/ownlibc_program.c.o $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)
$(apps_bin)/libownlibc.so: $(apps_obj)/ownlibc.c.o $(apps_cuda)
	$(apps_link) -shared $^ -o $@ $(apps_libs)

# Asks the driver about memory that another thread frees: tests/sim/check-overlaps.
apps_built += $(apps_bin)/overlap
$(apps_bin)/overlap: $(apps_obj)/overlap.c.o $(apps_cuda)
	$(apps_link) $^ -o $@ $(apps_libs)

# Opens one libcuda after another: check-tries.
apps_built += $(apps_bin)/tries $(apps_bin)/stub-34/libcuda.so.1 $(apps_bin)/stub-803/libcuda.so.1
apps_built += $(apps_bin)/forwards.so
$(apps_bin)/forwards.so: tests/apps/forwards.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -fvisibility=default -shared $< -o $@ $(ALL_LDFLAGS) -ldl
$(apps_bin)/tries: $(apps_obj)/tries.c.o
	$(apps_link) $^ -o $@ $(ALL_LDFLAGS) -ldl
$(apps_bin)/stub-%/libcuda.so.1: tests/apps/stub.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fvisibility=default -DRESULT=$* -shared -Wl,-soname,$(@F) $< -o $@ \
		$(ALL_LDFLAGS)

# Variables with the driver's names: check-variables. The program that copies them is no PIE.
apps_variables := $(addprefix $(apps_bin)/,variables-pie variables-copy variables-now \
	variables-open libvariables.so libvariables-use.so libvariables-late.so libopens.so \
	plugin-noplt.so)
apps_built += $(apps_variables)
apps_shown = $(apps_link) -fvisibility=default $(INCLUDE)
$(filter %.so %-pie %-copy %-now,$(filter-out %/plugin-noplt.so,$(apps_variables))): \
	tests/apps/variables.h
$(apps_bin)/libvariables.so: tests/apps/variables.c
	$(apps_shown) -shared -Wl,-soname,$(@F) -Wl,-z,relro,-z,now $< -o $@ $(apps_libs)
$(apps_bin)/libvariables-use.so: tests/apps/variables_use.c $(apps_bin)/libvariables.so
	$(apps_shown) -shared $(filter-out %.h,$^) -o $@ $(apps_libs) $(apps_here)
$(apps_bin)/libvariables-late.so: tests/apps/variables_use.c
	$(apps_shown) -shared $< -o $@ $(apps_libs)
$(apps_bin)/variables-now: apps_libs += -Wl,-z,relro,-z,now
$(apps_bin)/variables-pie $(apps_bin)/variables-now: tests/apps/variables_use.c \
		$(apps_bin)/libvariables.so
	$(apps_shown) -DVARIABLES_PROGRAM -pie -fPIC $(filter-out %.h,$^) -o $@ $(apps_libs) \
		$(apps_here)
$(apps_bin)/variables-copy: tests/apps/variables_use.c $(apps_bin)/libvariables.so
	$(apps_shown) -DVARIABLES_PROGRAM -no-pie -fno-pic $(filter-out %.h,$^) -o $@ \
		$(apps_libs) $(apps_here)
$(apps_bin)/variables-open: $(apps_obj)/variables_open.c.o
	$(apps_link) $^ -o $@ $(apps_libs)
$(apps_bin)/libopens.so: tests/apps/opens.c hook/loader/loaded/symtab.c
	$(apps_shown) -shared $(filter-out %.h,$^) -o $@ $(apps_libs)
$(apps_bin)/plugin-noplt.so: $(filter-out %/main.c.o,$(apps_noplt)) $(apps_cuda)
	$(apps_link) -shared -Wl,-z,now $^ -o $@ $(apps_libs)

CHECK_WITH += $(apps_built)
CHECK_SIM += $(addprefix tests/apps/,check-roads check-lookups check-loader check-forked \
	check-company check-ownlibc check-checkpointed check-regions check-registered \
	check-capable check-tries check-tsan check-variables)

# The program of make demo and docs/manual/investigation.md, on the software card. The document
# shows its lines, and all callers must be on the stack.
ifeq ($(call has_header,infiniband/verbs.h),yes)
$(apps_obj)/demo.c.o: ALL_CFLAGS += -g -fno-optimize-sibling-calls
$(B)/demo/demo: $(apps_obj)/demo.c.o $(apps_cuda) $(B)/softnic/libibverbs.so.1
	$(apps_link) $^ -o $@ $(apps_libs) -Wl,-rpath,'$$ORIGIN/../softnic'
DEMO_WITH += $(B)/demo/demo
CHECK_WITH += $(B)/demo/demo
endif
CHECK_SIM += tests/apps/check-investigation
