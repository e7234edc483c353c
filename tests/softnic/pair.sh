# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For scripts that run a server and its client on this machine, one pair after another. Sourced by
# them. `port` is the port of the pair.
port=$((20000 + RANDOM % 10000))

# Does a process listen at the port? Looking doesn't connect, which a server would take for its
# client.
listens()
{
	grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$port") [0-9A-F]+:0000 0A " \
		/proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Sets `port` to the next one that nobody listens at.
next_port()
{
	port=$((port + 1))
	while listens; do
		port=$((port + 1))
	done
}

# server_listens SERVER: waits until the process listens. Fails if it has ended, or needs a minute.
server_listens()
{
	local end=$((SECONDS + 60))

	until listens; do
		if [ ! -d "/proc/$1" ] || [ $SECONDS -ge $end ]; then
			echo "the server does not listen at port $port"
			return 1
		fi
		sleep 0.1
	done
}
