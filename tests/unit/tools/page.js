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

	frame.style = 'border:0;height:5000px;width:' + width + 'px';
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

function shown_boxes(root) {
	return all(root, 'rect[data-f]').filter(function (box) {
		return box.style.display !== 'none';
	}).length;
}

function button(root, title) {
	return root.querySelector('.tools button[title="' + title + '"]');
}

function choose(root, title, value) {
	const select = root.querySelector('.tools select[title="' + title + '"]');

	select.value = String(value);
	select.onchange();
}

function point(view, chart, kind, where) {
	const svg = chart.querySelector('svg'), box = svg.getBoundingClientRect();

	svg.dispatchEvent(new view.PointerEvent('pointer' + kind, {
		bubbles: true, pointerId: 1, button: 0, clientX: box.left + where * box.width,
		clientY: box.top + box.height / 2}));
}

/* ---- what a reader does ---------------------------------------------------------------------- */

function check_first_look(root) {
	const still = new DOMParser().parseFromString(page, 'text/html'); /* its script is not run */

	same('the scales that the script draws are those of the page', texts(root, '.plot .y'),
	     texts(still, '.plot .y'));
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
	expected.processes.forEach(function (process, i) {
		choose(root, 'process', i);
		same('the peak of ' + process.name, scale(root, 'Pinned bytes'), process.peak);
		same('the boxes of ' + process.name, shown_boxes(root),
		     all(root, 'rect[data-f="' + i + '"]').length);
		choose(root, 'GPU', (process.gpu + 1) % expected.gpus);
		same('another GPU of ' + process.name, [scale(root, 'Pinned bytes'),
		     scale(root, 'Live regions'), shown_boxes(root)], ['0 B', '0', 0]);
		choose(root, 'GPU', process.gpu);
		same('the GPU of ' + process.name, scale(root, 'Pinned bytes'), process.peak);
		choose(root, 'GPU', -2);
	});
	choose(root, 'process', -2);
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
	const heading = all(root, 'h2').filter(function (h) { return h.textContent === title; })[0];
	const table = all(root, 'table').filter(function (t) {
		return heading.compareDocumentPosition(t) & 4 /* it follows */;
	})[0];
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

		if (expected.processes) {
			check_first_look(root);
			check_selectors(root);
			check_buttons(root);
			check_pointer(view, root);
			check_sorting(view, root, 'Processes');
		} else {
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
