# SPDX-License-Identifier: MIT
# The cache against a model of it: all objects of the cache except the backends, and with the C
# library's own functions, which its options and files need.
MODEL_SRC := $(addprefix tests/model/,main.c round.c dice.c operations.c get.c attach.c lists.c \
	objects.c pins.c memory.c shrink.c)
MODEL_OBJ := $(patsubst %,$(B)/obj/%.o,$(MODEL_SRC) \
	$(filter-out cache/base/environment/text.c \
		$(patsubst %,cache/backend/%.c,backend dmabuf kmod),\
		$(filter cache/%,$(LIB_SRC))))
CHECK_SIM += $(B)/unit/test_model
CHECK_TREE += tests/model/check-protocol tests/model/check-patterns

$(B)/unit/test_model: $(MODEL_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $^ -o $@ $(ALL_LDFLAGS) -ldl -lpthread
