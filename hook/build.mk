# SPDX-License-Identifier: MIT
HOOK_SRC := wrap.c find.c lookup.c stubs.S loader.c libcuda.c owners.c contexts.c ipc.c graphs.c records.c life.c
LIB_SRC += $(HOOK_SRC:%=hook/%)
$(HOOK_SRC:%=$(B)/obj/hook/%.o): INCLUDE += -Ihook
