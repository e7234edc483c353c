# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What the scripts share that test the command from outside. They source this file first: then they
# are in a scratch folder, and of pindown's variables only BUILD, SAN and SAN_PRELOAD are set. They
# end with `finish`.
set -u
export LC_ALL=C TZ=UTC TERM=dumb PAGER=cat
# A sanitizer's runtime refuses to run after another preloaded library.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
unset COLUMNS NO_COLOR LESS "${!PINDOWN@}" LD_PRELOAD

# shellcheck disable=SC2034 # for the script that sources this
here=$(cd "$(dirname "$0")" && pwd)
pindown=$BUILD/pindown
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
skipped=0
cd "$scratch" || exit 1

good()
{
	passed=$((passed + 1))
}

bad()
{
	failed=$((failed + 1))
	echo "FAILED: $*"
}

skip()
{
	skipped=$((skipped + 1))
	echo "skip: $*"
}

# is WHAT FOUND EXPECTED
is()
{
	if [ "$2" = "$3" ]; then good; else bad "$1: '$2' instead of '$3'"; fi
}

# until_true COMMAND...: looks again and again until it succeeds. After a minute it fails, and so
# does the test.
until_true()
{
	local end=$((SECONDS + 60))

	until "$@"; do
		if [ $SECONDS -ge $end ]; then
			bad "not within a minute: $*"
			return 1
		fi
		sleep 0.05
	done
}

# has_lines COUNT FILE: so many, or more.
has_lines()
{
	[ "$(wc -l <"$2")" -ge "$1" ]
}

# gives STATUS TEXT ARGUMENT...: the command has that exit status, and prints one line with TEXT on
# standard error.
gives()
{
	local expected=$1 text=$2 status

	shift 2
	"$pindown" "$@" >out 2>err
	status=$?
	if [ "$status" = "$expected" ] && grep -qF -- "$text" err && [ "$(wc -l <err)" = 1 ]; then
		good
	else
		bad "pindown $*: exit status $status instead of $expected, or not one line with:" \
			"$text"
		cat err
	fi
}

# says STATUS TEXT... -- ARGUMENT...: runs ask ARGUMENT..., which the script defines. It has that
# exit status and prints each text, or does not print it if "! " stands before the text. With
# flatten=yes, blanks and ends of lines count as one blank.
says()
{
	local expected=$1 status text texts=()

	shift
	while [ "$1" != -- ]; do
		texts+=("$1")
		shift
	done
	shift
	ask "$@" >out 2>&1
	status=$?
	if [ "${flatten:-no}" = yes ]; then
		tr -s ' \n' '  ' <out >looked_at
	else
		cp out looked_at
	fi
	for text in "${texts[@]}"; do
		if [ "${text:0:2}" = '! ' ]; then
			! grep -qF -- "${text:2}" looked_at && continue
		else
			grep -qF -- "$text" looked_at && continue
		fi
		bad "${what:-} $*: no '$text' in"
		sed 's/^/  /' out
		return
	done
	if [ "$status" = "$expected" ]; then
		good
	else
		bad "${what:-} $*: exit status $status instead of $expected"
		sed 's/^/  /' out
	fi
}

finish()
{
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
}
