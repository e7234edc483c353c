# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Sourced by the check scripts: runs a program without and with libpindown.so, and compares.
#
# BUILD         the build folder
# SAN_PRELOAD   a sanitizer's runtime, which has to be preloaded first
# DRIVER        real: the machine's own libcuda instead of the simulated one

: "${BUILD:?the build folder; run this by make check-sim}"
export apps=$BUILD/apps
library=$BUILD/libpindown.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
skipped=0

export LC_ALL=C
[ "${DRIVER:-simulated}" = real ] ||
	export LD_LIBRARY_PATH=$BUILD/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# The programs may end with memory in use, and libraries are preloaded on purpose.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0:verify_asan_link_order=0
unset "${!PINDOWN@}"

# The calls in the trace of every process, as lines "name result address".
traced_calls()
{
	local trace

	for trace in "$work"/trace*.pdt; do
		[ -e "$trace" ] || continue
		# The trace says of some processes that they were killed, which is right.
		"$BUILD/pindown" dump --json "$trace" 2>"$work/dump.err" ||
			{ echo "unreadable: $trace" && cat "$work/dump.err"; }
	done | awk '
		function value(key,    found) {
			if (!match($0, "\"" key "\": *\"?[^,\"}]*"))
				return "";
			found = substr($0, RSTART, RLENGTH);
			sub("\"" key "\": *\"?", "", found);
			return found;
		}
		!/^\{/ { print; next }
		value("event") == "lost" { print "lost", $0; next }
		value("event") == "call" { print value("call"), value("result"), value("addr") }'
}

# The trace must contain each call that the program noted, and no other except those of the gates.
trace_matches()
{
	traced_calls | sort >"$work/traced"
	sort "$work/calls.with" >"$work/noted"
	awk '{ print $1, $2 }' "$work/noted" >"$work/noted.results"
	grep -vE '^(cuGetProcAddress|cuGetExportTable|cuMemGetHandleForAddressRange)' \
		"$work/traced" |
		awk '{ print $1, $2 }' >"$work/traced.results"
	if ! diff "$work/noted.results" "$work/traced.results" >"$work/difference"; then
		echo 'calls and results: < what the program did, > what the trace says' \
			>>"$work/difference"
		return 1
	fi
	grep -v ' 0x0$' "$work/noted" | comm -23 - "$work/traced" >"$work/difference"
	[ ! -s "$work/difference" ] || {
		echo 'these addresses are missing in the trace' >>"$work/difference"
		return 1
	}
}

# A program that rejects its arguments, or crashes, tests nothing.
ran()
{
	local status

	status=$(cat "$work/status.plain")
	[ "$status" != 2 ] && [ "$status" -lt 126 ] && return
	{
		echo "without pindown the program ended with status $status"
		cat "$work/err.plain"
	} >"$work/difference"
	return 1
}

# The simulated driver has every function that the programs call: a missing one is a failure.
found_all()
{
	[ "${DRIVER:-simulated}" = real ] ||
		! grep ': not there$' "$work/out.plain" >"$work/difference"
}

# Sets `difference` to the differences between the two runs.
same()
{
	local what

	# A real driver need not hand out an address again.
	[ "${DRIVER:-simulated}" != real ] ||
		sed -i 's/, at [A-Z][23]*$/, somewhere/' "$work/out.plain" "$work/out.with"
	for what in out err status; do
		if ! diff "$work/$what.plain" "$work/$what.with" >"$work/difference"; then
			case $what in
			out) echo 'standard output: < without, > with' ;;
			err) echo 'standard error: < without, > with' ;;
			status) echo 'exit status: < without, > with' ;;
			esac >>"$work/difference"
			return 1
		fi
	done
}

verdict()
{
	local name=$1 good=$2

	if [ "$good" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL $name"
		sed 's/^/    /' "$work/difference" | head -n 40
	fi
}

skip()
{
	skipped=$((skipped + 1))
	echo "skip $1: $2"
}

# Some groups can't be run under a sanitizer.
cannot_run()
{
	[ "${SAN:-} $1" = 'thread fork' ] || return
	skip "$1" 'ThreadSanitizer can not be preloaded into the shell that it starts'
}

# run SUFFIX PRELOAD COMMAND...: writes output, errors, status and calls of one run to files.
run()
{
	local suffix=$1 preload=$2

	shift 2
	: >"$work/calls.$suffix"
	timeout --kill-after=5 60 env APP_CALLS="$work/calls.$suffix" LD_PRELOAD="$preload" \
		"$@" >"$work/out.$suffix" 2>"$work/err.$suffix" </dev/null
	echo $? >"$work/status.$suffix"
}

# compare NAME [--before LIBRARIES] [--after LIBRARIES] [--no-trace] -- COMMAND...
# Runs it without and with libpindown.so, which is preloaded between the other preloads.
compare()
{
	local name=$1 before='' after='' trace=1

	shift
	while [ "$1" != -- ]; do
		case $1 in
		--before) before=$2 && shift ;;
		--after) after=$2 && shift ;;
		--no-trace) trace=0 ;;
		esac
		shift
	done
	shift
	rm -f "$work"/*
	run plain "$SAN_PRELOAD $before $after" "$@"
	PINDOWN_TRACE=$work/trace.pdt run with "$SAN_PRELOAD $before $library $after" "$@"
	if ran && found_all && same && { [ $trace = 0 ] || trace_matches; }; then
		verdict "$name" 0
	else
		verdict "$name" 1
	fi
}

# A test without output proves nothing: the run without pindown must have printed something.
must_have()
{
	local name=$1 pattern=$2

	if ! grep -qE "$pattern" "$work/out.plain"; then
		echo "the run without pindown did not print /$pattern/" >"$work/difference"
		cat "$work/out.plain" "$work/err.plain" >>"$work/difference"
		verdict "$name: precondition" 1
	fi
}

summary()
{
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
}
