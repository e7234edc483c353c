# SPDX-License-Identifier: MIT
CACHE_SRC := $(wildcard cache/*.c)
LIB_SRC += $(CACHE_SRC)
