# SPDX-License-Identifier: MIT
CACHE_SRC := $(wildcard cache/*.c cache/*/*.c cache/*/*/*.c cache/*/*/*.S cache/*/*.S)
# A sanitizer watches the C library's functions.
CACHE_SRC := $(filter-out $(if $(SAN),cache/base/environment/text.c),$(CACHE_SRC))
# Texts for people, which the command prints: only the command and the tests are linked with them.
CACHE_SRC := $(filter-out cache/base/environment/options.c,$(CACHE_SRC))
$(B)/cache.a: $(B)/obj/cache/base/environment/options.c.o
LIB_SRC += $(CACHE_SRC)
LIB_NEEDS += cache/pindown.map
LIB_LDFLAGS += -Wl,--version-script=cache/pindown.map

# It defines functions that the compiler knows, and would call for its own loops, or replace by ones
# that look for overflows.
$(B)/obj/cache/base/environment/text.c.o $(B)/obj/points/cache/base/environment/text.c.o: \
	ALL_CFLAGS += -fno-builtin $(if $(LTO),-fno-tree-loop-distribute-patterns) \
	-U_FORTIFY_SOURCE
# With _FORTIFY_SOURCE the compiler calls these only after the linker has been told what is called:
# one of binutils 2.40 then says that they are undefined, unless it was asked for them.
LIB_LDFLAGS += $(patsubst %,-Wl$(comma)-u$(comma)%,snprintf sprintf strcpy strncat strncpy)
