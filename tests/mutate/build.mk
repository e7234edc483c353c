# SPDX-License-Identifier: MIT
# Faults planted one at a time: make mutate [N=60] [SEED=1] [JOBS=...] [IN=cache/,hook/file.c]
# [MUTATE=more options]; tests/mutate/mutate --help lists these.
CHECK_TREE += tests/mutate/check-mutants

mutate:
	@tests/mutate/mutate --count $(or $(N),60) --seed $(or $(SEED),1) $(JOBS:%=--jobs %) \
		$(IN:%=--in %) $(MUTATE)
.PHONY: mutate
