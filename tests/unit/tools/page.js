// SPDX-License-Identifier: MIT
/*
 * Drives a page of `pindown report --html` in a browser, for check-page. `page` is the text of the
 * page, and `expected` what check-page knows of it. The page is loaded into a frame, where its own
 * script runs; this script then uses it as a reader would, and writes a line for each check.
 */
'use strict';
const lines = [];

function check(what, good, seen) {
	lines.push((good ? 'good ' : 'bad ') + what + (good ? '' : ': ' + JSON.stringify(seen)));
}

function same(what, seen, wanted) {
	const texts = [seen, wanted].map(function (x) { return JSON.stringify(x); });

	check(what, texts[0] === texts[1], [seen, wanted]);
}

/* A frame of this width with the page in it, complete. Errors of its script are collected. */
function load(width) {
	const frame = document.createElement('iframe');

	frame.style = 'border:0;height:20000px;width:' + width + 'px';
	frame.srcdoc = page.replace('<head>', '<head><script>window.errors=[];' +
		'window.onerror=function(text){errors.push(text)}</script>');
	return new Promise(function (resolve) {
		frame.onload = function () {
			/* No real pointer is there to be captured. */
			frame.contentWindow.SVGElement.prototype.setPointerCapture = function () {};
			resolve(frame.contentWindow);
		};
		document.body.appendChild(frame);
	});
}

function all(root, selector) {
	return Array.from(root.querySelectorAll(selector));
}

function texts(root, selector) {
	return all(root, selector).map(function (x) { return x.textContent; });
}

function plot(root, title) {
	return all(root, '.picture').filter(function (picture) {
		return picture.querySelector('h2').textContent === title;
	})[0].querySelector('.plot');
}

/* The part of the time that a chart shows, in thousandths. */
function part(root) {
	return plot(root, 'Pinned bytes').querySelector('svg').getAttribute('viewBox').split(' ')
		.filter(function (x, i) { return i % 2 === 0; }).map(Number);
}

function scale(root, title) {
	return texts(plot(root, title), '.y')[0];
}

/* A region that was freed while pinned has a second box, of another colour. */
function shown_boxes(root) {
	return plot(root, 'Addresses over time').querySelector('path.p').getAttribute('d')
		.split('M').length - 1;
}

function button(root, title) {
	return root.querySelector('.tools button[title="' + title + '"]');
}

function choose(root, title, text) {
	const select = root.querySelector('.tools select[title="' + title + '"]');

	select.value = all(select, 'option').filter(function (option) {
		return option.textContent === text;
	})[0].value;
	select.onchange();
}

function point(view, chart, kind, where) {
	const svg = chart.querySelector('svg'), box = svg.getBoundingClientRect();

	svg.dispatchEvent(new view.PointerEvent('pointer' + kind, {
		bubbles: true, pointerId: 1, button: 0, clientX: box.left + where * box.width,
		clientY: box.top + box.height / 2}));
}

/* The table below a heading; undefined: there is no such heading. */
function table_of(root, title) {
	const heading = all(root, 'h2').filter(function (h) { return h.textContent === title; })[0];

	return heading && heading.nextElementSibling.querySelector('table');
}

/* ---- the page shows what the report has ------------------------------------------------------- */

function check_table(root, title, rows, texts_of_row) {
	const table = table_of(root, title);

	same('rows of ' + title, table ? table.tBodies[0].rows.length : 0,
	     Math.min(rows.length, 500));
	rows.slice(0, 500).forEach(function (row, i) {
		const cells = texts(table.tBodies[0].rows[i], 'td');
		const missing = texts_of_row(row).filter(function (wanted) {
			return cells.indexOf(typeof wanted === 'string' ? wanted :
				wanted.toLocaleString('en').replace(/,/g, ' ')) < 0;
		});

		if (missing.length)
			check(title + ', row ' + i, false, [missing, cells]);
	});
}

function check_report(root, report) {
	const boxes = all(root, '.answer').map(function (box) { return texts(box, 'em,b,span'); });
	const command = report.processes[0].command.join(' ');

	report.answers.forEach(function (answer, i) {
		const value = answer.count ? String(answer.count) : answer.none ? '–' : 'none';

		same('the answer ' + answer.key, boxes[i], [answer.name, value,
			answer.count ? answer.more : answer.none || '']);
	});
	same('the title', root.querySelector('h1').textContent, command);
	same('the title of the window', root.title, (command + ' – pindown report').trim());
	[['Stale registrations: memory freed while in use', report.stale],
		['Freed in stream order while in use', report.ordered],
		['Missed invalidations', report.missed], ['Still pinned at the end', report.left],
		['Freed while the program had a dma-buf of it open', report.exports]
	].forEach(function (list) {
		check_table(root, list[0], list[1], function (row) {
			return [row.addr, String(row.pid)];
		});
	});
	check_table(root, 'Freed while the program had a registration of it', report.registrations,
	            function (row) { return [row.addr, row.fate, String(row.pid)]; });
	check_table(root, 'Registrations', report.consumers, function (row) {
		return [row.consumer || '–', row.made, row.held];
	});
	check_table(root, 'Allocated bytes by call site', report.allocation_sites, function (row) {
		return [row.caller || '–', row.call];
	});
	check_table(root, 'Call sites', report.sites, function (row) {
		return [row.caller, row.call];
	});
	check_table(root, 'Calls', report.calls, function (row) {
		return [row.call, row.count, row.failed];
	});
	check_table(root, 'Devices', report.devices, function (row) {
		return [row.device, row.pins];
	});
	same('the definitions', texts(root, '.definitions').join(), report.definitions || '');
	same('charts', texts(root, '.picture h2'), [].concat(
		report.cache.pins ? ['Pinned bytes', 'Live regions', 'BAR use'] : [],
		report.allocated.peak_bytes ? ['Allocated bytes'] : [],
		report.history.regions.length ? ['Addresses over time'] : []));
	if (report.history.regions.length)
		same('regions on the map', shown_boxes(root), report.history.regions.length);
}

function check_job(root, job) {
	const shown = job.outliers.filter(function (one) { return one.shown; });
	const heads = texts(table_of(root, 'Processes, the worst first'), 'th');

	same('the figures of the boxes', texts(root, '.answer em'),
	     shown.map(function (one) { return one.name; }));
	shown.forEach(function (one, i) {
		const text = all(root, '.answer')[i].textContent, by = one.by;

		if (by)
			check('who has most: ' + one.figure, one.most === one.median ||
			      text.indexOf('rank ' + by.rank + ' on ' + by.host) > 0, text);
		else
			check('none: ' + one.figure, /none|unknown in/.test(text), text);
	});
	same('columns', heads.length, 5 + job.outliers.filter(function (one) {
		return one.by;
	}).length);
	check_table(root, 'Processes, the worst first', job.processes, function (row) {
		return [String(row.rank), String(row.pid), row.host, row.trace.split('/').pop()];
	});
	same('bad processes', all(root, 'tr.bad').length, expected.bad);
}

/* What these traces have, which the script has to print as the command does. */
function check_expected(root) {
	(expected.boxes || []).forEach(function (text) {
		check('a box: ' + text, texts(root, '.answer').indexOf(text) >= 0,
		      texts(root, '.answer'));
	});
	(expected.texts || []).forEach(function (text) {
		check('a text: ' + text, root.body.innerText.indexOf(text) >= 0, root.body.innerText);
	});
	(expected.cells || []).forEach(function (text) {
		check('a cell: ' + text, texts(root, 'td').indexOf(text) >= 0, texts(root, 'td'));
	});
	if (expected.narrow)
		same('boxes of flame graphs without a text', all(root, '.flame .narrow').map(
			function (box) { return box.title.split(':')[0]; }).sort(), expected.narrow);
	same('markup from a trace', all(root, 'b b, h1 *, td i').length, 0);
}

/* ---- what a reader does ---------------------------------------------------------------------- */

function check_first_look(root) {
	same('the whole time is shown', part(root), [0, 1000]);
	check('there is nothing to zoom out of', button(root, 'zoom out').disabled &&
	      button(root, 'whole time').disabled && button(root, 'earlier').disabled &&
	      button(root, 'later').disabled && !button(root, 'zoom in').disabled, 0);
}

function check_selectors(root) {
	const boxes = shown_boxes(root), scales = texts(root, '.plot .y');

	same('GPUs to select', all(root, '.tools select[title=GPU] option').length,
	     expected.gpus + 1);
	same('processes to select', texts(root, '.tools select[title=process] option'),
	     ['all processes'].concat(expected.processes.map(function (process) {
		     return process.name;
	     })));
	expected.processes.forEach(function (process) {
		choose(root, 'process', process.name);
		same('the peak of ' + process.name, scale(root, 'Pinned bytes'), process.peak);
		same('the boxes of ' + process.name, shown_boxes(root), process.regions);
		choose(root, 'GPU', 'GPU ' + (process.gpu + 1) % expected.gpus);
		same('another GPU of ' + process.name, [scale(root, 'Pinned bytes'),
		     scale(root, 'Live regions'), shown_boxes(root)], ['0 B', '0', 0]);
		choose(root, 'GPU', 'GPU ' + process.gpu);
		same('the GPU of ' + process.name, scale(root, 'Pinned bytes'), process.peak);
		choose(root, 'GPU', 'all GPUs');
	});
	choose(root, 'process', 'all processes');
	same('all again', [texts(root, '.plot .y'), shown_boxes(root)], [scales, boxes]);
}

function check_buttons(root) {
	const marks = texts(root, '.xs span');
	let steps = 0;

	button(root, 'zoom in').click();
	same('zoomed in', part(root), [250, 500]);
	button(root, 'later').click();
	same('later', part(root), [500, 500]);
	check('it is the end', button(root, 'later').disabled && !button(root, 'earlier').disabled,
	      0);
	button(root, 'earlier').click();
	button(root, 'earlier').click();
	same('the begin', part(root), [0, 500]);
	button(root, 'zoom out').click();
	same('zoomed out', part(root), [0, 1000]);
	same('the marks of the whole time', texts(root, '.xs span'), marks);
	button(root, 'zoom in').click();
	button(root, 'later').click();
	while (!button(root, 'zoom in').disabled && steps++ < 50)
		button(root, 'zoom in').click();
	check('zooming in has an end', steps > 3 && steps < 50, steps);
	const near = texts(plot(root, 'Pinned bytes'), '.xs span');
	same('marks that differ, at the end of zooming', new Set(near).size, near.length);
	button(root, 'whole time').click();
	same('the whole time', part(root), [0, 1000]);
}

function check_pointer(view, root) {
	const chart = plot(root, 'Pinned bytes'), readout = chart.querySelector('.readout');

	point(view, chart, 'move', .5);
	check('a pointer reads values', readout.textContent.indexOf(expected.middle) > 0,
	      readout.textContent);
	point(view, chart, 'leave', .5);
	same('until it leaves', readout.textContent, '');
	point(view, plot(root, 'Addresses over time'), 'move', .3);
	const region = plot(root, 'Addresses over time').querySelector('.readout').textContent;
	check('on the map, its region', region.indexOf(expected.region) > 0, region);
	point(view, plot(root, 'Addresses over time'), 'leave', .3);
	point(view, chart, 'down', .2);
	point(view, chart, 'move', .5);
	check('what is being selected is marked', chart.querySelector('.pick').style.display === '',
	      0);
	point(view, chart, 'up', .6);
	const seen = part(root);
	check('dragging zooms', Math.abs(seen[0] - 200) < 2 && Math.abs(seen[1] - 400) < 4, seen);
	button(root, 'whole time').click();
	point(view, chart, 'down', .5);
	point(view, chart, 'up', .5);
	same('a click does not', part(root), [0, 1000]);
}

function check_sorting(view, root, title) {
	const table = table_of(root, title);
	const heads = texts(table, 'th'), peak = all(table, 'th')[heads.indexOf('peak')];
	const host = all(table, 'th')[heads.indexOf('host')];
	function column(head) {
		return Array.from(table.tBodies[0].rows).map(function (row) {
			return row.cells[head.cellIndex].textContent;
		});
	}

	peak.click();
	same(title + ': the most first', column(peak)[0], expected.most);
	peak.click();
	same(title + ': the most last', column(peak).pop(), expected.most);
	host.dispatchEvent(new view.KeyboardEvent('keydown', {key: 'Enter'}));
	same(title + ': words, by a key', column(host), column(host).slice().sort());
	same(title + ': the column that is sorted by', texts(table, 'th[data-order]'), ['host']);
}

/* Tables may be wider, and can be scrolled alone; nothing else is cut off. */
function check_width(view, root, width) {
	const beyond = all(root, 'body *').filter(function (x) {
		return !x.closest('.wide') && !x.closest('svg') && x.tagName !== 'SCRIPT' &&
			x.getBoundingClientRect().right > width + .5;
	});

	same('at ' + width + ' pixels the page scrolls in one direction',
	     root.documentElement.scrollWidth, width);
	same('at ' + width + ' pixels nothing is cut off', beyond.map(function (x) {
		return x.tagName + ' ' + x.textContent.slice(0, 60);
	}), []);
}

async function drive() {
	for (const width of [1400, 420]) {
		const view = await load(width), root = view.document;
		const report = JSON.parse(root.getElementById('report').textContent);

		if (report.job)
			check_job(root, report);
		else
			check_report(root, report);
		check_expected(root);
		if (expected.processes) {
			check_first_look(root);
			check_selectors(root);
			check_buttons(root);
			check_pointer(view, root);
			check_sorting(view, root, 'Processes');
		} else if (report.job) {
			check_sorting(view, root, 'Processes, the worst first');
		}
		check_width(view, root, width);
		same('errors of the script', view.errors, []);
		same('it fetches nothing', view.performance.getEntriesByType('resource').length, 0);
		lines.push('back ' + view.getComputedStyle(root.body).backgroundColor);
	}
}

drive().catch(function (error) {
	lines.push('bad ' + error.stack);
}).then(function () {
	const result = document.createElement('pre');

	result.id = 'result';
	result.textContent = lines.concat('the end').join('\n');
	document.body.replaceChildren(result);
});
