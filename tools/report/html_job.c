// SPDX-License-Identifier: MIT
/* pindown report --html DIR: a page with the processes of a job. */
#include <string.h>

#include "tools/report/html.h"
#include "tools/report/html_tables.h"
#include "tools/report/job.h"
#include "tools/trace/rank.h"

enum { MAX_PROCESSES = 5000 };

static void put_head(FILE *page, const struct job *job)
{
	html_begin(page);
	html_text(page, job->folder);
	fputs(" – pindown report</title>\n</head>\n<body class=\"broad\">\n<h1>", page);
	html_text(page, job->folder);
	fprintf(page, "</h1>\n<p class=\"dim\">%s processes", count_text(job->count).text);
	fprintf(page, " on %s hosts", count_text(job->host_count).text);
	if (job->highest != NO_RANK)
		fprintf(page, ", %s ranks", count_text(job->ranks).text);
	if (job->missing_count) {
		fputs("; no trace of rank", page);
		for (unsigned i = 0; i < job->missing_count && i < SHORT_LIST; i++)
			fprintf(page, "%s %lld", i ? "," : "", (long long)job->missing[i]);
		fputs(job->missing_count > SHORT_LIST ? " and others" : "", page);
	}
	if (job->unreadable)
		fprintf(page, "; %s traces could not be read, or only in part",
			count_text(job->unreadable).text);
	fputs("</p>\n", page);
}

static void put_outlier(FILE *page, const struct job *job, enum job_figure figure)
{
	static const char *const kinds[] = {[FACT] = "", [NOTE] = "note", [WRONG] = "bad"};
	const struct job_spread *spread = &job->spreads[figure];
	const struct job_process *most = spread->most;
	struct job_words words = job_words(figure);
	char more[300], who[120];

	if (!most) {
		snprintf(more, sizeof(more), "unknown in %u of %u", spread->unknown, job->count);
		html_answer(page, spread->unknown ? "note" : "good", words.what,
			    spread->unknown ? "–" : "none", spread->unknown ? more : "");
		return;
	}
	if (most->figures[figure] == spread->median)
		snprintf(who, sizeof(who), "the same in many");
	else if (most->rank == NO_RANK)
		snprintf(who, sizeof(who), "process %u on %.64s", most->pid, most->host);
	else
		snprintf(who, sizeof(who), "rank %u on %.64s", (unsigned)most->rank, most->host);
	snprintf(more, sizeof(more), "%s; median %s; not 0 in %s of %s", who,
		 job_text(figure, spread->median).text, count_text(spread->processes).text,
		 count_text(job->count).text);
	html_answer(page, kinds[words.gravity], words.what,
		    job_text(figure, most->figures[figure]).text, more);
}

static void put_process(FILE *page, const struct job *job, const struct job_process *process)
{
	fprintf(page, "<tr%s>", process->problems ? " class=\"bad\"" : "");
	html_process(page, process->rank, process->pid);
	html_words(page, process->host);
	for (unsigned i = 0; i < JOB_FIGURES; i++)
		if (job->spreads[i].most)
			html_number(page, process->figures[i],
				    job_text(i, process->figures[i]).text);
	html_ns(page, process->span);
	html_words(page, strrchr(process->trace, '/') + 1);
	fputs("</tr>\n", page);
}

/* Of the figures, those that are not 0 everywhere. */
static void put_processes(FILE *page, const struct job *job)
{
	static char titles[JOB_FIGURES][40];
	const char *columns[JOB_FIGURES + 6] = {"#rank", "#process", "host"};
	unsigned shown = job->count < MAX_PROCESSES ? job->count : MAX_PROCESSES, count = 3;

	for (unsigned i = 0; i < JOB_FIGURES; i++) {
		const char *what = i == JOB_PEAK ? "Peak" : job_words(i).what;

		if (!job->spreads[i].most)
			continue;
		snprintf(titles[i], sizeof(titles[i]), "#%s", small_name(what));
		columns[count++] = titles[i];
	}
	columns[count++] = "#traced for";
	columns[count] = "trace";
	html_begin_table(page, "Processes, the worst first", columns);
	for (unsigned i = 0; i < shown; i++)
		put_process(page, job, &job->processes[i]);
	html_end_table(page, shown, job->count);
}

bool job_html(const char *name, const struct job *job)
{
	FILE *page = html_open(name);

	if (!page)
		return false;
	put_head(page, job);
	fputs("<h2>The most in one process</h2>\n", page);
	html_begin_answers(page);
	for (unsigned i = 0; i < JOB_FIGURES; i++)
		if (job_is_shown(job, i))
			put_outlier(page, job, i);
	html_end_answers(page);
	put_processes(page, job);
	html_end(page);
	return html_close(page, name);
}
