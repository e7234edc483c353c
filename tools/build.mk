# SPDX-License-Identifier: MIT
# The pindown command. It shares the configuration and the trace's format with the library.
TOOLS_SRC := $(wildcard tools/*.c tools/*/*.c)
# Call stacks get their names from libdw; where there is none, they are modules and offsets.
with_dw := $(call has_library,elfutils/libdwfl.h,-ldw)
TOOLS_SRC := $(filter-out tools/trace/symbols_$(if $(with_dw),none,dw).c,$(TOOLS_SRC))
TOOLS_LIBS := $(if $(with_dw),-ldw -lelf) -ldl
# `doctor --try` is built with rdma-core's header; libibverbs is opened at run time.
with_verbs := $(call has_header,infiniband/verbs.h)
TOOLS_SRC := $(filter-out tools/doctor/try_$(if $(with_verbs),unbuilt,verbs).c,$(TOOLS_SRC))
TOOLS_OBJ := $(TOOLS_SRC:%=$(B)/obj/%.o)
TOOLS_SHARED := $(patsubst %,$(B)/obj/cache/%.o,\
	$(addprefix base/environment/,config.c options.c log.c event.c) \
	base/thread/pthread.S base/memory/safe_read.c base/process/system.c \
	trace/journal/rescue.c backend/near.c)

ALL += $(B)/pindown

# Where `make install` puts the library, for a command that is moved away from it.
$(B)/obj/tools/system/preload.c.o: ALL_CFLAGS += -DPDN_LIBDIR='"$(LIBDIR)"'

# It has these files in it.
$(B)/obj/tools/report/html.c.o: $(wildcard tools/report/page/*)

$(B)/pindown: $(TOOLS_OBJ) $(TOOLS_SHARED)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) -lpthread
