# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Older releases of pindown, out of this repository's history, for the tests that source this file.
# Before the first tag they are commits. Work is done in build/older.

# The last commit with the C API of 0.1, before which there was no other; its module has ABI 2, as
# today's. From the first tag on it is the last release.
release=$(git describe --tags --abbrev=0 --match='v[0-9]*' 2>/dev/null)
: "${release:=98b937008a55a1f63047baf2af80c5a40a3898e3}"
# The last commit whose module has ABI 1, and the last whose command knows traces of format 1.0 only.
abi_1=e8bb97313421d5d2010ce8a440a1da2f74263e31
# shellcheck disable=SC2034 # for the script that sources this
trace_1_0=1b3729b28850e7e035374e1151f51928fab1e716
older=${BUILD:-$PWD/build}/older

# Whether the history that this clone has goes back so far.
has_older()
{
	git cat-file -e "$release^{commit}" 2>/dev/null &&
		git cat-file -e "$abi_1^{commit}" 2>/dev/null
}

# older_tree COMMIT: puts its files into $older/COMMIT, once, whoever asks at the same time.
older_tree()
{
	local at=$older/$1

	mkdir -p "$older"
	(
		flock 9
		[ ! -e "$at/ready" ] || exit 0
		rm -rf "$at"
		mkdir "$at" && git archive "$1" | tar -x -C "$at" && touch "$at/ready"
	) 9>"$older/lock"
}

# older_build COMMIT: builds its library and its command in $older/COMMIT/build.
older_build()
{
	local at=$older/$1

	older_tree "$1" || return
	(
		flock 9
		[ ! -e "$at/built" ] || exit 0
		unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES B BUILD SAN
		# -w: a newer compiler warns of more.
		make -C "$at" -j"$(nproc)" CFLAGS='-O1 -g -w' build/libpindown.so build/pindown \
			>"$at/log" 2>&1 && touch "$at/built"
	) 9>"$older/lock"
}
