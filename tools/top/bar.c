// SPDX-License-Identifier: MIT
#include "tools/top/bar.h"

#include <stdio.h>
#include <string.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/ui/json.h"

/* ---- as text ------------------------------------------------------------------------------- */

static void print_title(const char *title, struct drawing *drawing)
{
	print_line(drawing, "%s", "");
	print_line(drawing, "%s%s%s", out_bold(), title, out_plain());
}

static const char *colour_of_share(uint64_t used, uint64_t total)
{
	return used >= total - total / 20  ? out_red()
	       : used >= total - total / 4 ? out_yellow()
					   : out_green();
}

/* A bar whose filled part is the share of BAR1 in use. */
static const char *share_text(uint64_t used, uint64_t total)
{
	enum { LENGTH = 20 };
	static char text[LENGTH * 4 + 40];
	unsigned filled = (unsigned)((used * (__uint128_t)LENGTH + total - 1) / total);
	char *at = put_text(text, colour_of_share(used, total));

	for (unsigned i = 0; i < LENGTH; i++)
		at = put_text(at, i < filled ? out.utf8 ? "█" : "#" : out.utf8 ? "·" : ".");
	*put_text(at, out_plain()) = '\0';
	return text;
}

static void print_gpus(const struct bar *bar, struct drawing *drawing)
{
	if (bar->no_nvml) {
		print_line(drawing, "GPUs can't be queried: %s", bar->no_nvml);
		return;
	}
	print_line(drawing, "%sGPU  %-28s %-12s %9s %9s%s", out_bold(), "NAME", "PCI", "BAR1",
		   "USED", out_plain());
	for (unsigned i = 0; i < bar->nvml.count; i++) {
		const struct nvml_gpu *gpu = &bar->nvml.gpus[i];

		if (gpu->has_bar1 && gpu->bar1_total)
			print_line(drawing, "%3u  %-28.28s %-12s %9s %9s  %s", i, gpu->name,
				   gpu->address, bytes_text(gpu->bar1_total).text,
				   bytes_text(gpu->bar1_used).text,
				   share_text(gpu->bar1_used, gpu->bar1_total));
		else
			print_line(drawing, "%3u  %-28.28s %-12s   none or unknown", i, gpu->name,
				   gpu->address);
	}
}

/* ", rank 3", or "" when it is unknown. */
static struct out_text rank_text(const struct process *process)
{
	struct out_text text = {""};

	if (process->rank >= 0)
		snprintf(text.text, sizeof(text.text), ", rank %d", process->rank);
	return text;
}

static void print_process(const struct process *process, struct drawing *drawing)
{
	for (unsigned device = 0; device < PDN_TOP_DEVICES; device++) {
		if (!process->device_bytes[device])
			continue;
		print_line(drawing, "%7u  %-15.15s %6u %9s  %s%s%s", process->pid, process->command,
			   device, bytes_text(process->device_bytes[device]).text,
			   process->stats.backend, rank_text(process).text,
			   process->traced ? ", traced" : "");
	}
}

static void print_processes(const struct processes *processes, struct drawing *drawing)
{
	bool any = false;

	for (unsigned i = 0; i < processes->count; i++)
		any |= processes->list[i].stats.bytes != 0;
	print_title("pinned through pindown, by process", drawing);
	if (!any) {
		print_line(drawing, "  nothing visible to this user");
		return;
	}
	print_line(drawing, "%7s  %-15s %6s %9s  %s", "PID", "COMMAND", "DEVICE", "PINNED", "BY");
	for (unsigned i = 0; i < processes->count; i++)
		print_process(&processes->list[i], drawing);
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

static void print_module(const struct bar *bar, struct drawing *drawing)
{
	const struct module_pins *pins = &bar->module;

	if (!pins->is_loaded)
		return;
	print_title(pins->is_told ? "pinned by pindown.ko, by process"
				  : "pinned by pindown.ko: visible to root only",
		    drawing);
	if (pins->is_told && !pins->count)
		print_line(drawing, "  nothing");
	for (unsigned i = 0; i < pins->count; i++) {
		const struct module_pin *pin = &pins->list[i];

		print_line(drawing, "%7u  %-36s %9s in %s region%s", pin->pid,
			   gpu_name(&bar->nvml, pin->uuid), bytes_text(pin->bytes).text,
			   count_text(pin->regions).text, pin->regions == 1 ? "" : "s");
	}
}

static void print_sites(const struct sites *sites, struct drawing *drawing)
{
	print_title("pinned at the trace's end, by call site", drawing);
	if (!sites->count)
		print_line(drawing, "  nothing");
	for (unsigned i = 0; i < sites->count; i++)
		print_line(drawing, "%9s in %s region%s  %s", bytes_text(sites->list[i].bytes).text,
			   count_text(sites->list[i].regions).text,
			   sites->list[i].regions == 1 ? "" : "s", sites->list[i].name);
}

void bar_print(const struct bar *bar, const struct processes *processes, struct drawing *drawing)
{
	print_gpus(bar, drawing);
	print_processes(processes, drawing);
	print_module(bar, drawing);
	if (bar->has_traces)
		print_sites(&bar->sites, drawing);
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

void bar_print_json(const struct bar *bar, const struct processes *processes)
{
	json_begin_object(NULL);
	json_text("error", bar->no_nvml);
	print_json_gpus(&bar->nvml);
	json_begin_list("processes");
	for (unsigned i = 0; i < processes->count; i++)
		print_json_process(&processes->list[i]);
	json_end_list();
	if (bar->module.is_told)
		print_json_module(&bar->module);
	if (bar->has_traces)
		print_json_sites(&bar->sites);
	json_end_object();
}

/* ---- looking ------------------------------------------------------------------------------- */

bool bar_open(struct bar *bar, const struct texts *traces)
{
	bar->no_nvml = nvml_open();
	bar->has_traces = traces->count > 0;
	return !bar->has_traces || sites_read(&bar->sites, traces);
}

void bar_close(struct bar *bar)
{
	release(bar->nvml.gpus);
	release(bar->module.list);
	release(bar->sites.list);
}

bool bar_look(struct bar *bar)
{
	module_pins_read(&bar->module);
	return !bar->no_nvml && nvml_read(&bar->nvml);
}
