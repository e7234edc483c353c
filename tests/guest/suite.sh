# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# For scripts to source: packages of another release of Debian, or for another architecture, by
# sources lists beside the system's, in $dir/apt. Nothing is installed.

# The system's own mirror of Debian, which has all releases.
mirror()
{
	# shellcheck disable=SC2016 # apt's own variables
	apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
		sed -n 's/^Debian Debian //p' | head -n 1
}

# in_suite SUITE COMMAND...: apt, for that release of Debian. It knows the packages for arm64, too,
# by their names with ":arm64".
in_suite()
{
	# shellcheck disable=SC2154 # the script that sources this sets it
	local at=$dir/apt/$1 command=$2

	shift 2
	"$command" -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$at/sources" \
		-o "Dir::State::lists=$at/lists" -o "Dir::Cache=$at/cache" \
		-o "APT::Sandbox::User=$(id -un)" \
		-o "APT::Architectures::=$(dpkg --print-architecture)" \
		-o APT::Architectures::=arm64 "$@"
}

# with_suite SUITE COMPONENT [ARCHITECTURES]: fetches the lists of that release from $uri, for the
# machine's own architecture if no others are named.
with_suite()
{
	local at=$dir/apt/$1 options=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg

	mkdir -p "$at"/{sources,lists/partial,cache/archives/partial}
	options+=" arch=${3:-$(dpkg --print-architecture)}"
	# shellcheck disable=SC2154 # the script that sources this sets it
	echo "deb [$options] $uri $1 $2" >"$at/sources/$2.list"
	in_suite "$1" apt-get update >&2
}
