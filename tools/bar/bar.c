// SPDX-License-Identifier: MIT
/* pindown bar: shows how much of each GPU's BAR1 is in use, and what each process has pinned. */
#define _GNU_SOURCE
#include "tools/bar/bar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ui/json.h"
#include "tools/base/memory.h"
#include "tools/system/nvml.h"
#include "tools/base/out.h"
#include "tools/system/processes.h"
#include "tools/ui/screen.h"
#include "tools/system/tree.h"
#include "tools/command.h"

static const char help[] =
	"usage: pindown bar [options]\n"
	"\n"
	"Shows BAR1 of each GPU, through which other devices reach its memory: its size,\n"
	"how much of it is in use, as nvidia-smi shows it, and how much each process has\n"
	"pinned through pindown.\n"
	"\n"
	"  --trace FILE        also show, by call site, the memory still pinned at the\n"
	"                      end of a trace: a file or a family, as for pindown\n"
	"                      report; can be given repeatedly\n"
	"  --watch             refresh repeatedly; key q quits\n"
	"  --interval SECONDS  time between refreshes, 0.1 to 3600 (default: 2)\n"
	"  --sysfs DIR         look for the kernel module's list below DIR\n"
	"  --json              print one JSON object\n"
	"  --color WHEN        auto, always or never\n"
	"  --help              print this text\n"
	"\n"
	"Exit status: 0; 1 when the GPUs can't be queried or a trace can't be read; 2\n"
	"for bad options.\n";

struct wishes {
	bool watch, json;
	struct texts traces;
};

/* Everything that is shown. */
struct state {
	const char *no_nvml; /* why NVML can't be used; NULL: it can */
	struct nvml nvml;
	struct processes processes;
	struct module_pins module;
	struct sites sites;
};

/* ---- as text ------------------------------------------------------------------------------- */

static void print_title(const char *title, bool on_screen)
{
	screen_end_line(on_screen);
	out_print("%s%s%s", out_bold(), title, out_plain());
	screen_end_line(on_screen);
}

static const char *colour_of_share(uint64_t used, uint64_t total)
{
	return used >= total - total / 20  ? out_red()
	       : used >= total - total / 4 ? out_yellow()
					   : out_green();
}

/* Draws a bar whose filled part is the share of BAR1 in use. */
static void print_share(uint64_t used, uint64_t total)
{
	enum { LENGTH = 20 };
	unsigned filled = total ? (unsigned)((used * (__uint128_t)LENGTH + total - 1) / total) : 0;

	out_print("%s", colour_of_share(used, total));
	for (unsigned i = 0; i < LENGTH; i++)
		out_print("%s", i < filled ? out.utf8 ? "█" : "#" : out.utf8 ? "·" : ".");
	out_print("%s", out_plain());
}

static void print_gpu(unsigned number, const struct nvml_gpu *gpu, bool on_screen)
{
	out_print("%3u  %-28.28s %-12s ", number, gpu->name, gpu->address);
	if (!gpu->has_bar1 || !gpu->bar1_total) {
		out_print("  none or unknown");
	} else {
		out_print("%9s %9s  ", bytes_text(gpu->bar1_total).text,
			  bytes_text(gpu->bar1_used).text);
		print_share(gpu->bar1_used, gpu->bar1_total);
	}
	screen_end_line(on_screen);
}

static void print_gpus(const struct state *state, bool on_screen)
{
	if (state->no_nvml) {
		char *why = text_of("GPUs can't be queried: %s", state->no_nvml);

		out_wrapped(0, 2, why);
		release(why);
		return;
	}
	out_print("%sGPU  %-28s %-12s %9s %9s%s", out_bold(), "NAME", "PCI", "BAR1", "USED",
		  out_plain());
	screen_end_line(on_screen);
	for (unsigned i = 0; i < state->nvml.count; i++)
		print_gpu(i, &state->nvml.gpus[i], on_screen);
}

/* ", rank 3", or "" when it is unknown. */
static struct out_text rank_text(const struct process *process)
{
	struct out_text text = {""};

	if (process->rank >= 0)
		snprintf(text.text, sizeof(text.text), ", rank %d", process->rank);
	return text;
}

static void print_process(const struct process *process, bool on_screen)
{
	for (unsigned device = 0; device < PDN_TOP_DEVICES; device++) {
		if (!process->device_bytes[device])
			continue;
		out_print("%7u  %-15.15s %6u %9s  %s%s%s", process->pid, process->command, device,
			  bytes_text(process->device_bytes[device]).text, process->stats.backend,
			  rank_text(process).text, process->traced ? ", traced" : "");
		screen_end_line(on_screen);
	}
}

static void print_processes(const struct processes *processes, bool on_screen)
{
	bool any = false;

	for (unsigned i = 0; i < processes->count; i++)
		any |= processes->list[i].stats.bytes != 0;
	print_title("pinned through pindown, by process", on_screen);
	if (!any) {
		out_print("  nothing visible to this user");
		screen_end_line(on_screen);
		return;
	}
	out_print("%7s  %-15s %6s %9s  %s", "PID", "COMMAND", "DEVICE", "PINNED", "BY");
	screen_end_line(on_screen);
	for (unsigned i = 0; i < processes->count; i++)
		print_process(&processes->list[i], on_screen);
}

/* "GPU 1" for a known UUID, else the UUID. */
static const char *gpu_name(const struct nvml *nvml, const char *uuid)
{
	static char name[48];

	snprintf(name, sizeof(name), "%s", uuid);
	for (unsigned i = 0; i < nvml->count; i++)
		if (strncmp(nvml->gpus[i].uuid, "GPU-", 4) == 0 &&
		    strcmp(nvml->gpus[i].uuid + 4, uuid) == 0)
			snprintf(name, sizeof(name), "GPU %u", i);
	return name;
}

static void print_module(const struct state *state, bool on_screen)
{
	const struct module_pins *pins = &state->module;

	if (!pins->is_loaded)
		return;
	print_title(pins->is_told ? "pinned by pindown.ko, by process"
				  : "pinned by pindown.ko: visible to root only",
		    on_screen);
	if (pins->is_told && !pins->count) {
		out_print("  nothing");
		screen_end_line(on_screen);
	}
	for (unsigned i = 0; i < pins->count; i++) {
		const struct module_pin *pin = &pins->list[i];

		out_print("%7u  %-36s %9s in %s region%s", pin->pid,
			  gpu_name(&state->nvml, pin->uuid), bytes_text(pin->bytes).text,
			  count_text(pin->regions).text, pin->regions == 1 ? "" : "s");
		screen_end_line(on_screen);
	}
}

static void print_sites(const struct sites *sites, bool on_screen)
{
	print_title("pinned at the trace's end, by call site", on_screen);
	if (!sites->count) {
		out_print("  nothing");
		screen_end_line(on_screen);
	}
	for (unsigned i = 0; i < sites->count; i++) {
		out_print("%9s in %s region%s  %s", bytes_text(sites->list[i].bytes).text,
			  count_text(sites->list[i].regions).text,
			  sites->list[i].regions == 1 ? "" : "s", sites->list[i].name);
		screen_end_line(on_screen);
	}
}

static void print_text(const struct state *state, const struct wishes *wishes, bool on_screen)
{
	print_gpus(state, on_screen);
	print_processes(&state->processes, on_screen);
	print_module(state, on_screen);
	if (wishes->traces.count)
		print_sites(&state->sites, on_screen);
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static void print_json_gpus(const struct nvml *nvml)
{
	json_begin_list("gpus");
	for (unsigned i = 0; i < nvml->count; i++) {
		const struct nvml_gpu *gpu = &nvml->gpus[i];

		json_begin_object(NULL);
		json_number("index", i);
		json_text("name", gpu->name);
		json_text("uuid", gpu->uuid);
		json_text("address", gpu->address);
		if (gpu->has_bar1) {
			json_number("bar1_bytes", gpu->bar1_total);
			json_number("bar1_used_bytes", gpu->bar1_used);
		}
		json_number("memory_bytes", gpu->memory_total);
		json_end_object();
	}
	json_end_list();
}

static void print_json_process(const struct process *process)
{
	for (unsigned device = 0; device < PDN_TOP_DEVICES; device++) {
		if (!process->device_bytes[device])
			continue;
		json_begin_object(NULL);
		json_number("pid", process->pid);
		json_rank(process->rank);
		json_text("command", process->command);
		json_number("cuda_device", device);
		json_number("bytes", process->device_bytes[device]);
		json_text("backend", process->stats.backend);
		json_end_object();
	}
}

static void print_json_module(const struct module_pins *pins)
{
	json_begin_list("module");
	for (unsigned i = 0; i < pins->count; i++) {
		json_begin_object(NULL);
		json_number("pid", pins->list[i].pid);
		json_text("uuid", pins->list[i].uuid);
		json_number("bytes", pins->list[i].bytes);
		json_number("regions", pins->list[i].regions);
		json_end_object();
	}
	json_end_list();
}

static void print_json_sites(const struct sites *sites)
{
	json_begin_list("call_sites");
	for (unsigned i = 0; i < sites->count; i++) {
		json_begin_object(NULL);
		json_text("site", sites->list[i].name);
		json_number("bytes", sites->list[i].bytes);
		json_number("regions", sites->list[i].regions);
		json_end_object();
	}
	json_end_list();
}

static void print_json(const struct state *state, const struct wishes *wishes)
{
	json_begin_object(NULL);
	json_text("error", state->no_nvml);
	print_json_gpus(&state->nvml);
	json_begin_list("processes");
	for (unsigned i = 0; i < state->processes.count; i++)
		print_json_process(&state->processes.list[i]);
	json_end_list();
	if (state->module.is_told)
		print_json_module(&state->module);
	if (wishes->traces.count)
		print_json_sites(&state->sites);
	json_end_object();
}

/*
 * ---- the command ------------------------------------------------------------------------------
 */

static bool look(struct state *state)
{
	if (tree_is_live())
		processes_read(&state->processes);
	module_pins_read(&state->module);
	return state->no_nvml || nvml_read(&state->nvml);
}

static int watch(struct state *state, const struct wishes *wishes)
{
	bool answers;

	do {
		answers = look(state);
		screen_draw_begin();
		print_text(state, wishes, true);
		screen_draw_end();
	} while (answers && screen_key() != 'q');
	screen_end();
	return answers && !state->no_nvml ? STATUS_OK : STATUS_FOUND;
}

static int once(struct state *state, const struct wishes *wishes)
{
	bool answers = look(state);

	if (wishes->json)
		print_json(state, wishes);
	else
		print_text(state, wishes, false);
	out_flush();
	return answers && !state->no_nvml ? STATUS_OK : STATUS_FOUND;
}

static int show(const struct wishes *wishes)
{
	struct state state = {.no_nvml = nvml_open()};
	int status;

	if (wishes->traces.count && !sites_read(&state.sites, &wishes->traces))
		return STATUS_FOUND;
	if (wishes->watch && !wishes->json && screen_begin())
		status = watch(&state, wishes);
	else
		status = once(&state, wishes);
	processes_free(&state.processes);
	release(state.nvml.gpus);
	release(state.module.list);
	release(state.sites.list);
	return status;
}

static struct wishes wishes;

static bool take_root(const char *folder)
{
	if (tree_set_root(folder) && tree_has("sys"))
		return true;
	complain("--sysfs %s: must be a folder that contains sys", folder);
	return false;
}

static bool take_trace(const char *name)
{
	texts_add(&wishes.traces, name, strlen(name));
	return true;
}

static const struct setting settings[] = {
	{"trace", .take = take_trace},
	{"watch", .flag = &wishes.watch},
	{"interval", .take = screen_take_interval},
	{"sysfs", .take = take_root},
	{"json", .flag = &wishes.json},
	{.name = NULL},
};

static int run(int argc, char **argv)
{
	int status;

	(void)argc;
	(void)argv;
	status = show(&wishes);
	texts_free(&wishes.traces);
	return status;
}

const struct command command_bar = {"bar",	    "show how much of BAR1 is in use, by process",
				    help,	    settings,
				    ARGUMENTS_NONE, .run = run};
