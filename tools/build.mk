# SPDX-License-Identifier: MIT
# The pindown command. It shares the configuration and the trace's format with the library.
TOOLS_SRC := $(wildcard tools/*.c)
TOOLS_OBJ := $(TOOLS_SRC:%=$(B)/obj/%.o)
TOOLS_SHARED := $(B)/obj/cache/config.c.o $(B)/obj/cache/log.c.o $(B)/obj/cache/trace_format.c.o

ALL += $(B)/pindown

# Where `make install` puts the library, for a command that is moved away from it.
$(B)/obj/tools/run.c.o: ALL_CFLAGS += -DPD_LIBDIR='"$(LIBDIR)"'

$(B)/pindown: $(TOOLS_OBJ) $(TOOLS_SHARED)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -lpthread
