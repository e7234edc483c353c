# SPDX-License-Identifier: MIT
# pindown: see README.md.
#
#   make                    builds build/libpindown.so, build/pindown and the
#                           simulated driver build/sim/libcuda.so.1
#   make demo               shows the stale-registration bug, without and with it
#   make check              runs the tests, in five to ten minutes
#                           (check-unit, check-sim: a part of them)
#   make check-rest         those that it leaves out, as they take longer
#   make check-long         both with long rounds, and all boots of the guest
#   make test T=index       runs one test, or those a pattern means: T='races*'
#   make gdb T=index        starts that program under gdb, as the test runs it
#   make kmod               builds the kernel module for the running kernel (KDIR)
#   make check-guest        runs the module's tests alone, in a QEMU guest
#   make check-guest-debug  the same on a kernel that checks itself, which is
#                           built first (half an hour in all)
#   make check-guest-arm64  the same on arm64 machines, cross-built and emulated
#   make deb                builds Debian packages in build/deb; make rpm: RPM
#                           packages; make deb-module: the module for a kernel
#                           (KDIR); make dist: a release, which they are made of
#   make check-packages     builds, looks at and installs them (as root)
#   make check-editions     compares the CUDA headers and drivers that Debian has
#   make bench              runs the benchmarks, peers side by side; some of them:
#                           ONLY=gets,memory..., ONLY=counts or ONLY=peers;
#                           UCX=folder measures the UCX that is installed there
#   make bench-scale        the curves of ONLY=peers with more and larger sizes
#   make bench-docs         writes the cache's benchmarks into docs/internals/
#   make check-arm64        builds for arm64 and runs what can run there, under QEMU
#   make analyse            runs the static analysers that are installed
#   make mutate N=60        plants so many faults, one at a time: do tests notice?
#   make fuzz T=elf SECONDS=60   gives a part of pindown changed inputs
#   make compile_commands.json   for clangd and other tools
#   make install            PREFIX, LIBDIR, DESTDIR
#   make uninstall          removes what make install with the same variables
#                           installed
#   make clean              removes build/ and compile_commands.json
#
#   SAN=address,undefined or SAN=thread builds and tests under sanitizers, in
#   build/san-...; B=folder builds elsewhere, CC=clang with another compiler;
#   CROSS=aarch64-linux-gnu- builds for another processor, in build/PREFIX, with the
#   libraries in SYSROOT (docs/internals/arm64.md); V=1 shows each command.
#   CHECK_OPTIONAL=1 skips the tests for which the machine lacks the Check
#   library; NEED_INSTALL=0 names missing packages instead of installing them.
#
#   docs/internals/contributing.md says how to change pindown,
#   docs/internals/debugging.md how to look into a process that runs under it.

# Each folder's build.mk adds to the lists below and has the rules for its own programs.

SHELL := /bin/bash
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Without -j on the command line there is a compiler for each processor. Several goals, for example
# "clean all", are made one after another.
ifeq ($(or $(MAKELEVEL),0)$(filter -j%,$(MAKEFLAGS))$(word 2,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
ifneq ($(V),1)
MAKEFLAGS += --silent
endif

# The packages that the wanted target uses are installed, or asked for, before anything else.
CROSS ?=
needed := $(filter check-arm64,$(MAKECMDGOALS))
ifeq ($(CROSS),)
needed += $(filter demo tests check check-unit check-sim check-guest check-guest-debug \
	check-packages test gdb bench bench-docs bench-scale,$(MAKECMDGOALS))
endif
needed := $(strip $(needed))
ifneq ($(needed),)
# Before version 4.4 make does not pass variables of its command line on to $(shell) commands.
need = CHECK_OPTIONAL='$(CHECK_OPTIONAL)' NEED_INSTALL='$(NEED_INSTALL)' UCX='$(UCX)' \
	.ci/need $(needed)
ifneq ($(shell $(need) && echo ready),ready)
$(error packages are missing for 'make $(needed)': see above)
endif
endif

# Another processor's compiler is called by its own name, and finds libraries below SYSROOT.
SYSROOT ?=
ifeq ($(origin CC),default)
CC := $(CROSS)gcc$(if $(SYSROOT), --sysroot=$(abspath $(SYSROOT)))
endif
ifeq ($(origin AR),default)
AR := $(CROSS)ar
endif
sysroot_packages := $(abspath $(SYSROOT))/usr/lib/$(CROSS:-=)/pkgconfig
PKG_CONFIG ?= $(if $(SYSROOT),PKG_CONFIG_LIBDIR='$(sysroot_packages)' \
	PKG_CONFIG_SYSROOT_DIR='$(abspath $(SYSROOT))') pkg-config
SAN ?=
comma := ,
B := build$(if $(CROSS),/$(CROSS:-=))$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))

CFLAGS ?= -O2 -g
LTO := $(if $(SAN)$(findstring clang,$(CC)),,-flto=auto)
ALL_CFLAGS := -std=gnu11 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -fno-strict-aliasing \
	$(CFLAGS) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
ALL_LDFLAGS := -fno-lto $(LDFLAGS) $(if $(SAN),-fsanitize=$(SAN))
# Includes name a file by its path from here: "cache/base/thread/lock.h".
INCLUDE := -iquote .

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions

# What the rules install, without DESTDIR. Folders are removed if they are pindown's own.
INSTALLED = $(BINDIR)/pindown $(LIBDIR)/$(SONAME) $(LIBDIR)/libpindown.so \
	$(LIBDIR)/pkgconfig/pindown.pc $(addprefix $(INCLUDEDIR)/,pindown.h pindown_dl.h) \
	$(foreach page,$(notdir $(MAN)),$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(page)) \
	$(BASHDIR)/pindown $(ZSHDIR)/_pindown $(PREFIX)/share/pindown/pindown-gdb.py
INSTALLED_FOLDERS = $(PREFIX)/share/pindown

# Filled by the fragments.
LIB_SRC :=	# sources of libpindown.so, .c and .S
LIB_NEEDS :=	# other files that its link reads (a linker script)
LIB_LDFLAGS :=	# options for its link
ALL :=		# what `make` builds
CHECK_UNIT :=	# test programs that use the Check library
CHECK_SIM :=	# scripts and programs that run against the simulated driver
CHECK_GUEST :=	# what runs in a QEMU guest
# Scripts that look at what was built.
CHECK_TREE := $(addprefix tests/check-,library install manual examples rooms guide)
CHECK_WITH :=	# files that the scripts use, to be built first
DEMO_WITH :=	# the same for the demo
BENCH :=	# what tests/bench/run uses
MAN :=		# man pages, to be installed

# $(call has_header,check.h) is "yes" where the compiler finds it. The command has no number
# sign in it: versions of make differ in whether the backslash before one reaches the shell.
has_header = $(shell $(CC) $(CFLAGS) -E -x c -include $(1) /dev/null >/dev/null 2>&1 && echo yes)
# $(call has_library,elfutils/libdwfl.h,-ldw) is "yes" where a program with it can be linked, too. A
# cross compiler may find headers of this machine, whose libraries it can't use.
has_library = $(shell echo 'int main(void) { return 0; }' | $(CC) $(CFLAGS) -fPIC $(LDFLAGS) \
	-include $(1) -x c - -x none $(2) -o /dev/null 2>/dev/null && echo yes)

# The Check library, for the fragments' rules. Looked up only where used.
CHECK_CFLAGS = $(shell $(PKG_CONFIG) --cflags check)
CHECK_LIBS = $(shell $(PKG_CONFIG) --libs check)

all:
include $(wildcard $(addsuffix /build.mk,cache hook kmod tools docs/manual packaging tests/*))

ALL += $(B)/libpindown.so
all: $(ALL)

$(B)/obj/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -MMD -MP -c $< -o $@
$(B)/obj/%.S.o: %.S
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -MMD -MP -c $< -o $@

LIB_OBJ := $(patsubst %,$(B)/obj/%.o,$(LIB_SRC))
# Where their options are.
$(LIB_OBJ): Makefile cache/build.mk hook/build.mk
# The library's files are optimized as a whole when it is linked: some 7 KiB less, and 8 % less
# instructions for a miss. Their objects hold ordinary code as well, which the tests are linked
# with. What a compiler warns of only then is shown. Not the small functions of the C library: calls
# that the compiler makes of its own then would find them gone.
$(filter-out %/base/environment/text.c.o,$(LIB_OBJ)): \
	ALL_CFLAGS += $(if $(LTO),-flto -ffat-lto-objects)
# Where text is put together, and where files and memory of others are read, compilers that guard
# stacks do that. Elsewhere it would be a guard for a few words of known size in most functions.
LIB_GUARDED := cache/base/environment/config.c cache/base/environment/log.c \
	cache/show/%.c cache/trace/%.c \
	hook/loader/deepbind.c hook/loader/loaded/loaded.c hook/loader/loaded/symtab.c
guarded = $(filter $(LIB_GUARDED:%=$(B)/obj/%.o),$1)
unguarded := $(foreach object,$(LIB_OBJ),$(if $(call guarded,$(object)),,$(object)))
$(unguarded): ALL_CFLAGS += -fno-stack-protector
# A compiler may be installed without what the linker calls for that: then the ordinary code is
# linked, which executes a sixth more instructions for a free and the next pin
# (docs/internals/measured.md).
$(B)/lto: Makefile
	@mkdir -p $(@D)
	@if [ -n '$(LTO)' ] && echo 'int main(void) { return 0; }' | \
		$(CC) $(LTO) -x c - -o $@-works 2>/dev/null; then \
		echo '$(LTO) -flto-partition=one -Wno-error'; else echo '-fno-lto'; fi >$@
	@[ -z '$(LTO)' ] || grep -q flto $@ || echo "  note: $(CC) can't optimize at the link, so" \
		"libpindown.so pins and unpins more slowly" >&2
	@rm -f $@-works
# Programs that are linked with the library look for it by this name. Its number goes up when they
# must be built again; functions that are only added get a version in cache/pindown.map. A preload
# names libpindown.so, which is the file here, and a link to SONAME where it is installed.
SONAME := libpindown.so.0
# nostartfiles: the compiler's start files serve C++ and profilers, and each process would look up
# four names for them. symbolic-functions: calls of pindown's own functions are not looked up.
# noseparate-code: what is only read shares pages with the code, which saves two mappings and their
# padding; but not the table of symbols, which may be written to (hook/loader/yield.c), and pages of
# 64 KiB would. sort-section: large arrays, of which most processes use a few pages, lie together,
# and small variables do not take a page each between them.
LIB_SEPARATE = $(if $(findstring aarch64,$(shell $(CC) -dumpmachine)),,no)separate-code
$(B)/libpindown.so: $(LIB_OBJ) $(LIB_NEEDS) $(B)/lto
	@echo "  LINK    $@"
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(SONAME) \
		-Wl,-z,nodelete -Wl,-z,now -nostartfiles -Wl,-Bsymbolic-functions \
		-fdata-sections -Wl,--sort-section=alignment \
		-Wl,-z,$(LIB_SEPARATE) -Wl,--no-undefined $(LIB_LDFLAGS) $(LIB_OBJ) -o $@ \
		$(filter-out -fno-lto,$(ALL_LDFLAGS)) $$(cat $(B)/lto) -ldl -lpthread
	ln -sf $(@F) $(@D)/$(SONAME)

# The library's objects by folder, for unit tests: they reach what the library does not export.
$(B)/cache.a: $(filter $(B)/obj/cache/%,$(LIB_OBJ))
$(B)/hook.a: $(filter $(B)/obj/hook/%,$(LIB_OBJ))
$(B)/cache.a $(B)/hook.a:
	rm -f $@
	$(AR) qcs $@ $^ # not r: two rooms may have files of one name

# Tests and the demo are told where the build is, and what must be preloaded before libpindown.so.
SAN_RUNTIME := $(if $(findstring address,$(SAN)),libasan.so)
SAN_RUNTIME := $(if $(findstring thread,$(SAN)),libtsan.so,$(SAN_RUNTIME))
SAN_PRELOAD := $(if $(SAN_RUNTIME),$(shell $(CC) -print-file-name=$(SAN_RUNTIME)))
IN_BUILD = BUILD=$(abspath $(B)) CC='$(CC)' SAN='$(SAN)' SAN_PRELOAD='$(SAN_PRELOAD)' \
	CHECK_OPTIONAL='$(CHECK_OPTIONAL)' CHECK_LONG='$(CHECK_LONG)' CHECK_PART='$(CHECK_PART)'

# Without the Check library its tests are not built, and tests/run says so.
unit_built := $(CHECK_UNIT)
ifeq ($(CHECK_OPTIONAL),1)
ifneq ($(shell $(PKG_CONFIG) --exists check 2>/dev/null && echo yes),yes)
unit_built :=
endif
endif

# What `make check` builds and runs.
tests: $(ALL) $(unit_built) $(CHECK_SIM) $(CHECK_TREE) $(CHECK_WITH)
check: CHECK_PART ?= $(if $(CHECK_LONG),,main)
check: tests
	@$(IN_BUILD) tests/run $(CHECK_UNIT) $(CHECK_SIM) $(CHECK_TREE) $(CHECK_GUEST)
check-rest:
	@$(MAKE) --no-print-directory check CHECK_PART=rest
check-long:
	@$(MAKE) --no-print-directory check CHECK_LONG=1
check-unit: $(ALL) $(unit_built)
	@$(IN_BUILD) tests/run $(CHECK_UNIT)
check-sim: $(ALL) $(CHECK_SIM) $(CHECK_WITH)
	@$(IN_BUILD) tests/run $(CHECK_SIM)

demo: $(ALL) $(DEMO_WITH)
	@$(IN_BUILD) tests/apps/demo

bench: $(ALL) $(BENCH)
	@$(IN_BUILD) tests/bench/$(or $(filter counts peers,$(ONLY)),$(if \
		$(ONLY),caches --only=$(ONLY),run))
bench-scale: $(ALL) $(BENCH)
	@$(IN_BUILD) tests/bench/peers --scale --only=curves,sizes
bench-programs: $(ALL) $(BENCH)
bench-docs: $(ALL) $(BENCH)
	@$(IN_BUILD) tests/bench/policies --write-docs >/dev/null
	@$(IN_BUILD) tests/bench/caches --write-docs
	@$(IN_BUILD) tests/bench/counts --write-docs
	@$(IN_BUILD) tests/bench/peers --write-docs

# Programs start meanwhile and load the library: each finds the whole old file or the whole new one.
install_at_once = install -m 755 $(1) $(DESTDIR)$(2).new && \
	mv -f $(DESTDIR)$(2).new $(DESTDIR)$(2)

install: $(ALL) $(MAN)
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR))
	$(call install_at_once,$(B)/pindown,$(BINDIR)/pindown)
	$(call install_at_once,$(B)/libpindown.so,$(LIBDIR)/$(SONAME))
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libpindown.so
	install -m 644 cache/pindown.h cache/pindown_dl.h $(DESTDIR)$(INCLUDEDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e "s|@VERSION@|$$(sed -n 's/^#define PINDOWN_VERSION_M[AJINOR]* //p' \
			cache/pindown.h | paste -sd.)|" \
		cache/pindown.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/pindown.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/pindown.pc
	for page in $(MAN); do \
		install -D -m 644 -t $(DESTDIR)$(MANDIR)/man$${page##*.} $$page || exit; \
	done
	install -D -m 644 tools/completion/pindown.bash $(DESTDIR)$(BASHDIR)/pindown
	install -D -m 644 tools/completion/_pindown $(DESTDIR)$(ZSHDIR)/_pindown
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/pindown docs/internals/pindown-gdb.py
	@echo "pindown is installed below $(DESTDIR)$(PREFIX)"
	@$(if $(DESTDIR),:,$(tell_loader))

# The loader finds a library by its cache, where that has the library's folder.
LDCONFIG ?= ldconfig
tell_loader = if [ "$$(id -u)" = 0 ] && command -v $(LDCONFIG) >/dev/null; then \
		$(LDCONFIG) && { $(LDCONFIG) -p | grep -qF '$(LIBDIR)/$(SONAME)' || \
		echo "The loader does not search $(LIBDIR): add it to /etc/ld.so.conf.d and" \
		"run ldconfig, for programs that are linked with the library"; }; \
	else \
		echo "Run ldconfig as root, for programs that are linked with the library"; \
	fi

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	for folder in $(addprefix $(DESTDIR),$(INSTALLED_FOLDERS)); do \
		[ ! -d "$$folder" ] || rmdir --ignore-fail-on-non-empty "$$folder" || exit; \
	done
	@echo "pindown is no longer below $(DESTDIR)$(PREFIX)"
	@$(if $(DESTDIR),:,[ "$$(id -u)" != 0 ] || ! command -v $(LDCONFIG) >/dev/null || \
		$(LDCONFIG))

clean:
	rm -rf build compile_commands.json

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
.PHONY: all tests check check-rest check-long check-unit check-sim demo bench bench-docs \
	bench-programs bench-scale install uninstall clean
