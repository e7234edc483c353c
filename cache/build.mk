# SPDX-License-Identifier: MIT
CACHE_SRC := $(wildcard cache/*.c)
LIB_SRC += $(CACHE_SRC)

# The library is in every process: where time is no matter, room is.
CACHE_SMALL := api backend_kmod config consumer dmabuf driver evict exports fork live log object_end table \
	trace_clock trace_file trace_info trace_modules volatile
$(CACHE_SMALL:%=$(B)/obj/cache/%.c.o): ALL_CFLAGS += -Os
