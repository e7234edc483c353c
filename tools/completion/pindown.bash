# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Completion of pindown for bash. pindown itself prints the candidates: tools/complete.h.

_pindown()
{
	local command=${COMP_WORDS[0]/#\~/$HOME} current=${COMP_WORDS[COMP_CWORD]} line

	COMPREPLY=()
	[ "$current" != = ] || current=
	while IFS= read -r line; do
		case $line in
		:files) _pindown_add < <(compgen -f -- "$current") ;;
		:folders) _pindown_add < <(compgen -d -- "$current") ;;
		:traces)
			_pindown_add < <(compgen -d -- "$current"
				compgen -f -X '!*.pdt' -- "$current")
			;;
		:commands) _pindown_add < <(compgen -c -- "$current") ;;
		*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done < <("$command" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}

# Names of files and commands, which bash has to quote.
_pindown_add()
{
	local name

	compopt -o filenames 2>/dev/null
	while IFS= read -r name; do
		COMPREPLY+=("$name")
	done
}

complete -F _pindown pindown
