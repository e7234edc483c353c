# SPDX-License-Identifier: MIT
HOOK_SRC := wrap.c entries.S find.c lookup.c stubs.S loader.c asker.c symtab.c deepbind.c patches.c library.c objects.c \
	libcuda.c owners.c contexts.c ipc.c graphs.c mappings.c records.c life.c devicemap.c verbs.c verbs_mr.c \
	verbs_cache.c verbs_rereg.c verbs_limits.c
LIB_SRC += $(HOOK_SRC:%=hook/%)
LIB_NEEDS += hook/verbs.map
LIB_LDFLAGS += -Wl,--version-script=hook/verbs.map

# A sanitizer's runtime looks the C library's functions up through us before it is ready for
# instrumented code.
$(B)/obj/hook/loader.c.o $(B)/obj/hook/symtab.c.o $(B)/obj/hook/asker.c.o $(B)/obj/hook/lookup.c.o \
	$(B)/obj/hook/objects.c.o: ALL_CFLAGS += $(if $(SAN),-fno-sanitize=all)

# See cache/build.mk.
HOOK_SMALL := asker contexts deepbind devicemap find graphs ipc libcuda library life loader lookup mappings objects \
	owners patches records symtab verbs verbs_cache verbs_limits verbs_mr verbs_rereg
$(HOOK_SMALL:%=$(B)/obj/hook/%.c.o): ALL_CFLAGS += -Os
# Each of the many wrappers would guard its stack; the one array there is written in one place, which
# looks at the index (pd_caught_guard()).
$(B)/obj/hook/wrap.c.o: ALL_CFLAGS += -fno-stack-protector
