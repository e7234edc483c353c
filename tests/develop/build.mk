# SPDX-License-Identifier: MIT
# Commands for people who work on pindown: one test, a test under gdb, the compiler's commands for
# an editor. And tests of these commands, and of the documents for such people.

# The tests that T names. The lists are complete only when all fragments have been read, so these
# are expanded late, in the recipes below.
develop_all = $(CHECK_UNIT) $(CHECK_SIM) $(CHECK_TREE) $(CHECK_GUEST)
develop_names = '$(subst ','\'',$(T))'
develop_chosen = $(shell tests/develop/choose $(develop_names) $(develop_all) 2>/dev/null)
# A program is built by its rule. A script gets all that scripts use.
develop_built = $(filter $(B)/%,$(develop_chosen)) \
	$(if $(filter-out $(CHECK_UNIT),$(develop_chosen)),$(CHECK_WITH))

test:
	@tests/develop/choose --say $(develop_names) $(develop_all) >/dev/null
	@$(MAKE) --no-print-directory $(ALL) $(develop_built)
	@$(IN_BUILD) tests/run $(develop_chosen)

# The program has the environment that tests/run would give it. CK_FORK=no: by default Check runs
# each test in a child of its own, which has no breakpoints.
GDB ?= gdb
GDB_COMMANDS := docs/internals/pindown-gdb.py
gdb:
	@tests/develop/choose --say --program $(develop_names) $(develop_all) >/dev/null
	@$(MAKE) --no-print-directory $(ALL) $(develop_built)
	@$(IN_BUILD) LC_ALL=C CK_FORK=no $(GDB) -x $(GDB_COMMANDS) $(develop_chosen)

# For clangd and others. A dry run of make lists the commands, so nothing is built.
compile_commands.json:
	@set -o pipefail; \
		$(MAKE) --no-print-directory --always-make --dry-run V=1 tests $(BENCH) | \
		tests/develop/compile-commands >$@

# The analysers that are installed, or those that ONLY names; see .ci/analyse.
analyse:
	@.ci/analyse $(subst $(comma), ,$(ONLY))

help:
	@sed -n '/^#   make /,/^$$/s/^# \{0,3\}//p' Makefile

.PHONY: test gdb compile_commands.json analyse help

CHECK_TREE += tests/develop/check-make tests/develop/check-debugging
