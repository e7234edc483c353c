# SPDX-License-Identifier: MIT
# pindown: see README.md. Each folder's build.mk adds to the lists below.
SHELL := /bin/bash
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
SAN ?=
comma := ,
BUILD := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
B := $(BUILD)

WARN := -Wall -Wextra -Werror
CFLAGS ?= -O2 -g
ALL_CFLAGS := -std=gnu11 $(WARN) -fPIC -fvisibility=hidden -fno-strict-aliasing $(CFLAGS) \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
ALL_LDFLAGS := $(LDFLAGS) $(if $(SAN),-fsanitize=$(SAN))
INCLUDE := -Icache

# Filled by the fragments.
LIB_SRC :=	# sources of libpindown.so, .c and .S
ALL :=		# what `make` builds
CHECK_UNIT :=	# test programs: run without arguments, exit 0 when all is well
CHECK_SIM :=	# scripts and programs that run against the simulated driver
BENCH :=

all:
include $(wildcard cache/build.mk hook/build.mk tools/build.mk docs/build.mk tests/*/build.mk)

LIB_OBJ := $(patsubst %,$(B)/obj/%.o,$(LIB_SRC))
ALL += $(B)/libpindown.so
all: $(ALL)

$(B)/obj/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -MMD -MP -c $< -o $@
$(B)/obj/%.S.o: %.S
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(INCLUDE) -MMD -MP -c $< -o $@

$(B)/libpindown.so: $(LIB_OBJ)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libpindown.so -Wl,-z,nodelete -Wl,-z,now \
		-Wl,--no-undefined $(LIB_OBJ) -o $@ $(ALL_LDFLAGS) -ldl -lpthread

clean:
	rm -rf build

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
.PHONY: all clean
