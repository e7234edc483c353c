/* SPDX-License-Identifier: MIT */
/* The functions that all programs here share: output, notes of calls, children. */
#include "app.h"
#include "say.h"

#include <fcntl.h>
#include <sys/wait.h>

__thread bool app_quiet;
const char *app_road = "linked";

#define ERRNO_BEFORE 4711 /* an unusual value: shows whether the call touched errno */

void app_before(void)
{
	errno = ERRNO_BEFORE;
}

void app_say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say_list(format, arguments);
	va_end(arguments);
}

const char *app_label(uint64_t addr)
{
	static uint64_t seen[26 * 4];
	static char label[4];
	unsigned i;

	if (addr == 0)
		return "nowhere";
	for (i = 0; i < sizeof(seen) / sizeof(seen[0]) && seen[i] != 0; i++)
		if (seen[i] == addr)
			break;
	if (i == sizeof(seen) / sizeof(seen[0]))
		return "?";
	seen[i] = addr;
	snprintf(label, sizeof(label), "%c%.1s", 'A' + i % 26, i < 26 ? "" : i < 52 ? "2" : "3");
	return label;
}

/* Prints the name of the function that a call by this name reaches on this road. */
static const char *name_on_road(const char *fn, char *buffer, size_t size)
{
	enum { NONE, LEGACY, PTSZ, PTDS };
	static const struct {
		const char *symbol;
		int stream;
	} calls[] = {
#define CALL(symbol, name, version, stream) {#symbol, stream},
#include "calls.def"
#undef CALL
	};
	unsigned i;

	if (strcmp(app_road, "proc_ptds") != 0)
		return fn;
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (strcmp(calls[i].symbol, fn) == 0 &&
		    (calls[i].stream == LEGACY || calls[i].stream == PTDS)) {
			snprintf(buffer, size, "%s_pt%s", fn,
				 calls[i].stream == PTDS ? "ds" : "sz");
			return buffer;
		}
	}
	return fn;
}

/*
 * Appends one line to the file that APP_CALLS names, with a single write: all processes and threads
 * share it.
 */
static void note(const char *fn, CUresult result, uint64_t addr)
{
	const char *path = getenv("APP_CALLS");
	char name[64], line[128];
	int fd, length;

	if (path == NULL || result == APP_NOT_THERE)
		return;
	fn = name_on_road(fn, name, sizeof(name));
	length = snprintf(line, sizeof(line), "%s %d 0x%llx\n", fn, result,
			  result == 0 ? (unsigned long long)addr : 0);
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, line, length) != length)
		_exit(122);
	close(fd);
}

void app_after(const char *fn, CUresult result, int error, uint64_t addr, bool watched)
{
	char changed[32] = "";

	if (watched)
		note(fn, result, addr);
	if (app_quiet)
		return;
	if (watched && error != ERRNO_BEFORE)
		snprintf(changed, sizeof(changed), ", errno %d", error);
	if (result == APP_NOT_THERE)
		app_say("%s: not there", fn);
	else if (watched && result == 0 && addr != 0)
		app_say("%s: 0, at %s%s", fn, app_label(addr), changed);
	else
		app_say("%s: %d%s", fn, result, changed);
}

CUdevice app_begin(void)
{
	CUdevice device = -1;
	CUcontext context = NULL;

	PLAIN(cuInit, 0);
	PLAIN(cuDeviceGet, &device, 0);
	WATCHED(0, cuDevicePrimaryCtxRetain, &context, device);
	PLAIN(cuCtxSetCurrent, context);
	return device;
}

void app_end(CUdevice device)
{
	WATCHED(0, cuDevicePrimaryCtxRelease_v2, device);
}

const char *app_write_and_read(CUdeviceptr at, size_t size, unsigned seed)
{
	static unsigned char out[4096], in[4096];
	size_t part, done;
	unsigned i;

	if (!APP_HAS(cuMemcpyHtoD_v2) || !APP_HAS(cuMemcpyDtoH_v2))
		return "no way to write";
	for (done = 0; done < size; done += part) {
		part = size - done < sizeof(out) ? size - done : sizeof(out);
		for (i = 0; i < part; i++)
			out[i] = (unsigned char)(seed + done / sizeof(out) + i * 7);
		memset(in, 0, sizeof(in));
		if (CU(cuMemcpyHtoD_v2)(at + done, out, part) != 0)
			return "not writable";
		if (CU(cuMemcpyDtoH_v2)(in, at + done, part) != 0)
			return "not readable";
		if (memcmp(out, in, part) != 0)
			return "different from what was written";
	}
	return "as written";
}

void app_wait(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status))
		app_say("child: exit status %d", WEXITSTATUS(status));
	else
		app_say("child: killed by signal %d", WTERMSIG(status));
}
