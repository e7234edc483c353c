// SPDX-License-Identifier: MIT
/* Shows the document of `pindown report --json`, of a report or of a job, as a page. */

function showTitle(title, text) {
	document.title = `${title} – pindown report`;
	show(element('h1', null, title), element('p.dim', null, text));
}

/* ---- one report ------------------------------------------------------------------------------ */

function dateText(ns) {
	const date = new Date(ns / 1e6);

	date.setMinutes(date.getMinutes() - date.getTimezoneOffset());
	return date.toISOString().slice(0, 19).replace('T', ' ');
}

function showHead(processes) {
	const [first, ...others] = processes;
	let text = `${processText(first)} on ${first.host}, ${dateText(first.began_ns)}, ` +
		`traced for ${durationText(first.traced_ns)}`;

	if (first.cut)
		text += '; the trace is cut short';
	else if (!first.ended)
		text += '; no end mark: it was killed, called _exit, or is still running';
	if (first.distrust)
		text += '; every hit is checked by buffer id: ' + first.distrust;
	if (others.length)
		text += `; and ${others.length} more process${others.length > 1 ? 'es' : ''}`;
	showTitle(commandText(first), text);
}

function boxOfAnswer(answer) {
	if (answer.count)
		return answerBox(gravities[answer.gravity], answer.name, countText(answer.count),
			answer.more);
	return answerBox(answer.none ? 'note' : 'good', answer.name, answer.none ? '–' : 'none',
		answer.none);
}

function boxesOfCosts({allocated, cache, devices}) {
	const gets = cache.hits + cache.misses, ratio = (100 * cache.hits / gets).toFixed(2);
	const pins = devices.reduce((sum, device) => sum + device.pins + device.failed, 0);
	const boxes = [
		answerBox('', 'Hit ratio', gets ? `${ratio} %` : '–',
			`of ${countText(gets)} gets`),
		answerBox('', 'Time in pins', durationText(cache.pin_ns),
			`in ${countText(pins)} pins`),
		answerBox('', 'Pinned at the peak', bytesText(cache.peak_bytes),
			`at ${durationText(cache.peak_at_ns)}; ` +
			`maximum ${countText(cache.peak_regions)} regions`),
		cache.evictions ? answerBox('note', 'Evictions', countText(cache.evictions),
			'to make space for others') : answerBox('good', 'Evictions', 'none')
	];

	if (allocated.count)
		boxes.unshift(answerBox('', 'Allocated at the peak',
			bytesText(allocated.peak_bytes),
			`at ${durationText(allocated.peak_at_ns)}; ${bytesText(allocated.bytes)} in ` +
			`${countText(allocated.count)} allocations`));
	return boxes;
}

function showProcesses(processes) {
	const most = 200;
	const problem = (title, name) => count(title, one => one.problems[name]);

	if (processes.length < 2)
		return;
	showTable('Processes', [...process, size('peak', one => one.peak_bytes),
		problem('stale', 'stale_registrations'), problem('exports', 'stale_exports'),
		problem('missed', 'missed_invalidations'), problem('left', 'still_pinned'),
		time('traced', one => one.traced_ns), words('host', one => one.host),
		words('command', commandText)], processes, {isBad: one => one.bad, most});
	if (processes.length > most)
		show(element('p.dim', null,
			'pindown report with the folder of the traces compares all processes.'));
}

function showRegions(title, regions, all, open) {
	showTable(title, [address, size('size', one => one.size),
		act('pinned', 'pinned_at_ns', 'pinned_by', '–', open),
		act('freed', 'freed_at_ns', 'freed_by', '–', open),
		act('unpinned', 'unpinned_at_ns', 'unpinned_by', 'never', open),
		count('device', one => one.device), ...process], regions, {all});
}

function showHolders(report) {
	showTable('Freed while the program had a registration of it', [address,
		size('size', one => one.size), time('freed at', one => one.freed_at_ns),
		words('registration', one => one.fate),
		code('registered by', 'registered_by', 'registered_in'),
		code('freed by', 'freed_by', 'freed_in'), ...process],
	report.registrations, {all: report.registration_count});
	showTable('Freed while the program had a dma-buf of it open', [address,
		size('size', one => one.size), time('exported at', one => one.exported_at_ns),
		time('freed at', one => one.freed_at_ns), words('then', one => one.state),
		code('exported by', 'exported_by', 'exported_in'), ...process],
	report.exports, {all: report.problems.stale_exports});
	showTable('Registrations', [words('consumer', one => one.consumer || '–'),
		count('made', one => one.made), count('failed', one => one.failed),
		count('destroyed', one => one.destroyed), count('by free', one => one.by_free),
		count('held', one => one.held), count('regions', one => one.held_regions),
		size('bytes', one => one.held_bytes)], report.consumers);
}

function showAllocations(report) {
	showFlame('Allocations at the peak, by caller', '', report.peak_stacks);
	showFlame('Allocations that no call freed, by caller', '.u', report.unfreed_stacks);
	showTable('Allocated bytes by call site', [
		words('allocated by', one => one.caller || '–'), words('call', one => one.call),
		size('at the peak', one => one.peak_bytes),
		size('unfreed', one => one.unfreed_bytes), size('total', one => one.bytes),
		count('count', one => one.count)
	], report.allocation_sites);
}

function showCalls(report) {
	const call = words('call', one => one.call);
	const costs = [time('total', one => one.ns), count('count', one => one.count),
		time('mean', one => Math.floor(one.ns / one.count)),
		count('failed', one => one.failed)];

	showTable('Call sites', [words('called by', one => one.caller), call, ...costs],
		report.sites);
	showTable('Calls', [call, ...costs, time('max', one => one.max_ns)], report.calls);
	showTable('Devices', [count('device', one => one.device), count('pins', one => one.pins),
		count('failed', one => one.failed), count('unpins', one => one.unpins),
		count('evictions', one => one.evictions), size('peak', one => one.peak_bytes),
		size('at the end', one => one.end_bytes)], report.devices);
}

function showReport(report) {
	const {problems} = report;

	({history: overTime, span_ns: span} = report);
	showHead(report.processes);
	showAnswers([...report.answers.map(boxOfAnswer), ...boxesOfCosts(report)]);
	if (report.definitions)
		show(element('p.dim.definitions', null, report.definitions));
	showProcesses(report.processes);
	showRegions('Stale registrations: memory freed while in use', report.stale,
		problems.stale_registrations, true);
	showRegions('Freed in stream order while in use', report.ordered,
		problems.freed_in_stream_order, true);
	showRegions('Missed invalidations', report.missed, problems.missed_invalidations, true);
	showHolders(report);
	showPictures(report);
	showAllocations(report);
	/* These are no fault, and often many. */
	showRegions('Still pinned at the end', report.left, problems.still_pinned, false);
	showCalls(report);
}

/* ---- a job ----------------------------------------------------------------------------------- */

const units = {bytes: bytesText, ns: durationText};

function showHeadOfJob({folder, traces, hosts, ranks, missing_ranks: missing, unreadable}) {
	let text = `${countText(traces)} processes on ${countText(hosts)} hosts`;

	if (ranks)
		text += `, ${countText(ranks)} ranks`;
	if (missing.length)
		text += `; no trace of rank ${missing.slice(0, 10).join(', ')}` +
			(missing.length > 10 ? ' and others' : '');
	if (unreadable)
		text += `; ${countText(unreadable)} traces could not be read, or only in part`;
	showTitle(folder, text);
}

function boxOfOutlier(outlier, traces) {
	const {by, name, most, median, unknown} = outlier, text = units[outlier.unit] || countText;

	if (!by)
		return answerBox(unknown ? 'note' : 'good', name, unknown ? '–' : 'none',
			unknown ? `unknown in ${unknown} of ${traces}` : '');
	const who = by.rank === null ? `process ${by.pid}` : `rank ${by.rank}`;

	return answerBox(gravities[outlier.gravity], name, text(most),
		(most === median ? 'the same in many' : `${who} on ${by.host}`) +
		`; median ${text(median)}; ` +
		`not 0 in ${countText(outlier.processes)} of ${countText(traces)}`);
}

/* The name of a figure as the title of a column. */
function columnOf({figure, name, unit}) {
	const title = figure === 'peak_bytes' ? 'peak' : name[0].toLowerCase() + name.slice(1);

	return number(title, one => one[figure], units[unit] || countText);
}

/* Of the figures, those that are not 0 everywhere. */
function showJob({job, outliers, processes}) {
	const seen = outliers.filter(one => one.by);
	const faults = seen.filter(one => one.gravity === 'wrong').map(one => one.figure);

	document.body.className = 'broad';
	showHeadOfJob(job);
	show(element('h2', null, 'The most in one process'));
	showAnswers(outliers.filter(one => one.shown).map(one => boxOfOutlier(one, job.traces)));
	showTable('Processes, the worst first', [...process, words('host', one => one.host),
		...seen.map(columnOf), time('traced for', one => one.traced_ns),
		words('trace', one => one.trace.split('/').pop())], processes,
	{isBad: one => faults.some(figure => one[figure]), most: 5000});
}

const report = JSON.parse(document.getElementById('report').textContent);

if (report.job)
	showJob(report);
else
	showReport(report);
