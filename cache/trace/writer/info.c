// SPDX-License-Identifier: MIT
/* Writing the information about the process into unit 0 of its trace. */
#define _GNU_SOURCE
#include "cache/trace/writer/info.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/utsname.h>

#include "cache/base/environment/environment.h"
#include "cache/base/environment/rank.h"
#include "cache/base/process/system.h"
#include "cache/pindown.h"

#define TEXT_OF(number) #number
#define TEXT(number)	TEXT_OF(number)
#define VERSION		TEXT(PINDOWN_VERSION_MAJOR) "." TEXT(PINDOWN_VERSION_MINOR)

/* Bytes at most. The call names need most of the unit; these have to fit beside them. */
enum { MAX_COMMAND = 16384, MAX_ENVIRONMENT = 8192 };

/* A record under construction, after the existing ones. */
struct info {
	struct pdn_trace_info *record;
	size_t used, capacity; /* bytes behind its head */
	bool cut;
};

static struct info begin_info(struct pdn_trace_header *header, size_t max)
{
	char *at = (char *)header + header->header_bytes, *end = (char *)header + PDN_TRACE_UNIT;
	struct pdn_trace_info *record = (struct pdn_trace_info *)(void *)at;
	size_t left;

	while (record->kind)
		record += 1 + (record->length + 7) / sizeof(*record);
	left = (size_t)(end - (char *)record);
	/* Leave a record's head free behind it: a zero kind ends the list. */
	left = left > 3 * sizeof(*record) ? left - 3 * sizeof(*record) : 0;
	return (struct info){record, 0, left < max ? left : max, false};
}

static void add_bytes(struct info *info, const char *bytes, size_t length)
{
	if (info->cut || length > info->capacity - info->used) {
		info->cut = true;
		return;
	}
	memcpy((char *)(info->record + 1) + info->used, bytes, length);
	info->used += length;
}

static void end_info(struct info *info, enum pdn_trace_info_kind kind)
{
	if (!info->capacity)
		return;
	info->record->length = (uint32_t)info->used;
	info->record->flags = info->cut ? PDN_INFO_CUT : 0;
	/* Release: a reader of the file that sees the kind sees the rest. */
	__atomic_store_n(&info->record->kind, (uint16_t)kind, __ATOMIC_RELEASE);
}

void pdn_trace_info_text(struct pdn_trace_header *header, enum pdn_trace_info_kind kind,
			 const char *text)
{
	struct info info = begin_info(header, PATH_MAX);

	add_bytes(&info, text, strlen(text));
	end_info(&info, kind);
}

/* Only the start of a very long command line is written. */
static void write_command(struct pdn_trace_header *header)
{
	struct info info = begin_info(header, MAX_COMMAND);
	int fd = pdn_sys_open("/proc/self/cmdline", O_RDONLY);
	long got = pdn_sys(SYS_read, fd, info.record + 1, info.capacity);

	info.used = got > 0 ? (size_t)got : 0;
	info.cut = got == (long)info.capacity;
	pdn_sys(SYS_close, fd);
	end_info(&info, PDN_INFO_COMMAND);
}

int32_t pdn_trace_rank(void)
{
	int32_t rank = PDN_NO_RANK;

	for (const char *name = PDN_RANK_VARIABLES; *name && rank < 0; name += strlen(name) + 1) {
		const char *value = pdn_variable_of(name, strlen(name) - 1);

		rank = value ? pdn_parse_rank(value) : PDN_NO_RANK;
	}
	return rank;
}

/* Its own variables, and those in which a launcher tells a process its rank. */
static bool is_written(const char *variable)
{
	static const char begins[] = "PINDOWN\0" PDN_RANK_VARIABLES;

	for (const char *begin = begins; *begin; begin += strlen(begin) + 1)
		if (strncmp(variable, begin, strlen(begin)) == 0)
			return true;
	return false;
}

static void write_environment(struct pdn_trace_header *header)
{
	struct info info = begin_info(header, MAX_ENVIRONMENT);

	for (const char *at = NULL; (at = pdn_next_assignment(at));)
		if (is_written(at))
			add_bytes(&info, at, strlen(at) + 1);
	end_info(&info, PDN_INFO_ENVIRONMENT);
}

void pdn_trace_info_calls(struct pdn_trace_header *header, const char *calls)
{
	struct info info = begin_info(header, PDN_TRACE_UNIT);

	for (const char *call = calls; *call; call += strlen(call) + 1)
		add_bytes(&info, call, strlen(call) + 1);
	end_info(&info, PDN_INFO_CALLS);
}

void pdn_trace_info_write(struct pdn_trace_header *header, const char *calls)
{
	char path[PATH_MAX];
	struct utsname system;
	long length = pdn_sys_readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[length > 0 ? length : 0] = '\0';
	pdn_trace_info_text(header, PDN_INFO_VERSION, VERSION);
	pdn_trace_info_text(header, PDN_INFO_HOST, uname(&system) == 0 ? system.nodename : "");
	pdn_trace_info_text(header, PDN_INFO_PROGRAM, path);
	pdn_trace_info_text(header, PDN_INFO_DIRECTORY,
			    pdn_sys_working_directory(path, sizeof(path)) ? path : "");
	write_environment(header);
	if (calls)
		pdn_trace_info_calls(header, calls);
	write_command(header);
}
