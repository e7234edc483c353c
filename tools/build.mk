# SPDX-License-Identifier: MIT
# The pindown command. It shares the configuration and the trace's format with the library.
# It reads ELF files with libelf; where there is none to build with, `check` says so.
TOOLS_SRC := $(wildcard tools/*.c)
with_elf := $(call has_header,gelf.h)
TOOLS_SRC := $(filter-out $(if $(with_elf),tools/object_unread.c,tools/object_read.c tools/deepbind.c),$(TOOLS_SRC))
TOOLS_LIBS := $(if $(with_elf),-lelf)
# Call stacks get their names from libdw; where there is none, they are modules and offsets.
with_dw := $(call has_header,elfutils/libdwfl.h)
TOOLS_SRC := $(filter-out $(if $(with_dw),tools/symbols_none.c,tools/symbols_dw.c),$(TOOLS_SRC))
TOOLS_LIBS += $(if $(with_dw),-ldw -ldl)
TOOLS_OBJ := $(TOOLS_SRC:%=$(B)/obj/%.o)
TOOLS_SHARED := $(patsubst %,$(B)/obj/cache/%.c.o,config log trace_format trace_rescue)

ALL += $(B)/pindown

# Where `make install` puts the library, for a command that is moved away from it.
$(B)/obj/tools/preload.c.o: ALL_CFLAGS += -DPD_LIBDIR='"$(LIBDIR)"'

$(B)/pindown: $(TOOLS_OBJ) $(TOOLS_SHARED)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) $(TOOLS_LIBS) -lpthread
