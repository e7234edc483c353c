// SPDX-License-Identifier: MIT
/* pindown doctor: says whether this machine is fit for GPUDirect RDMA, and what to do if not. */
#define _GNU_SOURCE
#include "tools/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ui/json.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/command.h"

static const char help[] =
	"usage: pindown doctor [options]\n"
	"\n"
	"Checks whether this machine is fit for GPUDirect RDMA: the driver and its\n"
	"modules, BAR1, the IOMMU, access control in PCIe switches, the path from each\n"
	"GPU to each network card and NVMe controller, limits, and whether a preload\n"
	"works. The first line is the verdict; each further one is ok, a note or a\n"
	"problem, and a problem says what to do. The command changes nothing, and needs\n"
	"neither a GPU nor special rights.\n"
	"\n"
	"  --try         also try: allocate memory on each GPU, register it with each\n"
	"                RDMA device in each way there is, send bytes from it to itself,\n"
	"                and compare; the verdict is then what works\n"
	"  --patience N  seconds until a step of --try counts as hanging, 1 to 3600\n"
	"                (default: 60)\n"
	"  --sysfs DIR   check the sys, proc and dev in DIR instead, copied from another\n"
	"                machine\n"
	"  --json        print one JSON object\n"
	"  --color WHEN  auto, always or never\n"
	"  --help        print this text\n"
	"\n"
	"Exit status: 0 when the machine is fit; 1 when it is fit with limits; 3 when it\n"
	"is not fit; 2 for bad options.\n";

static const char *const grade_names[] = {"ok", "note", "problem"};

void found(struct doctor *doctor, enum grade grade, const char *topic, const char *advice,
	   const char *format, ...)
{
	struct finding *finding;
	va_list arguments;

	doctor->list = grow(doctor->list, &doctor->capacity, doctor->count, sizeof(*doctor->list));
	finding = &doctor->list[doctor->count++];
	*finding = (struct finding){.grade = grade, .topic = topic};
	finding->advice = advice ? text_of("%s", advice) : NULL;
	va_start(arguments, format);
	finding->text = text_of_list(format, arguments);
	va_end(arguments);
	doctor->grades[grade]++;
}

/* ---- as text ----------------------------------------------------------------------------- */

static const char *colour_of(enum grade grade)
{
	return grade == GOOD ? out_green() : grade == NOTE ? out_yellow() : out_red();
}

enum { TOPIC = 2 + 9, TEXT = TOPIC + 16 };

/* Prints an arrow and the advice, wrapped at the terminal's width. */
static void print_advice(const char *text)
{
	const char *arrow = out.utf8 ? "→" : "->";
	unsigned column = TEXT + (out.utf8 ? 2 : 3);

	out_print("%*s%s ", TEXT, "", arrow);
	out_wrapped(column, column, text);
}

static void print_finding(const struct finding *finding)
{
	out_print("  %s%-7s%s  %-14s  ", colour_of(finding->grade), grade_names[finding->grade],
		  out_plain(), finding->topic);
	out_wrapped(TEXT, TEXT, finding->text);
	if (finding->advice && finding->grade != GOOD)
		print_advice(finding->advice);
}

static const char *const verdict_texts[] = {
	[FIT] = "fit for GPUDirect RDMA",
	[LIMITED] = "fit with limits for GPUDirect RDMA",
	[UNFIT] = "not fit for GPUDirect RDMA",
};

/* The verdict and the reasons, for release(). */
static char *verdict_of(const struct doctor *doctor)
{
	struct texts why = {0};
	char *reasons = NULL, *all;
	enum verdict verdict = judge(doctor, &why);

	for (unsigned i = 0; i < why.count; i++)
		reasons = text_listed(reasons, why.list[i]);
	all = text_of("%s%s%s", verdict_texts[verdict], reasons ? ": " : "",
		      reasons ? reasons : "");
	release(reasons);
	texts_free(&why);
	return all;
}

static void print_verdict(const struct doctor *doctor)
{
	char *verdict = verdict_of(doctor);
	struct texts why = {0};

	out_print("%s%s", out_bold(), colour_of((enum grade)judge(doctor, &why)));
	out_wrapped(0, 2, verdict);
	out_print("%s", out_plain());
	texts_free(&why);
	release(verdict);
}

/*
 * The verdict once more where the machine is not fit: what prevents it, for example that there is
 * no GPU, need not be a problem of the software, and "0 problems" alone would deny it.
 */
static void print_counts(const struct doctor *doctor)
{
	unsigned problems = doctor->grades[PROBLEM], notes = doctor->grades[NOTE];
	struct texts why = {0};
	bool unfit = judge(doctor, &why) == UNFIT;

	texts_free(&why);
	out_print("\n%s", colour_of(problems || unfit ? PROBLEM : GOOD));
	if (unfit)
		out_print("not fit, as the first line says; ");
	if (unfit && !problems)
		out_print("no other problem");
	else
		out_print("%u problem%s", problems, problems == 1 ? "" : "s");
	out_print("%s, %u note%s\n", out_plain(), notes, notes == 1 ? "" : "s");
}

static void print_text(const struct doctor *doctor)
{
	print_verdict(doctor);
	out_print("\n");
	for (unsigned i = 0; i < doctor->count; i++)
		print_finding(&doctor->list[i]);
	print_paths(doctor);
	if (doctor->trials)
		trials_print(doctor->trials);
	print_counts(doctor);
}

/* ---- as JSON ----------------------------------------------------------------------------- */

static void print_json(const struct doctor *doctor)
{
	static const char *const names[] = {"fit", "limits", "unfit"};
	struct texts why = {0};

	json_begin_object(NULL);
	json_text("verdict", names[judge(doctor, &why)]);
	json_begin_list("why");
	for (unsigned i = 0; i < why.count; i++)
		json_text(NULL, why.list[i]);
	json_end_list();
	texts_free(&why);
	json_number("problems", doctor->grades[PROBLEM]);
	json_number("notes", doctor->grades[NOTE]);
	json_begin_list("findings");
	for (unsigned i = 0; i < doctor->count; i++) {
		json_begin_object(NULL);
		json_text("grade", grade_names[doctor->list[i].grade]);
		json_text("topic", doctor->list[i].topic);
		json_text("text", doctor->list[i].text);
		json_text("advice", doctor->list[i].advice);
		json_end_object();
	}
	json_end_list();
	print_paths_json(doctor);
	if (doctor->trials)
		trials_print_json(doctor->trials);
	json_end_object();
}

/* ---- the command ---------------------------------------------------------------------------- */

static bool wants_json, wants_trials;
static unsigned patience = 60;

static void examine(struct doctor *doctor)
{
	doctor->pci = pci_scan();
	if (tree_is_live() && !nvml_open())
		nvml_read(&doctor->nvml);
	examine_driver(doctor);
	examine_modules(doctor);
	examine_pci(doctor);
	examine_mapping(doctor);
	examine_process(doctor);
}

static void forget(struct doctor *doctor)
{
	for (unsigned i = 0; i < doctor->count; i++) {
		release(doctor->list[i].text);
		release(doctor->list[i].advice);
	}
	release(doctor->list);
	texts_free(&doctor->cuda.coherent);
	release(doctor->nvml.gpus);
	pci_free(&doctor->pci);
}

static bool take_patience(const char *text)
{
	char *end;
	unsigned long seconds = strtoul(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && seconds >= 1 && seconds <= 3600) {
		patience = (unsigned)seconds;
		return true;
	}
	complain("--patience %s: must be a number of seconds from 1 to 3600", text);
	return false;
}

static bool take_root(const char *folder)
{
	if (tree_set_root(folder) && (tree_has("sys") || tree_has("proc")))
		return true;
	complain("--sysfs %s: must be a folder that contains sys or proc", folder);
	return false;
}

static const struct setting settings[] = {
	{"sysfs", .take = take_root},
	{"json", .flag = &wants_json},
	{"try", .flag = &wants_trials},
	{"patience", .take = take_patience},
	{.name = NULL},
};

static int run(int argc, char **argv)
{
	static const int statuses[] = {STATUS_OK, STATUS_FOUND, STATUS_UNFIT};
	struct trials trials = {.patience = patience};
	struct doctor doctor = {.count = 0};
	struct texts why = {0};
	int status;

	(void)argc;
	(void)argv;
	if (wants_trials && !tree_is_live()) {
		complain("--try needs this machine: it can't be given with --sysfs");
		return STATUS_USAGE;
	}
	/* Before examine(), which uses CUDA in this process. */
	if (wants_trials) {
		trials_make(&trials);
		doctor.trials = &trials;
	}
	examine(&doctor);
	if (wants_json)
		print_json(&doctor);
	else
		print_text(&doctor);
	out_flush();
	status = statuses[judge(&doctor, &why)];
	texts_free(&why);
	forget(&doctor);
	trials_free(&trials);
	return status;
}

const struct command command_doctor = {
	"doctor",	"say whether this machine is fit for GPUDirect RDMA",
	help,		settings,
	ARGUMENTS_NONE, .run = run};
