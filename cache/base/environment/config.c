/* SPDX-License-Identifier: MIT */
/* Reads the configuration from the environment, and notes what is wrong there. */
#define _GNU_SOURCE
#include "cache/base/environment/config.h"
#include "cache/base/visible.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "cache/base/environment/log.h"
#include "cache/base/thread/pthread.h"
#include "cache/base/environment/event.h"
#include "cache/base/process/system.h"

enum kind { SWITCH, CHOICE, BYTES, COUNT, FRAMES, FILE_NAME, EVENTS };
#define PDN_KIND_SWITCH SWITCH
#define PDN_KIND_CHOICE CHOICE
#define PDN_KIND_BYTES	BYTES
#define PDN_KIND_COUNT	COUNT
#define PDN_KIND_FRAMES FRAMES
#define PDN_KIND_FILE	FILE_NAME
#define PDN_KIND_EVENTS EVENTS

/* Each in the order of its enum. In one object, as a pointer to each would be a relocation more. */
#define CHOICES(C)                                                \
	C(none, "")                                               \
	C(backend, "auto\0kmod\0kmod-persistent\0dmabuf\0none\0") \
	C(mapping, "auto\0default\0pcie\0")                       \
	C(verify, "auto\0always\0never\0")                        \
	C(held, "keep\0warn\0revoke\0retire\0")                   \
	C(log, "quiet\0error\0warn\0info\0debug\0")               \
	C(deepbind, "clear\0keep\0")                              \
	C(verbs, "0\0"                                            \
		 "1\0"                                            \
		 "exact\0")
static const struct choice_lists {
#define MEMBER(name, texts) char name[sizeof(texts)];
	CHOICES(MEMBER)
} lists = {
#define TEXTS(name, texts) texts,
	CHOICES(TEXTS)};

const struct pdn_variable pdn_variables[] = {
#define PDN_VARIABLE(name, member, kind, choices, default_value, option, argument, help) \
	{name, default_value, PDN_KIND_##kind, offsetof(struct pdn_config, member),      \
	 offsetof(struct choice_lists, choices)},
#include "cache/base/environment/config.def"
#undef PDN_VARIABLE
};
const unsigned pdn_variable_count = sizeof(pdn_variables) / sizeof(pdn_variables[0]);

/* ---- what was wrong ---------------------------------------------------------------------- */

static void problem(struct pdn_problems *problems, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void problem(struct pdn_problems *problems, const char *format, ...)
{
	size_t capacity = sizeof(problems->text) - problems->used;
	va_list arguments;
	int length;

	problems->count++;
	va_start(arguments, format);
	length = vsnprintf(problems->text + problems->used, capacity, format, arguments);
	va_end(arguments);
	if (length < 0 || (size_t)length + 2 > capacity) { /* does not fit: counted, not printed */
		problems->text[problems->used] = '\0';
		return;
	}
	problems->used += (size_t)length;
	problems->text[problems->used++] = '\n';
	problems->text[problems->used] = '\0';
}

/* A value as it can be shown in a line: cut, and without control characters. */
struct shown {
	char text[80];
};

static struct shown show(const char *value, size_t length)
{
	const size_t most = sizeof(((struct shown *)0)->text) - 4;
	struct shown shown;
	size_t i;

	for (i = 0; i < length && i < most; i++)
		shown.text[i] = (unsigned char)value[i] < ' ' ? '?' : value[i];
	strcpy(shown.text + i, i < length ? "..." : "");
	return shown;
}

/* Levenshtein distance, of short names only. */
static unsigned distance(const char *a, size_t length, const char *b)
{
	enum { MOST = 40 };
	unsigned row[MOST + 1];
	size_t other = strlen(b);

	if (length > MOST || other > MOST)
		return MOST;
	for (size_t j = 0; j <= other; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= length; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= other; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (row[j] + 1 < best)
				best = row[j] + 1;
			row[j] = best;
		}
	}
	return row[other];
}

static const char *nearest_name(const char *name, size_t length)
{
	const char *nearest = pdn_variables[0].name;
	unsigned least = ~0u;

	for (unsigned i = 0; i < pdn_variable_count; i++) {
		unsigned d = distance(name, length, pdn_variables[i].name);

		if (d < least) {
			least = d;
			nearest = pdn_variables[i].name;
		}
	}
	return nearest;
}

static void append(char *text, size_t capacity, const char *more)
{
	size_t used = strlen(text);

	snprintf(text + used, capacity - used, "%s", more);
}

const char *pdn_choices_of(const struct pdn_variable *variable)
{
	return (const char *)&lists + variable->choices;
}

const char *pdn_variable_accepts(const struct pdn_variable *variable, char *text, size_t capacity)
{
	const char *first = pdn_choices_of(variable);

	text[0] = '\0';
	switch ((enum kind)variable->kind) {
	case SWITCH:
		append(text, capacity, "0 or 1");
		break;
	case CHOICE:
		append(text, capacity, "one of ");
		for (const char *name = first; *name; name = pdn_next_choice(name)) {
			append(text, capacity, name == first ? "" : ", ");
			append(text, capacity, name);
		}
		break;
	case BYTES:
		append(text, capacity,
		       "a number of bytes, with K, M, G or T after it for KiB to TiB");
		break;
	case COUNT:
		append(text, capacity, "a number");
		break;
	case FRAMES:
		append(text, capacity, "a number from 0 to 64");
		_Static_assert(PDN_MOST_FRAMES == 64, "in this text");
		break;
	case FILE_NAME:
		append(text, capacity, "the name of a file");
		break;
	case EVENTS:
		append(text, capacity,
		       "all, or names with commas between, with - before one to leave out: ");
		for (unsigned event = 0; event < PDN_EV_LOST; event++) {
			append(text, capacity, event ? ", " : "");
			append(text, capacity, pdn_event_names[event]);
		}
		break;
	}
	return text;
}

/* ---- values: each parser returns whether the text was good, and sets *out only then ------ */

static bool parse_switch(const char *text, bool *out)
{
	if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		return false;
	*out = text[0] == '1';
	return true;
}

static bool parse_choice(const char *text, const char *choice, unsigned *out)
{
	for (unsigned i = 0; *choice; i++, choice = pdn_next_choice(choice)) {
		if (strcmp(text, choice) == 0) {
			*out = i;
			return true;
		}
	}
	return false;
}

/* Digits; returns what follows them, or NULL when there are none or too many. */
static const char *parse_digits(const char *text, uint64_t *out)
{
	uint64_t value = 0;

	if (*text < '0' || *text > '9')
		return NULL;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return NULL;
	}
	*out = value;
	return text;
}

static bool parse_count(const char *text, uint64_t *out)
{
	uint64_t value;
	const char *rest = parse_digits(text, &value);

	if (!rest || *rest)
		return false;
	*out = value;
	return true;
}

static bool parse_frames(const char *text, uint64_t *out)
{
	uint64_t value;

	if (!parse_count(text, &value) || value > PDN_MOST_FRAMES)
		return false;
	*out = value;
	return true;
}

static bool parse_bytes(const char *text, uint64_t *out)
{
	static const char suffixes[] = "KMGT";
	const char *rest, *suffix;
	unsigned shift = 0;
	uint64_t value;

	rest = parse_digits(text, &value);
	if (!rest)
		return false;
	suffix = *rest ? strchr(suffixes, *rest & ~0x20) : NULL;
	if (suffix && *suffix) {
		shift = 10 * (unsigned)(suffix - suffixes + 1);
		rest++;
		if (rest[0] == 'i' && rest[1] == 'B')
			rest += 2;
	}
	if (*rest || value > UINT64_MAX >> shift)
		return false;
	*out = value << shift;
	return true;
}

/* A relative name starts at the directory in which the program was started, also after a chdir().
 */
static bool parse_file(const char *text, struct pdn_config *config)
{
	char path[PATH_MAX];
	size_t length = strlen(text), used = 0;

	if (text[length - 1] == '/')
		return false;
	if (text[0] != '/') {
		if (!pdn_sys_working_directory(path, sizeof(path)))
			return false;
		used = strlen(path);
		path[used++] = '/';
	}
	if (used + length >= sizeof(path))
		return false;
	memcpy(path + used, text, length + 1);
	memcpy(config->trace_path, path, used + length + 1);
	config->trace = config->trace_path;
	return true;
}

static bool parse_event(const char *name, size_t length, uint32_t *bits)
{
	if (length == 3 && strncmp(name, "all", 3) == 0) {
		*bits = (1u << PDN_EV_LOST) - 1;
		return true;
	}
	for (unsigned event = 0; event < PDN_EV_LOST; event++) {
		if (strlen(pdn_event_names[event]) == length &&
		    strncmp(name, pdn_event_names[event], length) == 0) {
			*bits = 1u << event;
			return true;
		}
	}
	return false;
}

/* A list that begins with a removal is taken from the default. */
static bool parse_events(const char *text, uint32_t *out)
{
	uint32_t mask = text[0] == '-' ? *out : 0, bits;

	for (;;) {
		bool remove = *text == '-';
		size_t length;

		text += remove;
		length = strcspn(text, ",");
		if (!parse_event(text, length, &bits))
			return false;
		mask = remove ? mask & ~bits : mask | bits;
		if (!text[length])
			break;
		text += length + 1;
	}
	*out = mask;
	return true;
}

static bool parse_value(struct pdn_config *config, const struct pdn_variable *variable,
			const char *text)
{
	void *member = (char *)config + variable->offset;

	switch ((enum kind)variable->kind) {
	case SWITCH:
		return parse_switch(text, member);
	case CHOICE:
		return parse_choice(text, pdn_choices_of(variable), member);
	case BYTES:
		return parse_bytes(text, member);
	case COUNT:
		return parse_count(text, member);
	case FRAMES:
		return parse_frames(text, member);
	case FILE_NAME:
		return parse_file(text, config);
	case EVENTS:
		return parse_events(text, member);
	}
	return false;
}

/* ---- the environment --------------------------------------------------------------------- */

static const struct pdn_variable *find_variable(const char *name, size_t length)
{
	for (unsigned i = 0; i < pdn_variable_count; i++) {
		const char *known = pdn_variables[i].name;

		if (strlen(known) == length && strncmp(known, name, length) == 0)
			return &pdn_variables[i];
	}
	return NULL;
}

static void set_defaults(struct pdn_config *config)
{
	config->trace = NULL;
	config->trace_path[0] = '\0';
	for (unsigned i = 0; i < pdn_variable_count; i++) {
		if (pdn_variables[i].default_value[0])
			parse_value(config, &pdn_variables[i], pdn_variables[i].default_value);
	}
}

/* Names without a row, which other software may have set. */
struct unknown {
	unsigned count;
	char names[400];
};

static void note_unknown(struct unknown *unknown, const char *name, size_t length)
{
	append(unknown->names, sizeof(unknown->names), unknown->count++ ? ", " : "");
	append(unknown->names, sizeof(unknown->names), show(name, length).text);
}

static void complain_of_unknown(const struct unknown *unknown, struct pdn_problems *problems)
{
	const char *names = unknown->names;

	problems->unknown = unknown->count;
	if (unknown->count == 1)
		problem(problems, "%s: no such variable; the nearest known one is %s\tignored",
			names, nearest_name(names, strlen(names)));
	else if (unknown->count)
		problem(problems, "%s: no such variables\tignored", names);
}

static void parse_assignment(struct pdn_config *config, struct pdn_problems *problems,
			     struct unknown *unknown, const char *assignment, uint64_t *seen)
{
	const char *equals = strchr(assignment, '=');
	const struct pdn_variable *variable;
	size_t length;
	char accepts[400];

	if (!equals)
		return;
	length = (size_t)(equals - assignment);
	if (length != 7 && !(length > 7 && assignment[7] == '_'))
		return;
	variable = find_variable(assignment, length);
	if (!variable) {
		note_unknown(unknown, assignment, length);
		return;
	}
	/* As for getenv(): the first of two assignments counts, and an empty value is none. */
	if (*seen & (1ull << (variable - pdn_variables)))
		return;
	*seen |= 1ull << (variable - pdn_variables);
	if (!equals[1])
		return;
	if (!parse_value(config, variable, equals + 1))
		problem(problems, "%s=%s: must be %s\ttaken as %s", variable->name,
			show(equals + 1, strlen(equals + 1)).text,
			pdn_variable_accepts(variable, accepts, sizeof(accepts)),
			variable->default_value[0] ? variable->default_value : "not set");
}

PDN_STARTS static bool is_ours(const char *assignment)
{
	static PDN_AT_LOAD char prefix[] = "PINDOWN";

	return strncmp(assignment, prefix, 7) == 0;
}

void pdn_config_parse(struct pdn_config *config, struct pdn_problems *problems,
		      char *const *environment)
{
	struct unknown unknown = {.count = 0};
	uint64_t seen = 0;

	_Static_assert(sizeof(pdn_variables) / sizeof(pdn_variables[0]) <= 64, "bits of `seen`");
	problems->count = 0;
	problems->used = 0;
	problems->text[0] = '\0';
	set_defaults(config);
	for (; environment && *environment; environment++) {
		if (is_ours(*environment))
			parse_assignment(config, problems, &unknown, *environment, &seen);
	}
	complain_of_unknown(&unknown, problems);
}

/* ---- this process's own ------------------------------------------------------------------ */

const struct pdn_config *pdn_config_known;
static struct pdn_config own_config;
static struct pdn_problems own_problems;
static pthread_once_t once =
	PTHREAD_ONCE_INIT; /* begins again in a child that was forked half-way */

static PDN_AT_LOAD bool none_at_load;

static void parse_own(void)
{
	bool ignored = none_at_load || getauxval(AT_SECURE);

	pdn_config_parse(&own_config, &own_problems, ignored ? NULL : environ);
}

PDN_STARTS bool pdn_config_at_load(void)
{
	for (char *const *e = environ; e && *e; e++)
		if (is_ours(*e))
			return pdn_config()->enabled;
	none_at_load = true;
	return true;
}

void pdn_config_leave_to(const char *file)
{
	pdn_config();
	own_config.enabled = false;
	problem(&own_problems,
		"%s is another copy of pindown, and is loaded before this one\tthis one is "
		"switched off",
		file);
}

const struct pdn_config *pdn_config_read(void)
{
	int error = errno;

	pdn_once(&once, parse_own);
	__atomic_store_n(&pdn_config_known, &own_config, __ATOMIC_RELEASE);
	errno = error;
	return &own_config;
}

void pdn_config_complain(void)
{
	static bool told;
	const char *line = own_problems.text, *end, *tab;

	pdn_config();
	/* Relaxed: it only decides which thread is first; the text is there since pdn_config(). */
	if (__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		return;
	for (; (end = strchr(line, '\n')); line = end + 1) {
		tab = strchr(line, '\t');
		pdn_log(PDN_LOG_WARN, "%.*s; %.*s", (int)(tab - line), line, (int)(end - tab - 1),
			tab + 1);
	}
}
