# SPDX-License-Identifier: MIT
HOOK_SRC := $(wildcard hook/*.c hook/*/*.c hook/*/*.S)
LIB_SRC += $(HOOK_SRC)
LIB_NEEDS += hook/verbs/verbs.map
LIB_LDFLAGS += -Wl,--version-script=hook/verbs/verbs.map

# A sanitizer's runtime looks the C library's functions up through us before it is ready for
# instrumented code, and yield.c runs before it is.
$(patsubst %,$(B)/obj/hook/loader/%.c.o,symtab scope lookup loaded slots yield) \
		$(B)/obj/cache/base/system.c.o $(B)/obj/cache/base/safe_read.c.o: \
	ALL_CFLAGS += $(if $(SAN),-fno-sanitize=all)
