# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Where UCX is, for check-ucx and check-softnic-ucx. It is given as a folder of its build, or as an
# archive of one, with bin/, lib/ and gtest/: UCX=..., else ucx-*.tar.xz in ../shared/peers beside
# this tree.
#
# In the environment: BUILD, SAN.

# Prints the folder that has bin/ and gtest/; the archive is unpacked once. A folder that another
# test has unpacked meanwhile is as good.
ucx_folder()
{
	local from=${UCX:-} here archives unpacked=$BUILD/peers partial

	if [ -z "$from" ]; then
		here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
		archives=("$here"/../../../shared/peers/ucx-*.tar.xz)
		from=${archives[0]}
	fi
	[ -e "$from" ] || return
	if [ -f "$from" ]; then
		if [ ! -e "$unpacked/ucx/gtest/gtest" ]; then
			mkdir -p "$unpacked" && partial=$(mktemp -d "$unpacked/ucx.XXXXXX") || return
			tar -xJf "$from" -C "$partial" || return
			mv -T "$partial/lib" "$unpacked/lib" 2>/dev/null
			mv -T "$partial/ucx" "$unpacked/ucx" 2>/dev/null
			rm -rf "$partial"
		fi
		from=$unpacked/ucx
	fi
	[ ! -x "$from/gtest/gtest" ] || echo "$from"
}

# Sets ucx to the folder, or skips the test with a line that says why.
find_ucx()
{
	local why=

	[ -z "${SAN:-}" ] || why='UCX patches code, which a sanitizer does too'
	[ "$(uname -m)" = x86_64 ] || why='UCX is to be had for x86-64'
	command -v xz >/dev/null || why='xz, which unpacks UCX, is not here'
	if [ -z "$why" ]; then
		ucx=$(ucx_folder)
		[ -n "$ucx" ] ||
			why='UCX is not here: set UCX to a folder of its build, or to an archive of one'
	fi
	[ -z "$why" ] || {
		echo "$why"
		exit 77
	}
}

# UCX on the software card and the simulated driver. UCX_FENCE_MODE=weak: UCX's strong fence reads 8
# bytes by the key 0xff, which stands for "none", of every card but mlx5's; any card refuses that.
# card_preload answers for /dev/infiniband/softnic_uverbs0 (ucx_device.c); ucx_cudart.c stands for
# the CUDA runtime.
ucx_on_card()
{
	local parts=$BUILD/middleware/ucx outer=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

	if [ ! -e "$BUILD/softnic/libibverbs.so.1" ]; then
		echo "the card is built with infiniband/verbs.h (Debian: libibverbs-dev)"
		exit 77
	fi
	find_ucx
	export LD_LIBRARY_PATH=$BUILD/softnic:$ucx/lib:$BUILD/sim:$parts:$parts/cudart$outer
	export SOFTNIC_FABRIC=ucx-$$
	export UCX_MODULE_DIR=$ucx/lib/ucx UCX_LOG_LEVEL=error UCX_FENCE_MODE=weak
	unset "${!PINDOWN@}"
	# Removes pindown's messages from UCX's output.
	export PINDOWN_LOG=error
	# shellcheck disable=SC2034 # for the tests
	card_preload=$parts/libdevice.so
	ulimit -c 0
}
