# SPDX-License-Identifier: MIT
HOOK_SRC := $(wildcard hook/*.c hook/*/*.c hook/*/*/*.c hook/*/*.S hook/*/*/*.S)
LIB_SRC += $(HOOK_SRC)
LIB_NEEDS += hook/verbs/verbs.map
LIB_LDFLAGS += -Wl,--version-script=hook/verbs/verbs.map

# A sanitizer's runtime looks the C library's functions up through us before it is ready for
# instrumented code, and yield.c runs before it is.
$(patsubst %,$(B)/obj/hook/loader/%.c.o,lookup yield) \
		$(patsubst %,$(B)/obj/hook/loader/loaded/%.c.o,symtab scope loaded slots) \
		$(B)/obj/cache/base/process/system.c.o $(B)/obj/cache/base/memory/safe_read.c.o: \
	ALL_CFLAGS += $(if $(SAN),-fno-sanitize=all)
