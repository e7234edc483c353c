# SPDX-License-Identifier: MIT
HOOK_SRC := $(wildcard hook/*.c hook/*/*.c hook/*/*.S)
LIB_SRC += $(HOOK_SRC)
LIB_NEEDS += hook/verbs/verbs.map
LIB_LDFLAGS += -Wl,--version-script=hook/verbs/verbs.map

# A sanitizer's runtime looks the C library's functions up through us before it is ready for
# instrumented code.
$(patsubst %,$(B)/obj/hook/loader/%.c.o,loader symtab asker lookup loaded): \
	ALL_CFLAGS += $(if $(SAN),-fno-sanitize=all)

# See cache/build.mk. Each call of the driver comes through the wrappers.
$(patsubst %,$(B)/obj/%.o,$(filter-out hook/cuda/wrap.c,$(filter %.c,$(HOOK_SRC)))): \
	ALL_CFLAGS += $(LIB_RARE)
