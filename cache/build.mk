# SPDX-License-Identifier: MIT
CACHE_SRC := $(wildcard cache/*.c)
LIB_SRC += $(CACHE_SRC)
LIB_NEEDS += cache/pindown.map
LIB_LDFLAGS += -Wl,--version-script=cache/pindown.map

# The library is in every process: where time is no matter, room is.
CACHE_SMALL := api attach backend backend_dmabuf backend_kmod cancel config consumer descriptor dmabuf driver evict exports fork index_nodes \
	kmod_reclaim live live_sweep lock log misuse object_end object_trace pages peek pin process region stats subscribe table thread \
	trace trace_chunk trace_clock trace_file trace_info trace_journal trace_modules trace_rescue trace_stack \
	trace_unwind trust volatile
$(CACHE_SMALL:%=$(B)/obj/cache/%.c.o): ALL_CFLAGS += -Os
