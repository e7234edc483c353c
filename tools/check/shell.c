// SPDX-License-Identifier: MIT
/*
 * Reads the part of sh's language that wrappers use: quoted words, variables, and the commands that
 * find a script's own folder. Whatever else is in a word makes it unknown.
 */
#define _GNU_SOURCE
#include "tools/check/shell.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/regular.h"
#include "tools/system/programs.h"

bool shell_is(const char *program)
{
	static const char *const names[] = {"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"};
	const char *slash = strrchr(program, '/');

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(slash ? slash + 1 : program, names[i]) == 0)
			return true;
	return false;
}

struct word {
	char text[PATH_MAX];
	size_t length;
	bool known;
};

/*
 * The script up to a place in it: `end` is where the command begins whose words are read. `left` is
 * how many expansions may follow: a script may nest them without end.
 */
struct script {
	const char *path, *text, *end;
	unsigned *left;
};
enum { MOST_EXPANSIONS = 100 };

static void read_word(const struct script *script, const char **at, struct word *word);

static void add(struct word *word, const char *text, size_t length)
{
	if (length >= sizeof(word->text) - word->length) {
		word->known = false;
		return;
	}
	memcpy(word->text + word->length, text, length);
	word->length += length;
	word->text[word->length] = '\0';
}

/* Adds what another word has, or makes this one unknown too. */
static void add_word(struct word *word, const struct word *other)
{
	word->known &= other->known;
	add(word, other->text, other->length);
}

static void cut_to_folder(struct word *word)
{
	char *slash = strrchr(word->text, '/');

	if (!slash)
		strcpy(word->text, ".");
	else
		slash[slash == word->text] = '\0';
	word->length = strlen(word->text);
}

static size_t name_length(const char *text)
{
	size_t length = 0;

	while (isalnum((unsigned char)text[length]) || text[length] == '_')
		length++;
	return length;
}

/*
 * The value that the script gives a variable, or what the environment has. An assignment that is
 * indented may be one of several.
 */
static void read_variable(const struct script *script, const char *name, size_t length,
			  struct word *value)
{
	char copy[64];
	const char *from, *line = script->text, *last = NULL;

	for (; line && line < script->end; line = strchr(line, '\n')) {
		line += *line == '\n';
		from = line + strspn(line, " \t");
		if (strncmp(from, "export ", 7) == 0)
			from += 7;
		if (strncmp(from, name, length) == 0 && from[length] == '=')
			last = line;
	}
	*value = (struct word){.known = !last || !isspace((unsigned char)*last)};
	snprintf(copy, sizeof(copy), "%.*s", (int)length, name);
	from = getenv(copy);
	if (last) {
		const struct script before = {script->path, script->text, last, script->left};

		last = strchr(last, '=') + 1;
		read_word(&before, &last, value);
	} else if (from) {
		add(value, from, strlen(from));
	} else {
		value->known = false;
	}
}

/* $(dirname "$0"), $(realpath x), $(readlink -f x), $(cd x && pwd), $(command -v x), `which x`. */
static void read_output(const struct script *script, const char *command, struct word *output)
{
	struct word name = {.known = true};
	char path[PATH_MAX];

	read_word(script, &command, &name);
	do {
		*output = (struct word){.known = name.known};
		command += strspn(command, " \t\n");
		read_word(script, &command, output);
	} while (output->text[0] == '-');
	if (strcmp(name.text, "dirname") == 0) {
		cut_to_folder(output);
		return;
	}
	if (strcmp(name.text, "realpath") == 0 || strcmp(name.text, "readlink") == 0 ||
	    strcmp(name.text, "cd") == 0)
		output->known &= realpath(output->text, path) != NULL;
	else if (strcmp(name.text, "command") == 0 || strcmp(name.text, "which") == 0)
		output->known &= program_find(output->text, path, sizeof(path));
	else
		output->known = false;
	output->length = 0;
	if (output->known)
		add(output, path, strlen(path));
}

/* The text of a command up to its end, `close`, behind which *at is moved. */
static void read_substitution(const struct script *script, const char **at, char open, char close,
			      struct word *word)
{
	struct word output;
	char command[1024];
	const char *end = *at;
	int depth = 1;

	for (; *end && (depth -= *end == close) > 0; end++)
		depth += open != close && *end == open;
	if (*script->left && snprintf(command, sizeof(command), "%.*s", (int)(end - *at), *at) <
				     (int)sizeof(command)) {
		--*script->left;
		read_output(script, command, &output);
		add_word(word, &output);
	} else {
		word->known = false;
	}
	*at = end + (*end != '\0');
}

/* Behind a dollar: 0, NAME, {NAME}, {NAME:-word}, {0%/...} or (command). */
static void read_dollar(const struct script *script, const char **at, struct word *word)
{
	bool braces = **at == '{';
	const char *name = *at + braces;
	size_t length = name_length(name);
	struct word value = {.known = true};

	if (**at == '(') {
		++*at;
		read_substitution(script, at, '(', ')', word);
		return;
	}
	if (length == 0 || (isdigit((unsigned char)*name) && *name != '0') || !*script->left) {
		word->known = false;
		return;
	}
	--*script->left;
	*at = name + length;
	if (*name == '0' || (length == 11 && strncmp(name, "BASH_SOURCE", length) == 0))
		add(&value, script->path, strlen(script->path));
	else
		read_variable(script, name, length, &value);
	if (braces) {
		if (strncmp(*at, "[0]", 3) == 0)
			*at += 3;
		if (strncmp(*at, "%/*", 3) == 0) {
			cut_to_folder(&value);
			*at += 3;
		} else if (strncmp(*at, ":-", 2) == 0) {
			const char *end = *at + 2 + strcspn(*at + 2, "}\n");

			if (!value.known) {
				value = (struct word){.known = !memchr(*at, '$', end - *at)};
				add(&value, *at + 2, (size_t)(end - *at - 2));
			}
			*at = end;
		}
		value.known &= **at == '}';
		*at += **at == '}';
	}
	add_word(word, &value);
}

static void read_word(const struct script *script, const char **at, struct word *word)
{
	bool quoted = false;

	for (char c; (c = **at) != '\0' && (quoted || !strchr(" \t\n;&|<>()", c));) {
		++*at;
		if (c == '"') {
			quoted = !quoted;
		} else if (c == '\'' && !quoted) {
			size_t length = strcspn(*at, "'");

			add(word, *at, length);
			*at += length + ((*at)[length] != '\0');
		} else if (c == '\\' && **at) {
			add(word, *at, **at != '\n');
			++*at;
		} else if (c == '$') {
			read_dollar(script, at, word);
		} else if (c == '`') {
			read_substitution(script, at, '`', '`', word);
		} else {
			add(word, &c, 1);
		}
	}
}

/* The next word of a command; false at its end, and where the word is not known. */
static bool next_word(const struct script *script, const char **at, struct word *word)
{
	while (**at == ' ' || **at == '\t' || strncmp(*at, "\\\n", 2) == 0)
		*at += **at == '\\' ? 2 : 1;
	*word = (struct word){.known = true};
	read_word(script, at, word);
	return word->known && word->length && !strchr("<>", **at ? **at : ' ');
}

/* The program among the words behind `exec`, also behind env. */
static bool find_program(const struct script *script, const char *at, char *path, size_t capacity)
{
	bool behind_env = false, skip = false;
	struct word word, folders;

	while (next_word(script, &at, &word)) {
		const char *slash = strrchr(word.text, '/');

		if (skip) {
			skip = false;
		} else if (word.text[0] == '-') {
			skip = strcmp(word.text, "-a") == 0 || strcmp(word.text, "-u") == 0;
		} else if (strcmp(slash ? slash + 1 : word.text, "env") == 0) {
			behind_env = true;
		} else if (!behind_env || !strchr(word.text, '=')) {
			const char *own = getenv("PATH");

			read_variable(script, "PATH", 4, &folders);
			return (slash || (folders.known && own && !strcmp(folders.text, own))) &&
			       program_find(word.text, path, capacity) &&
			       strcmp(path, script->path) != 0;
		}
	}
	return false;
}

static bool ends_with(const char *line, const char *end, const char *word)
{
	size_t length = strlen(word);

	return (size_t)(end - line) >= length && memcmp(end - length, word, length) == 0;
}

/* By how much a command's first word opens or closes what the shell may leave out. */
static int nesting(const char *word, const char *line, const char *end)
{
	static const char *const opens[] = {"if", "case", "for", "while", "until", "{", NULL};
	static const char *const closes[] = {"fi", "esac", "done", "}", NULL};

	for (unsigned i = 0; closes[i]; i++)
		if (strcmp(word, closes[i]) == 0)
			return -1;
	for (unsigned i = 0; opens[i]; i++)
		if (strcmp(word, opens[i]) == 0)
			return !ends_with(line, end, "fi") && !ends_with(line, end, "done") &&
			       !ends_with(line, end, "esac");
	return line[strcspn(line, "(\n")] == '(' && strcspn(line, "{\n") + 1 == strcspn(line, "\n");
}

static bool find_exec(const char *script, const char *text, char *path, size_t capacity)
{
	int depth = 0;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		const char *at, *end;
		unsigned left = MOST_EXPANSIONS;
		struct script before;
		struct word word;

		line += *line == '\n';
		end = line + strcspn(line, "\n");
		before = (struct script){script, text, line, &left};
		at = line + strspn(line, " \t");
		if (*at == '#')
			continue;
		next_word(&before, &at, &word);
		if (strcmp(word.text, "exec") != 0) {
			/* Where another command is run first, it decides. */
			if (memmem(line, (size_t)(end - line), "exec ", 5))
				return false;
			depth += nesting(word.text, line, end);
			continue;
		}
		if (find_program(&before, at, path, capacity))
			return depth == 0 && !isspace((unsigned char)*line);
		at += strspn(at, " \t0123456789");
		if (*at != '<' && *at != '>') /* a redirection alone */
			return false;
	}
	return false;
}

bool shell_becomes(const char *script, char *path, size_t capacity)
{
	static char text[1 << 16];
	int fd = open_regular(script, 0);
	ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;

	if (fd >= 0)
		close(fd);
	text[length > 0 ? length : 0] = '\0';
	return find_exec(script, text, path, capacity);
}
